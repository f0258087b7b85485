"""Atomic writes and locks; values for JSON, installed versions, and text for terminals."""

import copy
import errno
import json
import os
import pickle
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import make_dataclass

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen._support import files
from crcen._support.extras import installed_version, installed_versions, need
from crcen._support.files import atomic_file, check_writable, exclusive_lock, is_device, write_atomic
from crcen._support.lazy import LazyModule
from crcen._support.text import json_value, printable
from crcen.exceptions import DataUnavailable, MissingExtra

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has other kinds of files")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["täble", b"\x89PNG"])
def test_text_and_bytes_are_written(tmp_path, content):
    (tmp_path / ".file.1.part").write_text("of a killed run")
    write_atomic(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert sorted(os.listdir(tmp_path)) == [".file.1.part", "file"]


def refuse(*args):
    raise OSError(errno.EIO, "Input/output error")


OLD = b"the old content"


@pytest.mark.parametrize(
    ("name", "old"), [("replace", None), ("fsync", None), ("replace", OLD), ("fsync", OLD), ("chmod", OLD)]
)
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, name, old):
    path = tmp_path / "table.md"
    if old is not None:
        path.write_bytes(old)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, refuse)
        with pytest.raises(DataUnavailable, match=r"table\.md was not written: Input/output"):
            write_atomic(path, "the new content")
    assert os.listdir(tmp_path) == ([] if old is None else ["table.md"])
    assert old is None or path.read_bytes() == old


@pytest.mark.parametrize("size", [100_000, 33_000])  # the second fits into the buffer and fails on flush
def test_a_full_disk_names_the_destination(full_disk, size):
    with pytest.raises(DataUnavailable, match=r"small/a was not written: No space left on device\."):
        write_atomic(full_disk / "a", b"x" * size)
    assert os.listdir(full_disk) == []


@posix
@pytest.mark.parametrize("wanted", [0o600, 0o640, 0o664, 0o200])
def test_a_replaced_file_keeps_its_mode_and_owner(tmp_path, wanted):
    path = tmp_path / "secret"
    path.touch()
    path.chmod(wanted)
    owner = (os.geteuid(), os.getegid())
    if owner[0] == 0:  # only root may give files away
        owner = (1234, 2345)
        os.chown(path, *owner)
    write_atomic(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (*owner, wanted)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_follows_the_umask(tmp_path, mask):
    before = os.umask(mask)
    write_atomic(tmp_path / "new", "x")
    os.umask(before)
    assert mode(tmp_path / "new") == 0o666 & ~mask


@posix
def test_the_temporary_file_is_private_and_unpredictable(tmp_path, monkeypatch):
    (tmp_path / "a").touch(0o640)
    names = set()
    for _ in range(2):
        with atomic_file(tmp_path / "a"):
            (name,) = {*os.listdir(tmp_path)} - {"a"}
            assert mode(tmp_path / name) == 0o600
            names.add(name)
    assert len(names) == 2
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "guessed")
    (tmp_path / ".a.guessed.part").symlink_to(tmp_path / "victim")
    with pytest.raises(DataUnavailable, match="File exists"):
        write_atomic(tmp_path / "a", "theirs")
    assert (tmp_path / "victim").read_text() == "mine"


@posix
def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    (tmp_path / "middle").symlink_to("real/file")
    (tmp_path / "link").symlink_to("middle")
    with atomic_file(tmp_path / "link") as file:
        file.write(b"new")
        assert len(os.listdir(tmp_path / "real")) == 2  # in the target's folder, so that the rename is atomic
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"
    (tmp_path / "to be").symlink_to("real/to be")
    write_atomic(tmp_path / "to be", "made")
    assert sorted(os.listdir(tmp_path / "real")) == ["file", "to be"]


@posix
def test_unsuitable_destinations_are_refused_before_the_work(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the name of a socket has at most 107 characters
        server.bind("socket")
        (tmp_path / "circle").symlink_to("circle")
        (tmp_path / "to fifo").symlink_to("fifo")
        (tmp_path / "file").touch()
        if os.geteuid() == 0:  # only root may make devices
            os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 200))
        for name, why in [
            *([("disk", "it is a disk")] if (tmp_path / "disk").exists() else []),
            ("fifo", "it is a FIFO"),
            ("to fifo", "it is a FIFO"),
            ("socket", "it is a socket"),
            ("circle", "symbolic links"),
            (".", "it is a folder"),
            ("file/below", "is not a folder"),
            ("no/file", "does not exist; create it first"),
            ("x" * 300, "name too long"),
            ("a\0b", "null"),
        ]:
            for write in (check_writable, lambda path: write_atomic(path, "x")):
                with pytest.raises(DataUnavailable, match=why):
                    write(tmp_path / name)
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)


@posix
def test_a_removed_current_folder_is_reported(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for write in (check_writable, is_device, lambda path: write_atomic(path, "text")):
        with pytest.raises(DataUnavailable, match=r"^out\.csv cannot be written: No such file or directory\.$"):
            write("out.csv")


@pytest.mark.parametrize(("name", "words"), [("open/closed.csv", "write-protected"), ("closed/new.csv", "ermission")])
def test_a_write_protected_file_is_refused(closed_folder, name, words):
    with pytest.raises(DataUnavailable, match=words):
        check_writable(closed_folder / name)


def test_an_input_file_is_not_overwritten(tmp_path):
    (tmp_path / "in").touch()
    (tmp_path / "link").symlink_to("in")
    for place in ("in", "link"):
        with pytest.raises(DataUnavailable, match="it is the file that is read"):
            check_writable(tmp_path / place, None, tmp_path / "in")
    assert check_writable(tmp_path / "out", tmp_path / "in") == tmp_path / "out"


@posix
def test_devices_are_written_to_directly(tmp_path):
    before = os.stat("/dev/null")
    (tmp_path / "nothing").symlink_to("/dev/null")
    for path in ("/dev/null", tmp_path / "nothing"):
        write_atomic(path, "x" * 100_000)
        assert is_device(path)
    assert (os.stat("/dev/null").st_ino, os.stat("/dev/null").st_rdev) == (before.st_ino, before.st_rdev)
    assert (tmp_path / "nothing").is_symlink()
    assert not is_device(tmp_path / "a")


TO_STDOUT = """
import sys
import pandas as pd
from crcen._support.files import write_atomic
from crcen.tables.writing import TableWriter
print("first")
with TableWriter("/dev/stdout") as writer:
    writer.write(pd.DataFrame({"a": [1, 2]}))
write_atomic(sys.argv[1], "by number\\n")
print("last")
"""


@posix
@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1", "link"])
def test_standard_output_is_written_in_order(tmp_path, name):
    if name == "link":
        name = str(tmp_path / "link")
        os.symlink("/dev/stdout", name)
    with open(tmp_path / "out", "w") as file:
        out = subprocess.PIPE if name == "/dev/fd/1" else file
        done = subprocess.run([sys.executable, "-c", TO_STDOUT, name], stdout=out, text=True, check=True)
    assert (done.stdout or (tmp_path / "out").read_text()) == "first\na\n1\n2\nby number\nlast\n"


# The command, stopped while it replaces a file.
STUCK = """
import sys, time
from crcen._support import files
def slow(*arguments):
    print("running", flush=True)
    time.sleep(60)
files._replace = slow
from crcen.cli import main
sys.argv[0] = "crcen"
main()
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_temporary_files(tmp_path, number):
    pd.DataFrame({"x": range(60), "y": [0, 1] * 30}).to_csv(tmp_path / "in.csv", index=False)
    # Under nohup the tests ignore SIGHUP, and so would the command.
    default = f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)\n"
    command = [sys.executable, "-c", default + STUCK, "split", "in.csv", "--target", "y"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n", process.communicate()[1]
    assert len(os.listdir(tmp_path)) > 1
    time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == ["in.csv"]


HOLD = """
import sys, time
from crcen._support.files import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_its_holder_and_ends_when_it_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        said = f"in use by process {holder.pid} on .*or give another --out"
        with pytest.raises(DataUnavailable, match=said), exclusive_lock(tmp_path, instead="give another --out"):
            pass
        assert holder.poll() is None
        holder.kill()
    assert os.listdir(tmp_path) == [".lock"]
    with exclusive_lock(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["run", "checkpoint.npz"])
def test_a_lock_holds_for_folders_new_files_and_links(tmp_path, name):
    if name == "run":
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(name)
    with exclusive_lock(tmp_path / name):
        for other in (name, "link"):
            with pytest.raises(DataUnavailable, match="is in use by"), exclusive_lock(tmp_path / other):
                pass
    with pytest.raises(KeyboardInterrupt), exclusive_lock(tmp_path / name):
        raise KeyboardInterrupt
    with exclusive_lock(tmp_path / name):
        pass
    with pytest.raises(DataUnavailable, match="does not exist"), exclusive_lock(tmp_path / "no" / "file"):
        pass


def test_two_writers_of_one_name_never_mix(tmp_path):
    path = tmp_path / "a"
    with atomic_file(path) as first:
        first.write(b"x" * 5_000)
        with atomic_file(path) as second:
            second.write(b"y" * 3_000)
            first.write(b"x" * 5_000)
        assert path.read_bytes() == b"y" * 3_000
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"x" * 10_000, ["a"])


def test_every_value_becomes_one_that_json_takes():
    value = {
        1: np.float32(0.5),
        "nan": [float("nan"), -np.inf, np.float64("inf")],
        "array": np.array([[1, 2], [3, 4]]),
        "labels": np.array(["a", None], dtype=object),
        "yes": np.bool_(True),
        "record": make_dataclass("Point", ("x", "y"))(2.0, (np.int64(3), "text")),
    }
    assert json.loads(json.dumps(json_value(value), allow_nan=False)) == {
        "1": 0.5,
        "nan": [None, None, None],
        "array": [[1, 2], [3, 4]],
        "labels": ["a", None],
        "yes": True,
        "record": {"x": 2.0, "y": [3, "text"]},
    }
    # Whole numbers are shortened on request where nothing is lost.
    assert json.dumps(json_value([3.0, 0.5, 1e300], shorten=True)) == "[3, 0.5, 1e+300]"
    assert json.dumps(json_value(3.0)) == "3.0"


def test_what_is_not_installed_has_no_version():
    assert installed_version("numpy") == np.__version__
    assert installed_versions(["crcen", "no-such-package"]) == {"crcen": crcen.__version__}
    with pytest.raises(MissingExtra, match=r"no_such is not installed; get it with: pip install 'crcen\[plots\]'"):
        need("no_such.module", "plots")


def test_what_is_installed_and_cannot_be_imported_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import no_such_dependency")
    (tmp_path / "too_old.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    for module, missing in (("half_there", "no_such_dependency"), ("too_old", "no_such_name")):
        with pytest.raises(MissingExtra, match=f"{module} is installed but cannot be imported .*{missing}"):
            need(module, "tables")


def test_a_terminal_gets_nothing_to_obey():
    assert printable("plain täxt €") == "plain täxt €"
    assert printable("a\x1b[2Jb\x9bc\u202ed\x7f\ttab\nline") == "a?[2Jb?c?d? tab line"


def test_a_lazy_module_can_be_pickled_before_and_after_its_use():
    module = LazyModule("decimal")
    for _ in range(2):
        assert pickle.loads(pickle.dumps(module)).Decimal is copy.deepcopy(module).Decimal is module.Decimal

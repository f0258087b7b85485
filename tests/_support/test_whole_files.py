"""Files are written whole or not at all, in the place that was meant, with the rights that were there."""

import errno
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pandas as pd
import pytest

from crcen._support import whole_files
from crcen._support.whole_files import check_place, is_device, whole_file, write_whole
from crcen.exceptions import DataUnavailable
from crcen.tables.writing import TableWriter

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has other kinds of files")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["täble", b"\x89PNG"])
def test_text_and_bytes(tmp_path, content):
    write_whole(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["file"]


def refuse(*args):
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("name", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("old", [None, b"the old content"])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, name, old):
    path = tmp_path / "table.md"
    if old is not None:
        path.write_bytes(old)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, refuse)
        with pytest.raises(OSError, match="Input/output"):
            write_whole(path, "the new content")
    assert os.listdir(tmp_path) == ([] if old is None else ["table.md"])
    assert old is None or path.read_bytes() == old


def test_a_full_disk_is_about_the_file_that_was_asked_for(full_disk):
    with pytest.raises(DataUnavailable, match=r"small/a was not written: No space left on device\."):
        write_whole(full_disk / "a", b"x" * 100_000)
    with pytest.raises(DataUnavailable, match=r"small/a was not written: No space left on device\."):
        write_whole(full_disk / "a", b"x" * 33_000)  # what the buffer holds back fails when it is closed
    assert os.listdir(full_disk) == []


@posix
def test_the_mode_of_a_file_that_is_replaced_stays(tmp_path):
    path = tmp_path / "secret"
    for wanted in (0o600, 0o640, 0o664, 0o200):
        path.touch()
        path.chmod(wanted)
        write_whole(path, "new")
        assert mode(path) == wanted
        path.unlink()


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_the_user_wants(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "new", "x")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o666 & ~mask


@posix
def test_the_owner_of_a_file_that_is_replaced_stays(tmp_path):
    if os.geteuid():
        pytest.skip("only root may give files away")
    (tmp_path / "theirs").touch(0o640)
    os.chown(tmp_path / "theirs", 1234, 2345)
    write_whole(tmp_path / "theirs", "new")
    found = (tmp_path / "theirs").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, 0o640)


@posix
def test_nobody_else_can_read_or_guess_the_unfinished_file(tmp_path):
    names = set()
    for _ in range(2):
        with whole_file(tmp_path / "a") as file:
            file.write(b"x")
            (name,) = os.listdir(tmp_path)
            assert mode(tmp_path / name) == 0o600
            names.add(name)
        os.unlink(tmp_path / "a")
    assert len(names) == 2
    assert all(str(os.getpid()) not in name.split(".")[2:-2] for name in names)


@posix
def test_a_link_in_the_place_of_the_unfinished_file_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr(whole_files.secrets, "token_hex", lambda n: "guessed")
    (tmp_path / ".a.guessed.part").symlink_to(tmp_path / "victim")
    with pytest.raises(DataUnavailable, match="File exists"):
        write_whole(tmp_path / "a", "theirs")
    assert (tmp_path / "victim").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == [".a.guessed.part", "victim"]


@posix
def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    (tmp_path / "real" / "file").chmod(0o600)
    (tmp_path / "middle").symlink_to("real/file")
    (tmp_path / "link").symlink_to("middle")
    with whole_file(tmp_path / "link") as file:
        file.write(b"new")
        assert len(os.listdir(tmp_path / "real")) == 2  # beside the target, so that the rename is one step
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"
    assert mode(tmp_path / "real" / "file") == 0o600
    (tmp_path / "to be").symlink_to("real/to be")
    write_whole(tmp_path / "to be", "made")
    assert (tmp_path / "real" / "to be").read_text() == "made"
    assert sorted(os.listdir(tmp_path / "real")) == ["file", "to be"]


@posix
def test_places_that_cannot_take_a_file_are_refused_before_the_work(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # a socket's name has at most 107 letters
        server.bind("socket")
        (tmp_path / "circle").symlink_to("circle")
        (tmp_path / "to fifo").symlink_to("fifo")
        (tmp_path / "file").touch()
        for name, why in [
            ("fifo", "it is a FIFO"),
            ("to fifo", "it is a FIFO"),
            ("socket", "it is a socket"),
            ("circle", "links lead in a circle"),
            (".", "it is a folder"),
            ("file/below", "is no folder"),
            ("no/file", "is not there; make it first"),
            ("x" * 300, "name too long"),
            ("a\0b", "null"),
        ]:
            for write in (check_place, lambda path: write_whole(path, "x")):
                with pytest.raises(DataUnavailable, match=why):
                    write(tmp_path / name)
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)


@posix
def test_a_disk_is_refused(tmp_path):
    try:
        os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 200))
    except OSError:
        pytest.skip("only root may make devices")
    with pytest.raises(DataUnavailable, match="it is a disk"):
        check_place(tmp_path / "disk")


def test_a_write_protected_file_is_refused(closed_folder):
    if os.geteuid() == 0:
        pytest.skip("root may write anything")
    with pytest.raises(DataUnavailable, match="write-protected"):
        check_place(closed_folder / "open" / "closed.csv")
    with pytest.raises(DataUnavailable, match=r"[Pp]ermission"):
        check_place(closed_folder / "closed" / "new.csv")


def test_what_is_read_is_not_written_over(tmp_path):
    (tmp_path / "in").touch()
    (tmp_path / "link").symlink_to("in")
    for place in ("in", "link"):
        with pytest.raises(DataUnavailable, match="it is the file that is read"):
            check_place(tmp_path / place, None, tmp_path / "in")
    assert check_place(tmp_path / "out", tmp_path / "in") == tmp_path / "out"


@posix
def test_devices_are_written_through(tmp_path):
    before = os.stat("/dev/null")
    write_whole("/dev/null", "x" * 100_000)
    assert (os.stat("/dev/null").st_ino, os.stat("/dev/null").st_rdev) == (before.st_ino, before.st_rdev)
    assert is_device("/dev/null")
    assert not is_device(tmp_path / "a")
    (tmp_path / "nothing").symlink_to("/dev/null")
    write_whole(tmp_path / "nothing", "x")
    assert (tmp_path / "nothing").is_symlink()


TO_STDOUT = """
import sys
import pandas as pd
from crcen.tables.writing import TableWriter
from crcen._support.whole_files import write_whole
print("first")
with TableWriter("/dev/stdout") as writer:
    writer.write(pd.DataFrame({"a": [1, 2]}))
write_whole(sys.argv[1], "by number\\n")
print("last")
"""


@posix
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_output_is_written_through_in_order(tmp_path, kind):
    if kind == "pipe":
        done = subprocess.run(
            [sys.executable, "-c", TO_STDOUT, "/dev/fd/1"], capture_output=True, text=True, check=True
        )
        found = done.stdout
    else:
        with open(tmp_path / "out", "w") as out:
            subprocess.run([sys.executable, "-c", TO_STDOUT, "/proc/self/fd/1"], stdout=out, check=True)
        found = (tmp_path / "out").read_text()
    assert found == "first\na\n1\n2\nby number\nlast\n"


def write_often(path, letter, ready):
    ready.wait()
    for _ in range(40):
        with whole_file(path) as file:
            for _ in range(20):
                file.write(letter * 5_000)


def test_two_processes_that_write_one_name_never_mix(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    path = tmp_path / "a"
    both = [context.Process(target=write_often, args=(path, letter, ready)) for letter in (b"x", b"y")]
    for process in both:
        process.start()
    ready.wait()
    seen = set()
    while any(process.is_alive() for process in both):
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 100_000
            seen.update(content)
            assert len(set(content)) == 1
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert seen == set(b"xy")
    assert os.listdir(tmp_path) == ["a"]


def test_an_unfinished_file_of_a_killed_run_is_left_alone(tmp_path):
    (tmp_path / ".a.1.part").write_text("someone's")
    write_whole(tmp_path / "a", "mine")
    assert (tmp_path / ".a.1.part").read_text() == "someone's"
    assert (tmp_path / "a").read_text() == "mine"


# The command, held up in the middle of writing.
STUCK = """
import sys, time
from crcen._support import whole_files
put = whole_files._put
def slow(*arguments):
    print("under way", flush=True)
    time.sleep(60)
whole_files._put = slow
from crcen.cli import main
sys.argv[0] = "crcen"
main()
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_hidden_files(tmp_path, number):
    pd.DataFrame({"x": range(60), "y": [0, 1] * 30}).to_csv(tmp_path / "in.csv", index=False)
    # Under nohup the tests ignore SIGHUP, and so would the command, as it should.
    heard = f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)\n"
    command = [sys.executable, "-c", heard + STUCK, "split", "in.csv", "--target", "y"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "under way\n", process.communicate()[1]
    assert len(os.listdir(tmp_path)) > 1  # hidden files
    time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == ["in.csv"]


def test_a_table_that_goes_wrong_in_the_middle_leaves_nothing(tmp_path):
    def interrupted():
        with TableWriter(tmp_path / "a.csv.gz") as writer:
            writer.write(pd.DataFrame({"a": range(100_000)}))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []

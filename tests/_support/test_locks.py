"""One process at a time, and a lock that dies with its process."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from crcen._support.locks import sole_use
from crcen.exceptions import DataUnavailable

HOLD = """
import sys, time
from crcen._support.locks import sole_use
with sole_use(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def held(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_is_refused_by_name_until_it_ends(tmp_path, held):
    said = f"in use by process {held.pid} on .*or give another --out"
    with pytest.raises(DataUnavailable, match=said), sole_use(tmp_path, instead="give another --out"):
        pass
    assert held.poll() is None
    held.send_signal(signal.SIGKILL)
    held.wait()
    assert os.listdir(tmp_path) == [".lock"]
    with sole_use(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["run", "checkpoint.npz"])
def test_a_folder_and_a_file_that_is_not_there_yet(tmp_path, name):
    if name == "run":
        (tmp_path / name).mkdir()
    with sole_use(tmp_path / name):
        with pytest.raises(DataUnavailable, match="is in use by"), sole_use(tmp_path / name):
            pass
        (tmp_path / "link").symlink_to(name)
        with pytest.raises(DataUnavailable, match="is in use by"), sole_use(tmp_path / "link"):
            pass
    with sole_use(tmp_path / name):
        pass


def test_an_error_inside_frees_it(tmp_path):
    with pytest.raises(KeyboardInterrupt), sole_use(tmp_path):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_place_without_rights_is_one_sentence(tmp_path):
    with pytest.raises(DataUnavailable, match="No such file"), sole_use(tmp_path / "no" / "file"):
        pass


def test_many_who_come_and_go_are_never_two_at_once(tmp_path):
    inside, most, turns = 0, 0, 0
    end = time.monotonic() + 60.0

    def visit():
        nonlocal inside, most, turns
        while turns < 60 and time.monotonic() < end:
            try:
                with sole_use(tmp_path):
                    inside += 1
                    most = max(most, inside)
                    turns += 1
                    time.sleep(0.0005)
                    inside -= 1
            except DataUnavailable:
                pass

    visitors = [threading.Thread(target=visit) for _ in range(6)]
    for one in visitors:
        one.start()
    for one in visitors:
        one.join()
    assert most == 1
    assert turns >= 60
    assert os.listdir(tmp_path) == []

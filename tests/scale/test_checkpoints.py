"""Checkpoints under attack: two fits at once, damage, a full disk."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import crcen
from crcen.exceptions import DataUnavailable
from crcen.scale.checkpoint import Progress, read_checkpoint, write_checkpoint
from grouped_settings import grouped

SETTINGS = {
    "epochs": 2,
    "hidden": (4,),
    "batch_size": 32,
    "buffer_rows": 100,
    "random_state": 0,
    "checkpoint_rows": 130,
}


def fit(folder, **changes):
    return crcen.fit_stream(folder, "y", **grouped(features=["a", "b", "c"], **(SETTINGS | changes)))


def progress(number):
    return Progress("made", 3, epoch=number, arrays={"weight": np.full((50, 4), float(number))})


@pytest.fixture
def two(tmp_path):
    """A checkpoint and the one before it."""
    path = tmp_path / "fit.ckpt"
    write_checkpoint(path, progress(1))
    write_checkpoint(path, progress(2))
    return path


def test_the_last_whole_one_is_read_and_that_before_it_is_kept(two):
    assert read_checkpoint(two).epoch == 2
    two.write_bytes(b"")
    with pytest.warns(UserWarning, match=r"fit\.ckpt is damaged; going on from the checkpoint before it"):
        found = read_checkpoint(two)
    assert found.epoch == 1
    np.testing.assert_array_equal(found.arrays["weight"], np.ones((50, 4)))
    two.unlink()
    assert read_checkpoint(two).epoch == 1


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x04.", b"no checkpoint", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_checkpoint_is_refused_in_a_sentence(tmp_path, content):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(content)
    with pytest.raises(DataUnavailable, match=r"fit\.ckpt is no checkpoint of a streamed fit, or damaged: remove it"):
        read_checkpoint(path)


def test_no_damage_is_read_as_another_state_or_ends_in_a_traceback(two):
    whole = two.read_bytes()
    (two.parent / "fit.ckpt.previous").unlink()
    rng = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        if rng.random() < 0.2:
            del content[int(rng.integers(len(content))) :]
        else:
            content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        two.write_bytes(bytes(content))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zipfile
            try:
                found = read_checkpoint(two)
            except DataUnavailable:
                continue
        assert vars(found) | {"arrays": None} == vars(progress(2)) | {"arrays": None}
        np.testing.assert_array_equal(found.arrays["weight"], progress(2).arrays["weight"])


def test_a_damaged_checkpoint_costs_the_rows_since_the_one_before_it_and_nothing_else(folder, tmp_path, monkeypatch):
    import crcen.scale.stream as module

    path, count = tmp_path / "fit.ckpt", []
    write = module.write_checkpoint

    def interrupted(*args):
        write(*args)
        count.append(1)
        if len(count) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(folder, checkpoint=path)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="going on from the checkpoint before it"):
        resumed = fit(folder, checkpoint=path)
    np.testing.assert_array_equal(resumed.coefs_[0], fit(folder).coefs_[0])


def test_a_full_disk_ends_in_a_sentence_and_the_last_whole_one_stays(full_disk):
    path = full_disk / "fit.ckpt"
    write_checkpoint(path, progress(1))
    large = Progress("made", 3, epoch=2, arrays={"weight": np.random.default_rng(0).normal(size=10_000)})
    with pytest.raises(DataUnavailable, match=r"fit\.ckpt was not written: .*; the last whole checkpoint is kept"):
        write_checkpoint(path, large)
    assert read_checkpoint(path).epoch == 1
    assert not [name for name in os.listdir(full_disk) if name.endswith(".part")]


def test_logits_that_find_no_room_end_in_a_sentence(full_disk):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    batches = [(X, (X[:, 0] > 1.5).astype(int))]
    with pytest.raises(DataUnavailable, match=r"the logits, 16 bytes a row, cannot be kept in .*make room"):
        crcen.fit_stream(batches, epochs=1, hidden=(2,), checkpoint=full_disk / "fit.ckpt", random_state=0)
    assert read_checkpoint(full_disk / "fit.ckpt").epoch == 1  # what was trained is not lost


HOLD = """
import sys
from crcen._support.files import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_fits_do_not_share_a_checkpoint(folder, tmp_path):
    path = tmp_path / "fit.ckpt"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataUnavailable, match=rf"in use by process {other.pid} .*or give another checkpoint"):
            fit(folder, checkpoint=path)
        assert not path.exists()
    finally:
        other.communicate()
    assert fit(folder, checkpoint=path).status_ == "completed"
    assert sorted(os.listdir(tmp_path)) == ["data", "fit.ckpt", "fit.ckpt.previous"]


def test_two_fits_do_not_share_a_storage_folder(folder, tmp_path, crcen_command):
    storage = tmp_path / "storage"
    storage.mkdir()
    arguments = ["--target", "y", "--engine", "stream", "--epochs", "1", "--storage", storage, "--out", tmp_path / "m"]
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(storage)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        code, _, said = crcen_command("fit", folder, *arguments)
        assert code == 1
        assert f"in use by process {other.pid}" in " ".join(said.split())
    finally:
        other.communicate()
    assert crcen_command("fit", folder, *arguments)[0] == 0
    assert (storage / "stream.checkpoint").exists()
    assert crcen_command("fit", folder, *arguments)[0] == 0  # goes on from it


@pytest.mark.parametrize("where", ["folder", "under a file"])
def test_a_place_that_takes_no_checkpoint_is_refused_before_the_work(folder, tmp_path, where):
    (tmp_path / "file").write_text("")
    place = tmp_path if where == "folder" else tmp_path / "file" / "fit.ckpt"
    with pytest.raises(DataUnavailable, match=r"it is a folder|no checkpoint can be kept"):
        fit(folder, checkpoint=place)

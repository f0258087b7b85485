"""Checkpoints: two fits at once, damage, a full disk."""

import os
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import crcen
from crcen.exceptions import DataUnavailable
from crcen.scale.checkpoint import Progress, read_checkpoint, write_checkpoint
from grouped_settings import grouped

SETTINGS = {"epochs": 2, "hidden": (4,), "batch_size": 32, "buffer_rows": 100, "random_state": 0}


def fit(folder, **changes):
    return crcen.fit_stream(
        folder, "y", **grouped(features=["a", "b", "c"], checkpoint_rows=130, **SETTINGS, **changes)
    )


def progress(number):
    return Progress("made", 3, epoch=number, arrays={"weight": np.full((50, 4), float(number))})


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x04.", b"no checkpoint", b"PK\x05\x06" + b"\0" * 18])
def test_file_that_is_no_checkpoint_is_rejected(tmp_path, content):
    path = tmp_path / "fit.ckpt"
    assert read_checkpoint(path) is None
    path.write_bytes(content)
    with pytest.raises(DataUnavailable, match=r"fit\.ckpt is no checkpoint of a streamed fit, or damaged: remove it"):
        read_checkpoint(path)


def test_damage_is_never_read_as_another_state(tmp_path):
    path, rng = tmp_path / "fit.ckpt", np.random.default_rng(0)
    for number in (1, 2):
        write_checkpoint(path, progress(number))
    whole = path.read_bytes()
    for is_damaged in [False] + [True] * 300:
        content = bytearray(whole)
        if is_damaged and rng.random() < 0.2:
            del content[int(rng.integers(len(content))) :]
        elif is_damaged:
            content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zipfile
            try:
                found = read_checkpoint(path)
            except DataUnavailable:
                assert is_damaged
                continue
        assert vars(found) | {"arrays": None} == vars(progress(2)) | {"arrays": None}
        np.testing.assert_array_equal(found.arrays["weight"], progress(2).arrays["weight"])


def test_full_disk_keeps_the_last_checkpoint(full_disk):
    path = full_disk / "fit.ckpt"
    write_checkpoint(path, progress(1))
    large = Progress("made", 3, epoch=2, arrays={"weight": np.random.default_rng(0).normal(size=10_000)})
    with pytest.raises(DataUnavailable, match=r"fit\.ckpt was not written: .*; the last whole checkpoint is kept"):
        write_checkpoint(path, large)
    assert read_checkpoint(path).epoch == 1
    assert not [name for name in os.listdir(full_disk) if name.endswith(".part")]


def test_logits_without_room_are_reported_and_the_training_is_kept(full_disk):
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    batches = [(X, (X[:, 0] > 1.5).astype(int))]
    with pytest.raises(DataUnavailable, match=r"the logits, 16 bytes a row, cannot be kept in .*make room"):
        crcen.fit_stream(batches, epochs=1, hidden=(2,), checkpoint=full_disk / "fit.ckpt", random_state=0)
    assert read_checkpoint(full_disk / "fit.ckpt").epoch == 1


HOLD = """
import sys
from crcen._support.files import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], **pipes)
    try:
        assert other.stdout.readline() == "held\n"
        yield other.pid
    finally:
        other.communicate()


def test_two_fits_do_not_share_a_checkpoint(folder, tmp_path):
    path = tmp_path / "fit.ckpt"
    with (
        held_by_another_process(path) as pid,
        pytest.raises(DataUnavailable, match=rf"in use by process {pid} .*or give another checkpoint"),
    ):
        fit(folder, checkpoint=path)
    assert not path.exists()
    assert fit(folder, checkpoint=path).status_ == "completed"
    assert sorted(os.listdir(tmp_path)) == ["data", "fit.ckpt"]


def test_two_fits_do_not_share_a_storage_folder(folder, tmp_path, crcen_command):
    storage = tmp_path / "storage"
    storage.mkdir()
    arguments = ["--target", "y", "--engine", "stream", "--epochs", "1", "--storage", storage, "--out", tmp_path / "m"]
    with held_by_another_process(storage) as pid:
        code, _, said = crcen_command("fit", folder, *arguments)
        assert code == 1
        assert f"in use by process {pid}" in " ".join(said.split())
    assert crcen_command("fit", folder, *arguments)[0] == 0
    assert (storage / "stream.checkpoint").exists()
    assert crcen_command("fit", folder, *arguments)[0] == 0  # continues from it


@pytest.mark.parametrize("where", ["folder", "under a file"])
def test_path_that_cannot_be_a_checkpoint_is_rejected_before_the_work(folder, tmp_path, where):
    (tmp_path / "file").write_text("")
    place = tmp_path if where == "folder" else tmp_path / "file" / "fit.ckpt"
    with pytest.raises(DataUnavailable, match=r"it is a folder|nothing can be kept in"):
        fit(folder, checkpoint=place)

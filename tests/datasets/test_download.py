import io
import os
import sys
import tarfile

import pytest
from imblearn.datasets import _zenodo

from crcen.datasets import benchmark, download, list_datasets, load_dataset
from crcen.datasets.catalog import catalog
from crcen.exceptions import DataUnavailable, MissingExtra


@pytest.fixture
def without_package(no_places, monkeypatch, tmp_path):
    """No place on this machine has anything; the cache's folder is returned."""
    catalog()  # the table of the sets is in the package too, and is read once
    monkeypatch.setattr(benchmark.resources, "files", lambda package: tmp_path / "no-package")
    return no_places / "zenodo"


@pytest.fixture
def serve(monkeypatch, tmp_path, bundled_folder):
    """Point imbalanced-learn at an archive on this machine; other contents of a file may be given by its name."""

    def archive(cut=None, **contents):
        files = {path.name: path.read_bytes() for path in bundled_folder.glob("x*data.npz")}
        files |= {f"{name}.npz": content for name, content in contents.items()}
        path = tmp_path / "benchmark.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        path.write_bytes(path.read_bytes()[:cut])
        monkeypatch.setattr(_zenodo, "URL", path.as_uri())

    return archive


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(_zenodo, "URL", (tmp_path / "gone.tar.gz").as_uri())


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_download_fills_the_cache_and_is_not_repeated(without_package, serve, monkeypatch):
    serve()
    data = load_dataset("abalone")
    assert data.n_pos == 391
    assert left_in(without_package) == ["x3data.npz", "x5data.npz"]
    monkeypatch.setattr(_zenodo, "URL", "file:///nonexistent")
    assert load_dataset("abalone").n_pos == 391
    assert load_dataset("satimage").n_pos == 626
    assert {row.available for row in list_datasets() if row.name in ("abalone", "satimage")} == {"cache"}


def test_download_that_is_altered_is_refused_and_not_kept(without_package, serve, bundled_folder):
    good = (bundled_folder / "x5data.npz").read_bytes()
    serve(x5data=good[:1000])
    with pytest.raises(DataUnavailable, match="'abalone'"):
        load_dataset("abalone")
    assert left_in(without_package) == []


def test_another_set_that_is_altered_is_not_kept(without_package, serve):
    serve(x3data=b"nonsense")
    load_dataset("abalone")
    assert left_in(without_package) == ["x5data.npz"]


def test_download_that_breaks_off(without_package, serve):
    serve(cut=5000)
    with pytest.raises(DataUnavailable, match=r"'abalone' is not in .* the download failed"):
        load_dataset("abalone")
    assert left_in(without_package) == []


def test_set_that_is_not_in_the_archive(without_package, serve):
    serve()
    with pytest.raises(DataUnavailable, match="'scene'"):
        load_dataset("scene")
    assert left_in(without_package) == []


def test_failure_while_moving_leaves_no_partial_file(without_package, serve, monkeypatch):
    serve()

    def fail(source, target):
        assert os.path.getsize(source) > 0
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(download.os, "replace", fail)
        with pytest.raises(DataUnavailable, match="No space left"):
            load_dataset("abalone")
    assert left_in(without_package) == []
    assert load_dataset("abalone").n_pos == 391


def test_interruption_leaves_nothing(without_package, serve, monkeypatch):
    serve()

    def interrupt(path, entry, advice):
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "read_verified", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_dataset("abalone")
    assert left_in(without_package) == []


def test_offline_sentence_names_set_places_and_way_out(no_places, offline, tmp_path, monkeypatch):
    monkeypatch.setenv("CRCEN_DATA_HOME", str(tmp_path / "environment"))
    with pytest.raises(DataUnavailable) as caught:
        load_dataset("UScrime", data_home=tmp_path / "argument")
    sentence = str(caught.value)
    for part in (
        "'us_crime'",
        f"data_home={tmp_path / 'argument'}",
        f"CRCEN_DATA_HOME={tmp_path / 'environment'}",
        "the package",
        f"the cache {no_places}",
        "download failed",
        "zenodo/x10data.npz",
    ):
        assert part in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_cache_that_cannot_be_written(no_places, serve):
    serve()
    no_places.write_text("a file where the folder should be")
    with pytest.raises(DataUnavailable, match=r"cannot be written .* CRCEN_CACHE"):
        load_dataset("scene")


def test_missing_imbalanced_learn_names_the_extra(no_places, monkeypatch):
    for name in ("imblearn", "imblearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"'scene' is not in .*CRCEN_DATA_HOME.*not installed.*crcen\[baselines\]"):
        load_dataset("scene")


def test_nothing_is_printed_when_nobody_watches(without_package, serve, capfd):
    serve()
    load_dataset("abalone")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_progress_is_shown_on_a_terminal(without_package, serve, monkeypatch):
    serve()
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    load_dataset("abalone")
    assert "Downloading" in terminal.getvalue()

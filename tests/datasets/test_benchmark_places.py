import numpy as np
import pytest

from crcen.datasets import benchmark, find, list_datasets, load_dataset
from crcen.exceptions import DataUnavailable, InvalidParameter


@pytest.fixture
def copy_abalone(bundled_folder, write_npz):
    """Put a good abalone file into a data home."""

    def copy(home):
        return write_npz(home, "x5data.npz", content=(bundled_folder / "x5data.npz").read_bytes())

    return copy


@pytest.fixture
def read_from(monkeypatch):
    """The files that were read, in order."""
    paths = []
    read = benchmark.read_verified

    def recorded(path, entry, advice):
        paths.append(path)
        return read(path, entry, advice)

    monkeypatch.setattr(benchmark, "read_verified", recorded)
    return paths


def test_order_of_places(tmp_path, no_places, copy_abalone, read_from, bundled_folder, monkeypatch):
    argument = copy_abalone(tmp_path / "argument")
    environment = copy_abalone(tmp_path / "environment")
    cache = copy_abalone(no_places)
    monkeypatch.setenv("CRCEN_DATA_HOME", str(tmp_path / "environment"))

    load_dataset("abalone", data_home=tmp_path / "argument")
    load_dataset("abalone", data_home=str(tmp_path / "nowhere"))
    load_dataset("abalone")
    monkeypatch.setenv("CRCEN_DATA_HOME", "")
    load_dataset("abalone")
    monkeypatch.setattr(benchmark.resources, "files", lambda package: tmp_path / "no-package")
    load_dataset("abalone")
    assert read_from == [argument, environment, environment, bundled_folder / "x5data.npz", cache]


def test_bad_file_in_the_first_place_is_not_passed_over(tmp_path, no_places, write_npz):
    write_npz(tmp_path, "x5data.npz", content=b"nonsense")
    with pytest.raises(DataUnavailable, match="'abalone' is refused"):
        load_dataset("abalone", data_home=tmp_path)


def test_papers_name_and_case(no_places):
    assert load_dataset("Abalone").name == load_dataset("ABALONE").name == "abalone"
    with pytest.raises(InvalidParameter, match="'satimage'"):
        load_dataset("satimag")


def test_calls_do_not_share_arrays(no_places):
    first, second = load_dataset("abalone"), load_dataset("abalone")
    first.X[:] = 0
    assert second.X.any()


def test_cache_follows_the_environment(tmp_path, monkeypatch, copy_abalone, read_from):
    monkeypatch.setattr(benchmark.resources, "files", lambda package: tmp_path / "no-package")
    for variable in ("CRCEN_DATA_HOME", "CRCEN_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    in_home = copy_abalone(tmp_path / "home" / ".cache" / "crcen")
    in_xdg = copy_abalone(tmp_path / "xdg" / "crcen")
    in_own = copy_abalone(tmp_path / "own")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    load_dataset("abalone")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_dataset("abalone")
    monkeypatch.setenv("CRCEN_CACHE", str(tmp_path / "own"))
    load_dataset("abalone")
    assert read_from == [in_home, in_xdg, in_own]


def test_home_sign_is_expanded(tmp_path, monkeypatch, no_places, copy_abalone, read_from):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = copy_abalone(tmp_path / "data")
    load_dataset("abalone", data_home="~/data")
    assert read_from == [path]


def test_list_says_where_each_set_is(tmp_path, no_places, write_npz):
    write_npz(tmp_path, "x12data.npz", content=b"")
    write_npz(no_places, "x10data.npz", content=b"")
    rows = {row.name: row for row in list_datasets(data_home=tmp_path)}
    assert len(rows) == 27
    places = {name: rows[name].available for name in ("scene", "abalone", "us_crime", "isolet")}
    assert places == {"scene": "data_home", "abalone": "bundled", "us_crime": "cache", "isolet": "download"}
    assert rows["us_crime"].paper_name == "UScrime"
    assert rows["us_crime"].imbalance_ratio == pytest.approx(1844 / 150)


def test_feature_names(no_places, shared_home):
    assert load_dataset("ecoli", data_home=shared_home).feature_names == tuple(f"x{j}" for j in range(7))
    satimage = load_dataset("satimage")
    assert satimage.feature_names[16:20] == tuple(f"pixel5_band{band}" for band in range(1, 5))
    assert len(set(satimage.feature_names)) == find("satimage").n_features


def test_reading_leaves_the_global_generator_alone(no_places):
    np.random.seed(3)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    load_dataset("abalone")
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002

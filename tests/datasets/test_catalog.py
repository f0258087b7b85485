import re

import numpy as np
import pytest
from imblearn.datasets import _zenodo

from crcen.datasets import catalog, find, load_dataset
from crcen.datasets.catalog import arrays_sha256
from crcen.exceptions import InvalidParameter

ABSENT = "protein_homo"


def test_names_and_numbers_are_imbalanced_learns():
    assert {entry.name: entry.id for entry in catalog()} == dict(_zenodo.MAP_NAME_ID)


@pytest.mark.parametrize("entry", catalog(), ids=lambda entry: entry.name)
def test_shape_and_ratio_are_in_imbalanced_learns_table(entry):
    row = re.search(rf"^ {entry.id} +{entry.name} .* ([\d.]+):1 +([\d,]+) +(\d+)$", _zenodo.__doc__, re.MULTILINE)
    ratio, n_samples, n_features = row.groups()
    assert entry.n_samples == int(n_samples.replace(",", ""))
    assert entry.n_features == int(n_features) == len(entry.feature_names)
    if entry.name != "webpage":  # the table's ratio is from before duplicate rows were removed
        tolerance = 0.05 if "." in ratio else 0.5
        assert entry.imbalance_ratio == pytest.approx(float(ratio), abs=tolerance + 1e-9)


@pytest.mark.parametrize("entry", [e for e in catalog() if e.name != ABSENT], ids=lambda entry: entry.name)
def test_row_agrees_with_the_file(entry, shared_home):
    with np.load(shared_home / "zenodo" / entry.filename, allow_pickle=False) as stored:
        data, label = stored["data"], stored["label"]
    assert data.shape == (entry.n_samples, entry.n_features)
    assert int(np.sum(label == 1)) == entry.n_pos
    assert int(np.sum(label == -1)) == entry.n_neg
    assert arrays_sha256(data, label) == entry.arrays_sha256
    loaded = load_dataset(entry.name, data_home=shared_home)
    np.testing.assert_array_equal(loaded.X, data)
    np.testing.assert_array_equal(loaded.y, label == 1)
    assert ("reconstruction" in loaded.source) == (entry.name == "scene")


def test_the_set_that_was_never_read_has_no_digest():
    assert [entry.name for entry in catalog() if entry.arrays_sha256 is None] == [ABSENT]


def test_papers_table_2():
    table = {entry.paper_name: entry for entry in catalog() if entry.paper_name}
    published = {
        "Abalone": (4177, 10, 9.7),
        "Coil": (9822, 85, 16),
        "Satimage": (6435, 36, 9.3),
        "Scene": (2407, 294, 13),
        "Solar": (1389, 32, 19),
        "UScrime": (1994, 100, 12),
    }
    assert table.keys() == published.keys()
    for name, (n_samples, n_features, ratio) in published.items():
        assert (table[name].n_samples, table[name].n_features) == (n_samples, n_features)
        assert table[name].imbalance_ratio == pytest.approx(ratio, abs=0.5)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("abalone", "abalone"),
        ("ABALONE_19", "abalone_19"),
        ("UScrime", "us_crime"),
        ("uscrime", "us_crime"),
        ("Coil", "coil_2000"),
        ("Solar", "solar_flare_m0"),
        (" Scene ", "scene"),
    ],
)
def test_find(name, found):
    assert find(name).name == found


def test_unknown_name_is_refused_with_the_closest():
    with pytest.raises(InvalidParameter, match=r"Got data set 'abalonee'.*try 'abalone'"):
        find("abalonee")
    with pytest.raises(InvalidParameter, match="list_datasets"):
        find("zzz")
    with pytest.raises(InvalidParameter, match="Got data set 3"):
        find(3)


def test_digest_sees_shape_order_and_every_value():
    data, label = np.arange(6.0).reshape(2, 3), np.array([1, -1])
    digest = arrays_sha256(data, label)
    assert arrays_sha256(np.asfortranarray(data), label) == digest
    assert arrays_sha256(data.reshape(3, 2), label) != digest
    assert arrays_sha256(data[::-1], label) != digest
    assert arrays_sha256(np.where(data == 4, np.nextafter(4, 5), data), label) != digest
    assert arrays_sha256(data, -label) != digest

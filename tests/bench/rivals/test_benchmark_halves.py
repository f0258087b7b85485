"""The two halves: disjoint, all that can be had, and by a rule that knows no result."""

import hashlib

import pytest

import crcen
from bench.rivals.large_tables import LARGE_TABLES
from bench.rivals.plan import all_sets, choose_sets, half_of, packaged_settings


def test_halves_are_disjoint_and_cover_the_benchmark():
    halves = all_sets()
    counts = {half: len(names) for half, names in halves.items()}
    assert counts == {"development": 13, "confirmation": 13, "large-development": 5, "large-confirmation": 4}
    both = {*halves["development"], *halves["confirmation"]}
    left_out = set(packaged_settings()["halves"]["left_out"])
    assert len(both) == 26
    assert both | left_out == {row.name for row in crcen.list_datasets()}
    assert not both & left_out


def test_halves_follow_the_rule_that_the_file_states():
    left_out = packaged_settings()["halves"]["left_out"]
    names = [row.name for row in crcen.list_datasets() if row.name not in left_out]
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    large = sorted(LARGE_TABLES, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    assert all_sets() == {
        "development": tuple(ordered[::2]), "confirmation": tuple(ordered[1::2]),
        "large-development": tuple(large[::2]), "large-confirmation": tuple(large[1::2]),
    }  # fmt: skip


def test_sets_with_rows_in_common_are_on_one_side():
    for one, other in (("abalone", "abalone_19"), ("car_eval_34", "car_eval_4"), ("thyroid_sick", "sick_euthyroid")):
        assert half_of(one) == half_of(other)


def test_every_set_that_can_be_had_loads(data_home):
    listed = {row.name: row.available for row in crcen.list_datasets(data_home)}
    assert {listed[name] for name in choose_sets()} <= {"data_home", "bundled"}


def test_a_choice_of_sets():
    assert choose_sets("development", ["ecoli"]) == ["ecoli"]
    assert len(choose_sets("confirmation")) == 13
    assert len(choose_sets()) == 26
    assert choose_sets("all", ["flights", "ecoli"]) == ["ecoli", "flights"]
    assert "nass_cds" in choose_sets("large-confirmation")
    assert half_of("elsewhere") == "other"
    with pytest.raises(crcen.InvalidParameter, match="satimage is not in the development half: choose from coil_2000"):
        choose_sets("development", ["satimage"])
    with pytest.raises(crcen.InvalidParameter, match="protein_homo is not in the benchmark"):
        choose_sets("all", ["protein_homo"])
    with pytest.raises(
        crcen.InvalidParameter,
        match=r"half must be one of development, confirmation, large-development, .*all: got 'third'",
    ):
        choose_sets("third")

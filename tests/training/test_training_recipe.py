"""Recipe: parameters checked where they are declared, and settled once the rows are known."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from training_reference import binary_job

from crcen import InvalidParameter
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import Recipe


def test_values_come_out_plain():
    recipe = Recipe(hidden=[np.int64(3)], l2=np.float32(0.5), batch_size=np.int32(7), standardize=np.True_)
    assert (recipe.hidden, type(recipe.hidden[0])) == ((3,), int)
    assert [type(value) for value in (recipe.l2, recipe.batch_size, recipe.standardize)] == [float, int, bool]
    assert Recipe(hidden=5).hidden == (5,)
    with pytest.raises(FrozenInstanceError):
        recipe.l2 = 1.0
    assert recipe == replace(recipe)
    assert hash(recipe) == hash(replace(recipe))


@pytest.mark.parametrize(
    ("given", "solver", "encoding", "scales"),
    [
        ({}, "adam", "steps", False),
        ({"column_scales": "auto"}, "adam", "steps", True),
        ({"column_scales": "auto", "standardize": False}, "adam", "steps", False),
        ({"column_scales": "auto", "encoding": "standard"}, "adam", "standard", False),
        ({"hidden": ()}, "lbfgs", "standard", False),
        ({"solver": "lbfgs", "column_scales": "auto"}, "lbfgs", "steps", False),
        ({"hidden": (), "solver": "adam", "encoding": "tree"}, "adam", "tree", False),
    ],
)
def test_what_is_left_to_the_data_is_settled(given, solver, encoding, scales):
    settled = Recipe(**given).settled(500)
    assert (settled.solver, settled.encoding, settled.column_scales) == (solver, encoding, scales)
    assert settled.max_epochs == (30 if solver == "adam" else 500)
    assert settled.settled(10**6) == settled
    assert settled.draws_batches == (solver == "adam")
    assert settled.in_batches().solver == "adam"


def test_what_has_no_meaning_is_refused():
    with pytest.raises(InvalidParameter, match="column_scales needs Adam"):
        Recipe(column_scales=True, solver="lbfgs").settled(100)
    for make in (Recipe, binary_job, replace):  # every other value: `test_model_bad_input`
        with pytest.raises(InvalidParameter, match=r"^l2 must be .*: got -1"):
            make(*{binary_job: [0.5], replace: [Recipe()]}.get(make, []), l2=-1)


def test_a_job_carries_a_settled_recipe():
    recipe = Recipe(hidden=(3,), l2=0.5).settled(100)
    job = TrainingJob.by(recipe, (0.3, 0.7), rows=np.arange(5))
    assert job.settings() == recipe.settings()
    assert job != TrainingJob.by(recipe, (0.3, 0.7), rows=np.arange(5))  # a job is itself alone
    with pytest.raises(InvalidParameter, match="settled first"):
        TrainingJob.by(Recipe(), (0.3, 0.7))


def test_batches_grow_with_the_rows_and_the_rate_by_the_root():
    few, many = (Recipe(hidden=(4,), learning_rate=0.02).settled(n) for n in (16_999, 17_000))
    assert (few.batch_size, few.learning_rate) == (128, 0.02)
    assert many.batch_size == 256
    assert many.learning_rate == pytest.approx(0.02 * 2**0.5)
    assert Recipe(hidden=(4,)).settled(20_000).max_epochs == 4000 // 157  # passes are counted in batches of 128
    named = Recipe(hidden=(4,), batch_size=128).settled(17_000)
    assert (named.batch_size, named.learning_rate) == (128, 0.01)
    assert Recipe(hidden=()).settled(17_000).learning_rate == 0.01
    assert many.settled(17_000) == many


@pytest.mark.parametrize(("n_rows", "epochs"), [(1_000, 30), (17_000, 30), (64_000, 8), (1_000_000, 5)])
def test_default_passes(n_rows, epochs):
    assert Recipe(hidden=(4,)).settled(n_rows).max_epochs == epochs
    assert Recipe(hidden=(4,), max_epochs=12).settled(n_rows).max_epochs == 12
    assert Recipe(hidden=()).settled(n_rows).max_epochs == 500


def test_a_race_on_fewer_rows_takes_steps_as_few_rows_have_them():
    race = Recipe(hidden=(4,), l2=1e-3).settled(20_000).on_fewer_rows(4.0)
    assert (race.batch_size, race.l2) == (128, 4e-3)
    assert race.learning_rate == pytest.approx(0.01)
    small = Recipe(batch_size=32).on_fewer_rows(2.0)
    assert (small.batch_size, small.learning_rate) == (32, 0.01)

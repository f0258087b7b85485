"""Committees in files: the same answers after loading, by NumPy alone, and no forged tree that loops or points away."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from crcen import Budget, CommitteeClassifier, TableClassifier, load, model_info, save
from crcen.files.registry import InvalidState, check_state, state_of
from crcen.models.members.tree_arrays import TreeEnsemble
from example_rows import interaction_rows
from processes import run_python

NEW = interaction_rows(200, seed=3)[0]
NEW[::5, 0] = np.nan


def test_it_answers_after_loading_as_before(with_gaps, tmp_path):
    again = load(save(with_gaps, tmp_path / "m.crcen"))
    for name in ("predict_proba", "decision_function", "predict", "weighted_proba"):
        np.testing.assert_array_equal(getattr(again, name)(NEW), getattr(with_gaps, name)(NEW))
    np.testing.assert_array_equal(again.oof_decision_function_, with_gaps.oof_decision_function_)
    assert list(map(str, again.leaderboard_)) == list(map(str, with_gaps.leaderboard_))
    info = model_info(tmp_path / "m.crcen")
    assert [one["has_missing"] for one in info.columns] == [True, False, False, False, False]
    assert info.weighting["cost_ratio"] == pytest.approx(8.0)


def test_a_loaded_committee_needs_neither_torch_nor_boosting_nor_further_threads(with_gaps, tmp_path):
    """Also in a forked child, which has lost the threads of its parent."""
    save(with_gaps, tmp_path / "m.crcen")
    np.save(tmp_path / "new.npy", NEW)
    script = """
import json, os, sys
import numpy as np
from crcen import load
model, new = load("m.crcen"), np.load("new.npy")
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
p = model.predict_proba(new)
more = (len(os.listdir("/proc/self/task")) if threads else 0) - threads
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, model.predict_proba(new)[:, 1].tobytes())
    os._exit(0)
os.close(write)
forked = b"".join(iter(lambda: os.read(read, 65536), b""))
os.waitpid(child, 0)
loaded = [name for name in ("torch", "sklearn.ensemble", "lightgbm") if name in sys.modules]
print(json.dumps({"p": p[:, 1].tolist(), "forked": np.frombuffer(forked).tolist(), "loaded": loaded, "more": more}))
"""
    said = json.loads(run_python("-W", "ignore::DeprecationWarning", "-c", script, cwd=tmp_path))
    np.testing.assert_array_equal(said["p"], with_gaps.predict_proba(NEW)[:, 1])
    assert (said["forked"], said["loaded"], said["more"]) == (said["p"], [], 0)


# Two trees: a root with two leaves, and a root whose right child has two leaves.
SOUND = TreeEnsemble(
    feature=np.array([1, 0, 0, 0, 0, 2, 0, 0], dtype=np.int32),
    threshold=np.array([0.5, np.inf, np.inf, 0.1, np.inf, -0.3, np.inf, np.inf]),
    missing_left=np.zeros(8, dtype=bool),
    left=np.array([1, 1, 2, 4, 4, 6, 6, 7], dtype=np.int32),
    right=np.array([2, 1, 2, 5, 4, 7, 6, 7], dtype=np.int32),
    value=np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.2, -0.2])[:, None],
    roots=np.array([0, 3], dtype=np.int32),
    output=np.array([0, 1], dtype=np.int32),
    depth=2,
    baseline=np.array([-1.0, 0.0]),
    n_features=3,
)


def changed(name, at, value):
    array = getattr(SOUND, name).copy()
    array[at] = value
    return {name: array}


def test_sound_trees_pass():
    check_state(TreeEnsemble, state_of(SOUND))
    check_state(TreeEnsemble, state_of(replace(SOUND, depth=7)))
    X = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, -1.0]])
    assert SOUND.logits(X).tolist() == [[-1 + 1.0, 0.5], [-1 - 1.0, 0.2]]


@pytest.mark.parametrize(
    "forged",
    [
        changed("left", 5, 3),  # a loop
        changed("right", 3, 3),  # half a leaf
        changed("left", 0, 2),  # a node with two parents or none
        changed("right", 5, 8),  # beyond the end
        changed("left", 0, -1),
        changed("right", 0, 4),  # into another tree
        changed("feature", 0, 3),
        changed("feature", 0, -1),
        changed("roots", 1, 9),
        changed("roots", 1, 0),
        changed("roots", 0, 3),
        changed("roots", 1, 4),
        changed("value", 1, np.nan),
        changed("threshold", 0, np.nan),
        {"depth": 1},  # rows would stop at a node that is no leaf
        {"depth": 10**9},
        {"depth": -1},
        {"n_features": 2},
        {"n_features": 10**12},
        {"baseline": np.array([np.inf, 0.0])},
        {"baseline": np.array([0.0])},  # fewer outputs than the trees have
        changed("output", 1, 2),
        changed("output", 1, -1),
        {"output": SOUND.output[:1]},
        {"roots": np.array([], dtype=np.int32)},
        {"left": SOUND.left.astype(np.float64)},
        {"left": SOUND.left[:5]},
        {"value": SOUND.value[:, 0]},
        {"value": np.column_stack([SOUND.value, SOUND.value])},
        {"value": np.array(1.0)},
        {"missing_left": SOUND.value},
    ],
)
def test_forged_trees_are_refused(forged):
    with pytest.raises(InvalidState):
        check_state(TreeEnsemble, state_of(SOUND) | forged)


def test_it_saves_inside_a_table(rows, tmp_path):
    X, y = rows
    table = pd.DataFrame(X, columns=list("abcde")).assign(kind=np.where(X[:, 0] > 0, "up", "down"))
    table.loc[::4, "b"] = np.nan
    model = TableClassifier(estimator=CommitteeClassifier(Budget(8), members="trees", cv=3, random_state=0)).fit(
        table, y
    )
    assert isinstance(model.estimator_, CommitteeClassifier)
    again = load(save(model, tmp_path / "m.crcen"))
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))

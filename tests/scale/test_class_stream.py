"""Streams of K classes: the same networks, equations and answers as from rows in memory."""

import numpy as np
import pytest

from crcen import CostMatrix, CRCENClassifier, Schedule, fit_stream, key_equation, load, save
from crcen.exceptions import InvalidInput, InvalidParameter
from grouped_settings import grouped

LABELS = np.array(["ash", "birch", "oak"])
WEIGHTS = {"ash": 1.0, "birch": 3.0, "oak": 12.0}
W = np.array(list(WEIGHTS.values()))


def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.8, 0.15, 0.05])
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 2.0]])
    return centres[y] + rng.normal(size=(n, 2)), LABELS[y], rng.uniform(0.5, 2.0, n)


def batches(X, y, *weight, size=400):
    cuts = [slice(start, start + size) for start in range(0, len(X), size)]
    return [tuple(part[cut] for part in (X, y, *weight)) for cut in cuts]


def numbers(y):
    return np.searchsorted(LABELS, y)


def test_a_stream_comes_to_the_softmax_regression_of_rows_in_memory():
    X, y, weight = rows()
    common = {"hidden": (), "l2": 1e-3, "training_weighting": "price", "random_state": 0}
    many = fit_stream(batches(X, y, weight), weighting=WEIGHTS, epochs=60, **grouped(**common, batch_size=128))
    in_memory = {"balance": True, "probability": "shift", "schedule": Schedule(solver="lbfgs"), "max_epochs": 300}
    whole = CRCENClassifier(WEIGHTS, **grouped(**in_memory, **common)).fit(X, y, sample_weight=weight)
    assert many.classes_.tolist() == LABELS.tolist()
    # The last batches of Adam leave noise; the optimum is the same.
    assert np.abs(many.predict_proba(X) - whole.predict_proba(X)).max() < 0.02
    assert np.mean(many.predict(X) == whole.predict(X)) > 0.98
    equation = key_equation(numbers(y), many.weighted_proba(X), many.weighting_, weight)
    assert equation.residual <= 1e-11
    assert many.key_equation_.residual <= 1e-11
    np.testing.assert_allclose(many.key_equation_.flows, equation.flows, rtol=1e-9)
    assert many.key_equation_.pairs.statistic == pytest.approx(equation.pairs.statistic, rel=1e-6)
    assert "stream" in many.key_equation_.rows
    assert set(vars(many)) == set(vars(fit_stream(batches(X, y), weighting=WEIGHTS, epochs=1)))
    np.testing.assert_allclose(whole.weighting_.counts, many.weighting_.counts)


def test_hidden_networks_go_to_files_and_on_from_checkpoints(tmp_path):
    X, y, _ = rows(1200)
    how = {"weighting": WEIGHTS, "hidden": (6,), "n_members": 2, "random_state": 0}
    model = fit_stream(batches(X, y), epochs=2, **how)
    assert model.key_equation_.residual <= 1e-11
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(1200))
    again = load(save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))

    class Interrupted(list):
        passes = 0

        def __iter__(self):
            for number, batch in enumerate(super().__iter__()):
                if number == 2 and self.passes >= 2:
                    raise RuntimeError("pulled the plug")
                yield batch
            self.passes += 1

    path = tmp_path / "fit.npz"
    with pytest.raises(RuntimeError, match="plug"):
        fit_stream(Interrupted(batches(X, y)), epochs=2, checkpoint=path, checkpoint_rows=300, **how)
    resumed = fit_stream(batches(X, y), epochs=2, checkpoint=path, checkpoint_rows=300, **how)
    np.testing.assert_array_equal(resumed.predict_proba(X), model.predict_proba(X))


def test_costs_encodings_and_early_stopping():
    X, y, _ = rows(1500)
    costs = CostMatrix([[0, 1, 2, 0.3], [3, 0, 3, 0.3], [12, 9, 0, 0.3]], labels=LABELS.tolist(), actions=["look"])
    how = {"hidden": (4,), "encoding": "steps", "random_state": 0, "schedule": Schedule(early_stopping=True)}
    model = fit_stream(batches(X, y), weighting=costs, epochs=3, **how)
    chosen = (model.predict_proba(X) @ costs.costs).argmin(axis=1)
    assert (model.predict(X) == np.array([*LABELS, "look"], dtype=object)[chosen]).all()
    assert model.weighting_.weights.tolist() == [1, 1, 1]
    # Two classes with several actions have an output each, too.
    two = CostMatrix([[0, 1, 0.4], [5, 0, 0.4]], actions=["look"])
    pair = fit_stream(batches(X, (y == "oak").astype(int)), weighting=two, epochs=1, hidden=(), random_state=0)
    assert pair.predict_proba(X).shape == (1500, 2)


def test_what_cannot_be_streamed_is_said():
    X, y, _ = rows(300)
    for given, words in (({"pos_label": "oak"}, "pos_label is for two classes"), ({"weighting": 0.9}, "price for two")):
        with pytest.raises(InvalidParameter, match=words):
            fit_stream(batches(X, y), epochs=1, **given)
    with pytest.raises(InvalidInput, match="at most 1000 of them"):
        fit_stream([(np.ones((1200, 1)), np.arange(1200))], epochs=1)

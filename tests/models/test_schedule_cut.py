"""Folds choose the number of epochs of a default fit; checked against networks trained to every epoch by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

from crcen import CRCENClassifier
from crcen.models.classifier import CutSchedule
from crcen.models.fitting import base_seed, member_seed
from crcen.models.search.folds import probability_folds
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob
from grouped_settings import grouped

SMALL = {"hidden": (8,), "l2": 1e-4, "n_members": 2, "random_state": 3, "device": "cpu"}


def noisy_rows(k=2, n=240):
    """Rows that a network soon learns by heart: a fifth of the labels is wrong."""
    return make_classification(n, 12, n_informative=4, n_classes=k, n_clusters_per_class=1, flip_y=0.4, random_state=0)


def test_the_schedule_ends_where_held_out_rows_are_predicted_best():
    X, y = noisy_rows()
    fitted = CRCENClassifier(None, **SMALL).fit(X, y)
    target, weights, seed = y == fitted.pos_label_, np.ones(len(y)), base_seed(3)
    folds, recipe = probability_folds(target, weights, seed, 2), replace(fitted.recipe_, balance=False)
    jobs = [
        TrainingJob.by(recipe, (0.5, 0.5), rows=own, stop_epoch=epoch, seed=member_seed(seed, k), shuffle_seed=seed)
        for epoch, (own, _), k in product(range(1, 31), folds, range(2))
    ]
    networks = iter([one.network for one in train(X, target, jobs, device="cpu")])
    losses = np.zeros(30)
    for epoch, (_, held_out) in product(range(30), folds):
        logit = np.mean([next(networks).logits(X[held_out]) for _ in range(2)], axis=0)
        losses[epoch] += np.mean(np.logaddexp(0.0, np.where(target[held_out], -logit, logit)))
    assert fitted.n_iter_ == 1 + int(np.argmin(losses))
    assert 1 < fitted.n_iter_ < 30
    assert fitted.key_equation_.residual < 1e-12
    X, y = noisy_rows(n=1200)
    models = (CRCENClassifier(None, max_epochs=epochs, **SMALL).fit(X[:300], y[:300]) for epochs in (None, 30))
    cut, whole = (log_loss(y[300:], model.predict_proba(X[300:])) for model in models)
    assert cut < whole  # new rows, too


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_was_asked_for_is_not_cut(n_classes):
    X, y = noisy_rows(n_classes)
    assert CRCENClassifier(None, **SMALL).fit(X, y).n_iter_ < 30
    assert CRCENClassifier(None, max_epochs=9, **SMALL).fit(X, y).n_iter_ == 9
    assert CRCENClassifier(None, **grouped(balance=True, **SMALL)).fit(X, y).n_iter_ == 30  # no folds to choose by
    assert CRCENClassifier(None, **grouped(early_stopping=True, **SMALL)).fit(X, y).recipe_.balance


@pytest.mark.parametrize(
    ("n", "schedule"),
    [
        (300, 20),  # three batches an epoch where a fold has two: as many steps
        (450, 30),  # four where a fold has three: as many epochs
        (780, 29),  # seven where a fold has five: a third more steps, not two fifths
    ],
)
def test_steps_on_all_rows_grow_as_rows_do_unless_they_are_few(n, schedule):
    X, y = noisy_rows(n=n)
    fitted = CRCENClassifier(None, **SMALL).fit(X, y)
    own = {"class_weights": (0.5, 0.5), "stop_epoch": fitted.n_iter_, "shuffle_seed": base_seed(3)}
    jobs = [TrainingJob.by(fitted.recipe_, seed=member_seed(base_seed(3), k), **own) for k in range(2)]
    off = {}
    for epochs in (schedule, 25):
        results = train(X, y == fitted.pos_label_, [replace(job, max_epochs=epochs) for job in jobs], device="cpu")
        logits = np.mean([one.network.logits(X) for one in results], axis=0)
        off[epochs] = float(np.abs(fitted.ensemble_.labels.margin(fitted.ensemble_.mean_logits(X)) - logits).max())
    # As far along the cycle of the rate as the folds were, too.
    assert 1 < fitted.n_iter_ < 20
    assert off[schedule] < 1e-3 < 0.01 < off[25]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_folds_are_trained_once_where_the_whole_schedule_is_best(n_classes, trained, monkeypatch):
    X, y = make_classification(
        400, 6, n_informative=4, n_redundant=0, n_classes=n_classes, n_clusters_per_class=1, class_sep=2, random_state=1
    )
    own = SMALL | {"l2": 1e-2}
    once = CRCENClassifier(None, **own).fit(X, y)
    counts = [len(call.jobs) for call in trained]
    assert [call.jobs[0].last_epoch for call in trained] == [10, 15, 20, 25, 30, 30]
    monkeypatch.setattr("crcen.models.classifier.CutSchedule._are_ready", lambda *_: False)
    twice = CRCENClassifier(None, **own).fit(X, y)
    assert (counts, [len(call.jobs) for call in trained[6:]]) == ([8] * 5 + [2], [8] * 5 + [8 + 2])
    np.testing.assert_allclose(once.predict_proba(X), twice.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_parts_of_the_schedule_give_what_the_whole_of_it_gives(n_classes, trained, monkeypatch):
    X, y = noisy_rows(n_classes)
    monkeypatch.setattr("crcen.models.classifier._STOPS", ((0.1, 0.0), (0.2, 0.0), (0.5, 0.0)))
    in_parts = CRCENClassifier(None, **SMALL).fit(X, y)
    starts = {job.start.epoch if job.start else 0 for job in trained[-1].jobs}
    best = trained[-1].jobs[-1].last_epoch
    before_best = max(epoch for epoch in (0, 3, 6, 15) if epoch < best)
    assert starts == {0, before_best}  # on all rows from the start, on folds from the stop before
    monkeypatch.setattr("crcen.models.classifier._STOPS", ())
    at_once = CRCENClassifier(None, **SMALL).fit(X, y)
    assert in_parts.n_iter_ == at_once.n_iter_
    assert before_best > 0
    np.testing.assert_allclose(in_parts.predict_proba(X), at_once.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize(("curve", "epochs"), [((3, 1, 2), 15), ((4, 2, 1, 3), 30), ((4, 3, 2, 1), 30)])
def test_folds_end_where_held_out_rows_gained_nothing_for_long(curve, epochs, trained, monkeypatch):
    X, y = noisy_rows()
    # A loss by hand, at a few epochs: the lowest one within the first third of fifteen, between, or at the end.
    at = np.interp(np.arange(1, 31), np.linspace(1, 30 if len(curve) > 3 else 8, len(curve)), curve)
    monkeypatch.setattr(CutSchedule, "_curve", lambda self, found: at[np.array(found[0].recorded_epochs) - 1])
    CRCENClassifier(None, **SMALL).fit(X, y)
    assert trained[-2].jobs[0].last_epoch == epochs

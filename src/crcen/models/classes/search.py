"""A search over settings for K classes: its rows, its scores, and what is kept of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score, get_scorer

from crcen.models.classes.ensemble import ClassEnsemble
from crcen.models.classes.fitting import (
    ClassRows,
    assemble_classes,
    fitted_class_map,
    solved_at_class_price,
    trained_at,
)
from crcen.models.classes.probability import solved_shifts
from crcen.models.fitted import Course, write_fit
from crcen.models.fitting import (
    AUTO,
    OUT_OF_FOLD,
    OUT_OF_FOLD_ROWS,
    TRAINING_ROWS,
    member_seed,
    settled_answers,
    usable,
)
from crcen.models.probability import PROBABILITIES
from crcen.models.search.best_settings import Refitted
from crcen.models.search.fold_shift import agreed_shift
from crcen.models.search.grid import Outcome, Setting, resolved_once
from crcen.models.search.run import SearchRun
from crcen.theory.decision import log_sum_exp, softmax
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.price import Price
from crcen.theory.residual_test import JointTest
from crcen.training.jobs import TrainingJob

__all__ = [
    "CLASS_SCORES",
    "ClassSearchRows",
    "ClassSearchRun",
    "class_operating_points",
    "held_out_shifts",
    "keep_classes",
    "keep_out_of_fold",
    "without_tests",
]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_NO_TEST = "errors of folds cancel, so out-of-fold rows have no test"


@dataclass(frozen=True, eq=False)
class ClassSearchRows(ClassRows):
    """What every part of the search reads: rows, their labels, and the folds."""

    y: NDArray[Any]
    folds: list[tuple[Index, Index]]

    @resolved_once
    def resolve(self, weighting: Any, own: Index | None = None) -> Price:
        """A price with the class counts of all rows, or of some."""
        rows = slice(None) if own is None else own
        return self.labels.resolve(weighting, self.labels.counts(self.target[rows], self.weights[rows]))

    def to_price(self, setting: Setting, own: Index | None = None) -> Array:
        """What turns logits under a setting's training weights into those at its price, (K,)."""
        price = self.resolve(setting.weighting, own)
        return price.log_weights - self.resolve(setting.trained_at, own).log_weights


def _row_losses(logits: Array, target: Index) -> Array:
    """−log q of the rows' own classes, for logits (…, n, K)."""
    own = np.take_along_axis(logits, np.broadcast_to(target[:, None], (*logits.shape[:-1], 1)), axis=-1)[..., 0]
    return np.asarray(log_sum_exp(logits, logits.ndim - 1) - own)


def _recalls(logits: Array, target: Index, weights: Array) -> Array:
    right = weights * (logits.argmax(axis=1) == target)
    n_classes = logits.shape[1]
    held = np.bincount(target, weights, n_classes)
    return np.asarray(np.bincount(target, right, n_classes)[held > 0] / held[held > 0])


def _g_mean(logits: Array, target: Index, weights: Array) -> float:
    recalls = _recalls(logits, target, weights)
    return float(np.prod(recalls) ** (1.0 / len(recalls)))


def _f1(logits: Array, target: Index, weights: Array) -> float:
    chosen, n_classes = logits.argmax(axis=1), logits.shape[1]
    right = np.bincount(target, weights * (chosen == target), n_classes)
    sizes = np.bincount(target, weights, n_classes) + np.bincount(chosen, weights, n_classes)
    return float((2.0 * right[sizes > 0] / sizes[sizes > 0]).mean())


def _average_precision(logits: Array, target: Index, weights: Array) -> float:
    q = softmax(logits)
    parts = [average_precision_score(target == k, q[:, k], sample_weight=weights) for k in np.unique(target)]
    return float(np.mean(parts))


# Scores of weighted logits (n, K), class numbers and row weights: means over the classes.
CLASS_SCORES: dict[str, Callable[[Array, Index, Array], float]] = {
    "f1": _f1,
    "g_mean": _g_mean,
    "average_precision": _average_precision,
}


class _HeldOut(ClassifierMixin, BaseEstimator):
    """What a scikit-learn scorer asks of an estimator, answered from the logits of the rows it is asked about."""

    def __init__(self, rows: ClassSearchRows, logits: Array, weighting: Price) -> None:
        self.classes_ = rows.labels.classes
        self._logits, self._weighting = logits, weighting

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: Any) -> Array:
        return self._logits

    def predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.classes_[self._logits.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        return softmax(self._logits - self._weighting.log_weights)


class ClassSearchRun(SearchRun):
    """`SearchRun` on `ClassSearchRows`."""

    def job(self, setting: Setting, own: Index | None, member: int) -> TrainingJob:
        """The job of a setting at its class weights."""
        weights = self.rows.resolve(setting.trained_at, own).weights
        seeds = {"seed": member_seed(self.seed, member), "shuffle_seed": self.seed}
        return TrainingJob.by(setting.recipe, weights, outputs=len(weights), **seeds)

    def _no_logits(self) -> Array:
        return np.full((len(self.rows.X), self.rows.labels.n_classes), np.nan)

    def _losses(self, logits: Array, test: Index, weighting: Any, *, natural: bool) -> Array:
        target, weights = self.rows.target[test], self.rows.weights[test]
        if natural:
            logits = logits - weighting.log_weights
        else:
            weights = weighting.row_weights(target, weights)
        with np.errstate(invalid="ignore"):  # a diverged network's logits are NaN, and so is its loss
            return np.asarray((_row_losses(logits, target) * weights).sum(axis=-1) / weights.sum())

    def _score(self, logits: Array, test: Index, weighting: Any) -> float:
        rows, scoring = self.rows, self.scoring
        if scoring in ("neg_weighted_log_loss", "neg_log_loss"):
            return -float(self._losses(logits, test, weighting, natural=scoring == "neg_log_loss"))
        if isinstance(scoring, str) and scoring in CLASS_SCORES:
            return CLASS_SCORES[scoring](logits, rows.target[test], rows.weights[test])
        scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
        return float(scorer(_HeldOut(rows, logits, weighting), rows.X[test], rows.y[test]))


def keep_classes(model: Any, kept: list[Refitted], rows: ClassSearchRows) -> None:
    """Write the kept settings' networks, and what their out-of-fold logits at the price say, to a search."""
    setting, recipe = kept[0].outcome.setting, kept[0].outcome.setting.recipe
    price = rows.resolve(setting.weighting)
    trained = trained_at(setting.trained_at, price, rows.labels)
    members, *others = (usable(one.results, type(model).__name__) for one in kept)
    oof: Array = np.mean([one.oof for one in kept], axis=0)
    ensemble, logits = assemble_classes(trained, members, rows, *others, is_balanced=recipe.balance)
    ensemble, logits = ensemble.at_price(price), logits + rows.to_price(setting)
    seen: NDArray[np.bool_] = np.asarray(np.isfinite(oof).all(axis=1))
    held_out = oof[seen], rows.target[seen], rows.weights[seen]
    equation = key_equation_of_logits(held_out[1], held_out[0], price, held_out[2])
    model.oof_key_equation_ = replace(without_tests(equation), rows=OUT_OF_FOLD_ROWS)
    balance, probability = settled_answers(model.balance, model.probability)
    leaves_out = not seen[rows.weights > 0].all()
    if model.probability == AUTO and leaves_out:
        probability = PROBABILITIES[0]  # folds over time leave rows out, and a map would learn their drift
    ensemble = ensemble.mapped(fitted_class_map(probability, oof, rows, price))
    model.oof_shift_, solved = np.zeros(rows.labels.n_classes), ensemble
    if balance == OUT_OF_FOLD:
        model.oof_shift_ = held_out_shifts(ensemble.priced(oof)[1], rows, price)
        solved = ensemble.moved(model.oof_shift_)
        key = replace(solved.key_equation(*held_out), rows=OUT_OF_FOLD_ROWS)
        if leaves_out:
            key = replace(without_tests(key), rows=f"{OUT_OF_FOLD_ROWS}, as far as folds agree")
    else:
        if recipe.balance and setting.trained_at is not setting.weighting:
            solved = solved_at_class_price(ensemble, logits, rows.target, rows.weights)
        key = replace(solved.key_equation(logits, rows.target, rows.weights), rows=TRAINING_ROWS)
    write_fit(model, solved, recipe, Course.of(sum(others, members)), key)
    keep_out_of_fold(model, solved, oof, seen)


def keep_out_of_fold(model: Any, ensemble: ClassEnsemble, logits: Array, seen: NDArray[np.bool_]) -> None:
    """Write what an ensemble says of averages held out of fold: decisions and natural probabilities; NaN elsewhere."""
    natural, weighted = ensemble.priced(logits[seen])
    for name, answers in (
        ("oof_decision_function_", ensemble.decision(weighted)),
        ("oof_proba_", ensemble.posterior(natural, weighted)),
    ):
        table = np.full((len(logits), answers.shape[1]), np.nan)
        table[seen] = answers
        setattr(model, name, table)


def without_tests(equation: KeyEquation) -> KeyEquation:
    """The same equations without tests, for rows on which they have no law that is known."""
    tests = (equation.equations, equation.pairs)
    none = [JointTest(np.nan, test.degrees, np.nan, _NO_TEST) for test in tests]
    return replace(equation, equations=none[0], pairs=none[1])


def held_out_shifts(logits: Array, rows: ClassSearchRows, weighting: Price) -> Array:
    """The solve on out-of-fold rows; where folds leave rows out, as those over time do, what they agree on by class."""
    seen, w = np.isfinite(logits).all(axis=1), weighting.weights
    shifts = solved_shifts(rows.target[seen], logits[seen], w, rows.weights[seen])
    if seen.all():
        return shifts
    n_classes, found, variances = len(w), [], []
    for _, test in rows.folds:
        own, target, weights = logits[test], rows.target[test], rows.weights[test]
        if not np.isfinite(own).all() or not np.bincount(target, weights, n_classes).all():
            continue
        found.append(solved_shifts(target, own, w, weights))
        mass = (weights * w[target])[:, None]
        q = softmax(own + found[-1])
        error = (target[:, None] == np.arange(n_classes)) - q
        variances.append((mass**2 * error**2).sum(axis=0) / (mass * q * (1.0 - q)).sum(axis=0) ** 2)
    if len(found) < 2:
        return shifts
    by_fold, spread = np.array(found), np.array(variances)
    return np.array([agreed_shift(shifts[k], by_fold[:, k], spread[:, k]) for k in range(n_classes)])


def class_operating_points(outcomes: list[Outcome], rows: ClassSearchRows) -> list[Array]:
    """Out-of-fold counts (K, actions) of every weighting at its best setting: rows are the truth, columns decisions."""
    best: dict[int, Outcome] = {}
    for outcome in outcomes:
        rival = best.setdefault(outcome.setting.weighting_index, outcome)
        if (not outcome.is_dropped, outcome.merit) > (not rival.is_dropped, rival.merit):
            best[outcome.setting.weighting_index] = outcome
    counts = []
    for outcome in best.values():
        seen = np.isfinite(outcome.logits).all(axis=1)
        price, logits = rows.resolve(outcome.setting.weighting), outcome.logits[seen]
        if price.costs is None:
            chosen, width = logits.argmax(axis=1), rows.labels.n_classes
        else:
            p = softmax(logits - price.log_weights)
            chosen, width = price.costs.choose(p), price.costs.costs.shape[1]
        table = np.zeros((rows.labels.n_classes, width))
        np.add.at(table, (rows.target[seen], chosen), rows.weights[seen])
        counts.append(table)
    return counts

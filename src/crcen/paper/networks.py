"""Compared methods whose networks the training engine fits: CSMLP, moved threshold, resampled rows, pairs of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from crcen._support.extras import need
from crcen.exceptions import InvalidInput
from crcen.models.classifier import CRCENClassifier
from crcen.models.options import Calibration, GroupedParameters, estimator
from crcen.models.validation import check_choice
from crcen.paper import Array, Bools, Index, LabelArray, Seed, Values
from crcen.paper.classical import SignedScoreClassifier, check_least
from crcen.theory.price import CostRatio, Labels, Price
from crcen.training.recipe import Inputs, Schedule

# The paper's network: one standardised hidden layer, trained at the price, balanced on the training rows.
PAPER: Values = {"hidden": (32,), "l2": 1e-4, "n_members": 1, "encoding": "standard", "calibration": "paper"}
_SAMPLERS = {"smote": "SMOTE", "adasyn": "ADASYN"}
_MAX_PAIRS_AT_ONCE = 2**17  # in prediction
_TIE = 1e-9  # decides for an alarm


@estimator
class CSMLPClassifier(CRCENClassifier):
    """Networks trained on class-weighted squared error with targets ±1 (Castro and Braga 2013).

    The output is tanh(o/2), so the squared error on ±1 targets is 4 w (y − q)² with q = σ(o), and decisions,
    probabilities and weights have the meaning of `CRCENClassifier`. Stationarity in the output bias is
    Σ w (y − q) q (1 − q) = 0, not the key equation; ``calibration`` is therefore None by default.

    Parameters, attributes and methods are those of `CRCENClassifier`.
    """

    losses = ("squared_error",)
    _column_scales = False

    hidden: object = (32,)
    l2: float = 1e-4
    n_members: int = 1
    encoding: str | Sequence[str] | Inputs = "standard"
    calibration: str | Calibration | None = None


class MovedThresholdClassifier(CRCENClassifier):
    """Train with plain cross entropy (λ = ½), decide at the price of ``weighting``: positive where p > 1 − λ.

    The control for every claim about weighting: in theory it nearly ties with training at λ, since both estimate the
    same posterior. Parameters and attributes are those of `CRCENClassifier`; ``weighting_`` is the price of the
    decision and ``key_equation_`` that of the plain network.
    """

    is_control = True

    def training_weighting_at(self, price: Price, labels: Labels) -> Price:
        """λ = ½ at every price."""
        return price.replace(None)


@estimator
class ResampledClassifier(SignedScoreClassifier, GroupedParameters):
    """Standardise, oversample the minority class to a ratio of 1:1, train a plain network (λ = ½), decide at ½.

    Neighbours are searched among standardised rows.

    Parameters
    ----------
    sampler : {"smote", "adasyn"}, default="smote"
        imbalanced-learn's sampler with its defaults (extra ``baselines``).
    hidden, l2, max_epochs, schedule, n_members, device, random_state
        As in `CRCENClassifier`.
    """

    sampler: str = field(default="smote", kw_only=False)
    hidden: object = (32,)
    l2: float = 1e-4
    max_epochs: int | None = None
    schedule: Schedule | None = None
    n_members: int = 1
    device: str = "auto"
    random_state: Seed = None

    def resample(self, X: Array, y: LabelArray) -> tuple[Array, LabelArray]:
        """Rows and labels after rebalancing, in the units of X."""
        check_choice(self, "sampler", tuple(_SAMPLERS))
        sampler = getattr(need("imblearn.over_sampling", "baselines"), _SAMPLERS[self.sampler])
        scaler = StandardScaler().fit(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            rows, labels = sampler(random_state=seed).fit_resample(scaler.transform(X), y)
        except (RuntimeError, ValueError) as error:  # too few rows, or ADASYN finds nothing to generate
            raise InvalidInput(f"{self.sampler} cannot rebalance these rows: {error}") from error
        return scaler.inverse_transform(rows), labels

    def _learn(self, X: Array, is_pos: Bools) -> None:
        names = ("hidden", "l2", "max_epochs", "schedule", "n_members", "device", "random_state")
        given = {name: getattr(self, name) for name in names}
        rows, target = self.resample(X, is_pos.astype(np.int64))
        self.network_ = CRCENClassifier(None, **{**PAPER, **given}, pos_label=1).fit(rows, target)

    def _score(self, X: Array) -> Array:
        """Logit among rebalanced rows."""
        return np.asarray(self.network_.decision_function(X))

    def _positive(self, X: Array) -> Array:
        """Probability among rebalanced rows, which is not natural."""
        return np.asarray(self.network_.predict_proba(X)[:, 1])


@dataclass(eq=False, repr=False, kw_only=True)
class PairedClassifier(SignedScoreClassifier):
    """s2s: a network that reads two rows at once and predicts both labels; references vote on new rows.

    The network gets pairs of four kinds (common-common, common-rare, rare-common, rare-rare), drawn without
    repetition, at most ``max_pairs`` of a kind; common pairs are limited to the number of mixed pairs of one order. It
    has one class per kind; the probability that the first row is rare is the sum of two of them. A new row is paired
    with ``n_references`` training rows of each class, which vote.

    ``predict`` is the vote. ``predict_proba`` is the mean probability with the share of rare rows among the pairs
    divided out, a known factor: natural as far as the network's is. ``weighting_`` is the price of ``predict``.

    Chosen here: one joint output for the two labels, 25 references per class, a tied vote alarms.

    Dumpala, Chakraborty, Kopparapu, "A novel data representation for effective learning in class imbalanced
    scenarios", IJCAI 2018.
    """

    hidden: object = (32,)
    l2: float = 1e-4
    max_epochs: int | None = None
    max_pairs: int = 20_000
    n_references: int = 25
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_least(self, max_pairs=1, n_references=1)
        rng = check_random_state(self.random_state)
        first, second, kind = self._pairs(is_pos, rng)
        given = {name: getattr(self, name) for name in ("hidden", "l2", "max_epochs")}
        model = CRCENClassifier(None, **{**PAPER, **given}, random_state=rng.randint(2**31 - 1))
        self.model_ = model.set_params(calibration=None).fit(np.hstack([X[first], X[second]]), kind)
        parts = [np.flatnonzero(is_pos == is_rare) for is_rare in (False, True)]
        drawn = [rng.choice(part, min(len(part), self.n_references), replace=False) for part in parts]
        self.references_ = X[np.concatenate(drawn)]
        # Odds of a rare row among the first rows of pairs, relative to the table.
        self.factor_ = float(is_pos[first].sum() / (~is_pos[first]).sum() * (~is_pos).sum() / is_pos.sum())
        self.weighting_ = self._price(CostRatio(self.factor_), is_pos)

    def _pairs(self, target: Bools, rng: np.random.RandomState) -> tuple[Index, Index, LabelArray]:
        rows = {"0": np.flatnonzero(~target), "1": np.flatnonzero(target)}
        mixed = min(len(rows["0"]) * len(rows["1"]), int(self.max_pairs))
        parts, self.pair_counts_ = [], dict[str, int]()
        for kind in ("00", "01", "10", "11"):
            a, b = rows[kind[0]], rows[kind[1]]
            count = min(len(a) * len(b), mixed if kind == "00" else int(self.max_pairs))
            numbers = _distinct(len(a) * len(b), count, rng)
            parts.append((a[numbers // len(b)], b[numbers % len(b)], np.full(count, kind)))
            self.pair_counts_[kind] = count
        first, second, kinds = (np.concatenate(part) for part in zip(*parts, strict=True))
        return first, second, kinds

    def _votes(self, rows: Array) -> tuple[Array, Array]:
        """Share of references that take a row for rare, and their mean probability of it."""
        is_rare = np.char.startswith(self.model_.classes_.astype(str), "1")
        n_references, found = len(self.references_), []
        step = max(1, _MAX_PAIRS_AT_ONCE // n_references)
        for block in (rows[start : start + step] for start in range(0, len(rows), step)):
            pairs = np.hstack([np.repeat(block, n_references, axis=0), np.tile(self.references_, (len(block), 1))])
            p = self.model_.predict_proba(pairs)[:, is_rare].sum(axis=1).reshape(len(block), n_references)
            found.append([(p >= 0.5).mean(axis=1), p.mean(axis=1)])
        share, mean = np.concatenate(found, axis=1)
        return share, mean

    def _score(self, X: Array) -> Array:
        """Share of votes; a tie alarms."""
        return np.asarray(self._votes(X)[0] - 0.5 + _TIE)

    def _positive(self, X: Array) -> Array:
        """Natural probability: the references' mean with the share of rare rows among the pairs divided out."""
        _, mean = self._votes(X)
        return np.asarray(mean / (mean + self.factor_ * (1.0 - mean)))


def _distinct(n: int, count: int, rng: np.random.RandomState) -> Index:
    """``count`` different numbers below n, without a list of all n."""
    if count * 2 >= n:
        return np.asarray(rng.permutation(n)[:count], dtype=np.int64)
    found = np.unique(rng.randint(0, n, size=count + count // 4 + 16, dtype=np.int64))
    while len(found) < count:
        found = np.unique(np.concatenate([found, rng.randint(0, n, size=count, dtype=np.int64)]))
    return np.asarray(rng.permutation(found)[:count], dtype=np.int64)

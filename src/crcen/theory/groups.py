"""Groups of rows under one model and one price: metrics of each group, and whether groups differ beyond chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.lazy import special, stats
from crcen._support.text import attributes
from crcen.exceptions import InvalidInput
from crcen.theory.intervals import UNKNOWN, Interval, design_effect, share_interval, share_rows
from crcen.theory.key_equation import EquationTest, KeyEquation, judge_equations, key_equation
from crcen.theory.metrics import Quality, ThresholdCurve, measure_quality
from crcen.theory.price import Lam, Price
from crcen.theory.rows import Array, Bools, Clusters, Index, divided

GROUP_ERROR_RATE = 0.01  # probability of calling any of the groups different, over all columns and metrics, if none is
MOST_GROUPS = 20  # values of a column that are shown; the rest are one group
OTHERS, MISSING = "all others", "missing"
FEWEST_ROWS = 5  # with which a group takes part in tests
_CHUNK, _DRAWS_PER_LEVEL = 20_000, 20
_EXCEEDANCES = 50  # Besag and Clifford (1991): enough draws as extreme as the data, and the p-value is known well


@dataclass(frozen=True)
class GroupTest:
    """Whether groups differ in "recall", "precision" or "calibration": below ``level`` they differ beyond chance."""

    figure: str
    p_value: float
    level: float

    @property
    def differs(self) -> bool:
        """Whether groups differ more than chance allows."""
        return self.p_value < self.level


@dataclass(frozen=True, eq=False)
class GroupFigures:
    """One group at the common price."""

    name: str  # the value of the column
    n_rows: int
    quality: Quality  # decisions of its rows and their cost
    expected: Array  # rows of each class that the probabilities expect, (K,)
    positive: int | None = None  # column of the positive class, for two classes
    # for two classes: rows that are positive, that have an alarm, and both, unweighted
    positives: int = 0
    alarms: int = 0
    caught: int = 0
    recall: Interval = UNKNOWN  # for two classes: of the positive one, as the precision
    precision: Interval = UNKNOWN
    alarm_share: Interval = UNKNOWN  # for two classes: share of rows with an alarm
    found_over_expected: Interval = UNKNOWN  # for two classes: positives over the sum of probabilities
    # The key equation at the training price, with the group's own counts (tested for K > 2); None with one class only.
    equation: KeyEquation | None = None
    # For two classes: the price at which the group would have the recall of all rows, alarms and cost per 1,000 rows at
    # that price (cost at the common price); NaN if no price gives it.
    equal_recall: Mapping[str, float] = field(default_factory=dict)

    @property
    def cost_per_1000(self) -> float:
        """Cost of the decisions per 1,000 rows; in false alarms for two classes."""
        return 1000.0 * self.quality.cost.value

    @property
    def equation_sentence(self) -> str:
        """For K > 2: the result of the joint test with its p-value, and the class that deviates most."""
        test = self.equation
        if not isinstance(test, EquationTest) or math.isnan(test.p_value):
            return "not tested"
        worst = max((one for one in test.classes if one.is_tested), key=lambda one: abs(one.z))
        verdict = {"holds": "hold", "does not hold": "do not hold"}[test.verdict]
        return f"{verdict} (p {max(test.p_value, 1e-15):.2g}; {worst.label} {worst.z:+.1f})"

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        keys = ("label", "rows", "decided", "recall", "precision")
        by_class = [
            {**{key: one[key] for key in keys}, "expected": expected}
            for one, expected in zip(self.quality.by_class, self.expected.tolist(), strict=True)
        ]
        cost = self.quality.cost.to_dict()
        both = {"group": self.name, "rows": self.n_rows, "cost_per_row": cost, "classes": by_class}
        if isinstance(self.equation, EquationTest):
            equations = {key: self.equation.to_dict()[key] for key in ("p_value", "verdict", "classes")}
            return {**both, "expected_cost_per_row": self.quality.expected_cost, "key_equations": equations}
        sides = {"left": None, "right": None}
        return {
            **both,
            **attributes(self, "positives alarms caught alarm_share recall precision found_over_expected"),
            "key_equation": sides if self.equation is None else attributes(self.equation, "left=lhs right=rhs"),
            **attributes(self, "cost_per_1000 equal_recall"),
        }


@dataclass(frozen=True)
class GroupComparison:
    """The groups of one column, the largest first."""

    column: str
    groups: tuple[GroupFigures, ...]
    tests: tuple[GroupTest, ...]  # of recall, precision and calibration
    overall_recall: float = math.nan  # for two classes: that of all rows

    @property
    def differing(self) -> tuple[str, ...]:
        """The metrics in which groups differ beyond chance."""
        return tuple(test.figure for test in self.tests if test.differs)

    @property
    def sentence(self) -> str:
        """The outcome in words: for each metric the class in which groups differ most."""
        if not self.differing:
            return f"no difference between groups of {self.column} beyond chance"
        return f"groups of {self.column} differ in {', '.join(map(self._part, self.differing))}"

    def _part(self, figure: str) -> str:
        tables = np.array([one.quality.counts.table for one in self.groups])
        expected, found = np.array([one.expected for one in self.groups]), tables.sum(axis=2)
        n_classes, positive = found.shape[1], self.groups[0].positive
        right = np.diagonal(tables, axis1=1, axis2=2)[:, :n_classes]
        by_figure = {
            "recall": (right, found),
            "precision": (right, tables.sum(axis=1)[:, :n_classes]),
            "calibration": (found, expected),
        }
        hits, sizes = by_figure[figure]
        has_large = positive is None or (sizes[:, positive] >= FEWEST_ROWS).sum() > 1
        known = sizes >= FEWEST_ROWS if has_large else sizes > 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(known, hits / sizes, np.nan)
            pooled = np.where(known, hits, 0.0).sum(axis=0) / np.where(known, sizes, 0.0).sum(axis=0)
            spread = sizes * (share - pooled) ** 2
            spread = spread / (pooled if figure == "calibration" else pooled * (1.0 - pooled))
        k = positive if positive is not None else int(np.argmax(np.nan_to_num(np.nansum(spread, axis=0), posinf=0.0)))
        low, high = int(np.nanargmin(share[:, k])), int(np.nanargmax(share[:, k]))
        what = "positives" if positive is not None else f"rows of {self.groups[0].quality.labels[k]}"
        of = "" if positive is not None else f" of {self.groups[0].quality.labels[k]}"
        word = f"{what} found over expected" if figure == "calibration" else f"{figure}{of}"
        ends = (f"{share[i, k]:.2f} ({self.groups[i].name})" for i in (low, high))
        return f"{word} from {' to '.join(ends)}"

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        tests = [attributes(one, "figure p_value level differs") for one in self.tests]
        return {**attributes(self, "column groups"), "tests": tests, "sentence": self.sentence}

    def lines(self) -> list[str]:
        """A table as text."""
        width = max(len("group"), *(len(one.name) for one in self.groups))
        if self.groups[0].positive is None:
            head = f"{'rows':>9}  {'cost per row':<30} {'expected':>9}  key equations (p; most off, z)"
            return [f"  {'group':<{width}} {head}"] + [
                f"  {one.name:<{width}} {one.n_rows:>9,}  {_digits(one.quality.cost, '.4g'):<30} "
                f"{one.quality.expected_cost:>9.4g}  {one.equation_sentence}"
                for one in self.groups
            ]
        head = f"{'rows':>9} {'positive':>8} {'alarms':>8}  {'recall':<20} {'precision':<20} {'found/expected':<20}"
        lines = [f"  {'group':<{width}} {head} {'key equation':<15} {'cost/1,000':>10} {'price, equal recall':>20}"]
        for one in self.groups:
            equation = "–" if one.equation is None else f"{one.equation.lhs:.3g} : {one.equation.rhs:.3g}"
            price = "–" if math.isnan(one.equal_recall["price"]) else f"{one.equal_recall['price']:.3g}"
            intervals = (_digits(one.recall), _digits(one.precision), _digits(one.found_over_expected))
            lines.append(
                f"  {one.name:<{width}} {one.n_rows:>9,} {one.positives:>8,} {one.alarms:>8,}  "
                f"{' '.join(f'{text:<20}' for text in intervals)} {equation:<15} {one.cost_per_1000:>10.3g} {price:>20}"
            )
        return lines


def _digits(one: Interval, digits: str = ".2f") -> str:
    return "–" if math.isnan(one.value) else f"{one.value:{digits}} ({one.low:{digits}} to {one.high:{digits}})"


def compare_groups(
    columns: Mapping[str, ArrayLike],  # the group of every row, text or None
    y: Index,
    p: Array,
    price: Price,
    trained: Price,
    sample_weight: Array | None = None,
    *,
    labels: Sequence[object] | None = None,
    noise: float = 1.0,  # that of `crcen.theory.limits.fitted_model_noise`
    clusters: Clusters | None = None,
    error_rate: float = GROUP_ERROR_RATE,  # over all columns and metrics
    no_test: str = "",  # why the key equations of groups cannot be tested
) -> tuple[GroupComparison, ...]:
    """Metrics of groups and their tests, column by column, from class numbers and natural probabilities (n, K)."""
    costs = price.cost_matrix
    names = tuple(labels or costs.labels or range(p.shape[1]))
    costs = costs.for_classes(names)
    chosen, positive = price.decide(p), price.positive
    w = np.ones(len(y)) if sample_weight is None else sample_weight / sample_weight.mean()
    used = w > 0.0 if positive is None else np.ones(len(y), dtype=np.bool_)
    overall = math.nan
    if positive is not None and w[y == positive].any():
        overall = float(np.average(chosen[y == positive] == positive, weights=w[y == positive]))
    level = error_rate / (3 * max(len(columns), 1))
    together = None if clusters is None else np.unique(clusters, return_inverse=True)[1].ravel()

    def figures(name: str, rows: Bools) -> GroupFigures:
        own, chances, sizes = y[rows], p[rows], w[rows]
        related = None if together is None else together[rows]
        quality, expected = measure_quality(own, chances, costs, sizes, related), np.asarray(sizes @ chances)
        if positive is None:
            test = judge_equations(own, chances, trained, names, sizes, noise=noise, clusters=related)
            return GroupFigures(name, len(own), quality, expected, equation=test.untested(no_test))
        is_pos, alarms, chance = own == positive, chosen[rows] == positive, chances[:, positive]
        equation = None
        if sizes[is_pos].any() and sizes[~is_pos].any():
            own_weights = None if (sizes == 1.0).all() else sizes
            equation = key_equation(is_pos, trained.weighted(chance), Lam(trained.lam), own_weights)
        counts = (int(is_pos.sum()), int(alarms.sum()), int((is_pos & alarms).sum()))
        shares = (quality.recalls[positive], quality.precisions[positive], share_interval(alarms, sizes, related))
        ratio = _found_over_expected(is_pos, chance, sizes, noise, related)
        at_recall = _at_recall(is_pos, chance, sizes, overall, price.cost_ratio)
        return GroupFigures(name, len(own), quality, expected, positive, *counts, *shares, ratio, equation, at_recall)

    found = []
    right, classes = chosen == y, range(p.shape[1]) if positive is None else [positive]
    shares = {"recall": [y == k for k in classes], "precision": [chosen == k for k in classes]}
    for column, values in columns.items():
        group_names, which = named_groups(column, values, len(y))
        members = [(name, (which == i) & used) for i, name in enumerate(group_names)]
        groups = tuple(figures(name, rows) for name, rows in members if w[rows].any())
        own, own_w = None if together is None else together[used], None if sample_weight is None else w[used]
        p_values = {
            figure: shares_alike(which[used], [one[used] for one in strata], right[used], own_w, level, own)
            for figure, strata in shares.items()
        }
        p_values["calibration"] = _residuals_alike(which[used], y[used], p[used], w[used], noise, level, own)
        tests = tuple(GroupTest(figure, p_value, level) for figure, p_value in p_values.items())
        found.append(GroupComparison(column, groups, tests, overall))
    return tuple(found)


def named_groups(column: str, values: ArrayLike, n: int) -> tuple[list[str], Index]:
    """Names of groups, the largest first, and the group of each row."""
    cells = np.asarray(values, dtype=object)
    if cells.shape != (n,):
        raise InvalidInput(f"groups of {column} must have one value for each of the {n} rows, got {cells.shape}.")
    texts = np.array([MISSING if cell is None or cell != cell else str(cell) for cell in cells], dtype=object)
    names, which, counts = np.unique(texts.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = [str(name) for name in names[order]]
    if len(shown) > MOST_GROUPS:
        shown = [*shown[: MOST_GROUPS - 1], OTHERS]
    return shown, np.minimum(np.argsort(order)[which], MOST_GROUPS - 1)


def _found_over_expected(is_pos: Bools, chance: Array, w: Array, noise: float, clusters: Index | None) -> Interval:
    """Score interval of the factor r that makes rows positive with r times their chance: Wilson's for equal chances."""
    expected, found = float((w * chance).sum()), float(w[is_pos].sum())
    if expected <= 0.0:
        return UNKNOWN
    ratio = found / expected
    factor = 1.96**2 * noise * design_effect(is_pos - ratio * chance, w, clusters)
    first, second = float((w**2 * chance).sum()), float((w**2 * chance**2).sum())
    # The limits solve (found - r expected)² = factor (r first - r² second).
    spread = max(expected * first - found * second, 0.0)  # below 0 if r times a chance is above 1
    centre = found * expected + 0.5 * factor * first
    half = math.sqrt(0.25 * (factor * first) ** 2 + factor * found * spread)
    scale = expected**2 + factor * second
    return Interval(ratio, max(centre - half, 0.0) / scale, (centre + half) / scale)


def _at_recall(is_pos: Bools, chance: Array, w: Array, recall: float, cost_ratio: float) -> dict[str, float]:
    """Price, alarms and cost per 1,000 rows at which a group has at least this recall, with the fewest alarms."""
    curve = ThresholdCurve(is_pos, chance)
    tp, fp = curve.totals(w)
    cut = min(int(np.searchsorted(tp, recall * tp[-1] - 1e-9)), len(tp) - 1)
    threshold, per_1000 = float(curve.score[cut]), 1000.0 / float(w.sum())
    if not recall * tp[-1] > 1e-9 or not 0.0 < threshold < 1.0:
        per_1000 = threshold = math.nan
    alarms, cost = tp[cut] + fp[cut], cost_ratio * (tp[-1] - tp[cut]) + fp[cut]
    per_row = {"alarms_per_1000": float(per_1000 * alarms), "cost_per_1000": float(per_1000 * cost)}
    return {"price": (1.0 - threshold) / threshold, **per_row}


def shares_alike(
    which: Index, strata: Sequence[Bools], hit: Bools, w: Array | None, level: float, clusters: Index | None
) -> float:
    """p-value, to be compared with ``level``, of equal shares of hits of all groups in each stratum of rows."""
    if w is None and clusters is None:  # given the number of hits of each stratum, in groups with enough rows
        n_groups = int(which.max()) + 1
        counts = [[np.bincount(which[rows], minlength=n_groups) for rows in (one & hit, one)] for one in strata]
        known = [(hits[sizes >= FEWEST_ROWS], sizes[sizes >= FEWEST_ROWS]) for hits, sizes in counts]
        return shares_p_value(known, level)
    rows = (which, hit, np.ones(len(hit)) if w is None else w, np.zeros_like(which) if clusters is None else clusters)
    cells = [found for one in strata if (found := _differences(one, *rows)) is not None]
    if not cells:
        return math.nan
    if clusters is not None:
        return sign_flip_p_value(np.concatenate(cells, axis=1), level)
    return float(special.chdtrc(sum(one.shape[1] - 1 for one in cells), sum(float((one**2).sum()) for one in cells)))


def _differences(rows: Bools, which: Index, hit: Bools, w: Array, clusters: Index) -> Array | None:
    """What each cluster adds to differences of shares, (clusters, groups), whose squares sum to χ²; None if unknown."""
    n_groups, w = int(which.max()) + 1, np.where(rows, w, 0.0)
    weight, squares = (np.bincount(which, one) for one in (w, w**2))
    known = weight**2 >= FEWEST_ROWS * np.maximum(squares, np.finfo(float).tiny)
    # Equally weighted rows of the same variance: by the rows of the group, at most as those of all groups have it.
    relative = w * np.where(known, divided(weight, squares, 0.0), 0.0)[which]
    used = relative > 0.0
    sizes = np.where(known, divided(weight**2, squares, 0.0), 0.0)
    sizes *= share_rows(hit[used], relative[used]) / relative.sum() if used.any() else 0.0
    share = np.where(known, divided(np.bincount(which, w * hit), weight, 0.0), 0.0)
    for i in np.flatnonzero((share > 0.0) & (share < 1.0)):
        sizes[i] = min(sizes[i], share_rows(hit[used & (which == i)], w[used & (which == i)]))
    pooled = float(sizes @ share / max(sizes.sum(), 1.0))
    if known.sum() < 2 or not 0.0 < pooled < 1.0:
        return None
    each = np.bincount(clusters * n_groups + which, w * (hit - pooled), (int(clusters.max()) + 1) * n_groups)
    scale = np.sqrt(sizes[known]) / weight[known] / math.sqrt(pooled * (1.0 - pooled))
    scaled = each.reshape(-1, n_groups)[:, known] * scale
    common = np.sqrt(sizes[known] / sizes.sum())  # what all groups share is not a difference
    return np.asarray(scaled - np.outer(scaled @ common, common))


def _residuals_alike(
    which: Index, y: Index, p: Array, w: Array, noise: float, level: float, clusters: Index | None
) -> float:
    """χ² of the groups' residuals of all classes about one common error in log-odds; with clusters by their signs."""
    n_classes, parts, cells = p.shape[1], [], []
    information, toward = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
    degrees = 0
    for i in range(int(which.max()) + 1):
        rows = which == i
        own, size = p[rows], w[rows]
        residual = np.bincount(y[rows], size, n_classes) - size @ own
        slope, variance = (np.diag(one @ own) - (own * one[:, None]).T @ own for one in (size, size**2))
        known = np.flatnonzero(np.diag(variance) * noise >= FEWEST_ROWS)
        if not len(known):
            continue
        values, vectors = np.linalg.eigh(variance[np.ix_(known, known)] * noise)
        kept = values > 1e-10 * values.max()  # the residuals of all classes sum to zero
        # Residual and slope in units in which the residual has variance 1 in each direction.
        unit = (vectors[:, kept] / np.sqrt(values[kept])).T
        parts.append((unit @ residual[known], unit @ slope[known]))
        if clusters is not None:
            each = size[:, None] * (np.eye(n_classes)[y[rows]] - own)
            sums = [np.bincount(clusters[rows], each[:, k], clusters.max() + 1) for k in known]
            cells.append(np.stack(sums, axis=1) @ unit.T)
        information += parts[-1][1].T @ parts[-1][1]
        toward += parts[-1][1].T @ parts[-1][0]
        degrees += int(kept.sum())
    if len(parts) < 2:
        return math.nan
    common, _, rank, _ = np.linalg.lstsq(information, toward, rcond=1e-10)
    degrees -= int(rank)
    if degrees < 1:
        return math.nan
    if cells:
        slopes = np.concatenate([slope for _, slope in parts])
        together = np.concatenate(cells, axis=1)
        together -= together @ slopes @ np.linalg.pinv(slopes, rcond=1e-5)
        return sign_flip_p_value(together, level, noise)
    return float(special.chdtrc(degrees, sum(float(((r - s @ common) ** 2).sum()) for r, s in parts)))


def shares_p_value(strata: Sequence[tuple[Index, Index]], level: float, seed: int = 0) -> float:
    """P-value of equal shares in all groups, given (hits, sizes) by group in each stratum; NaN if none can differ.

    Exact for two groups in one stratum, otherwise by at least 20/level draws, fewer after 50 as extreme as the data.
    """
    known = []
    for hits, sizes in strata:
        total, n = int(hits.sum()), int(sizes.sum())
        if (sizes > 0).sum() >= 2 and 0 < total < n:
            known.append((hits[sizes > 0], sizes[sizes > 0], total, n))
    if not known:
        return math.nan
    if len(known) == 1 and len(known[0][1]) == 2:
        (first, _), (size, _), total, n = *map(tuple, known[0][:2]), *known[0][2:]
        support = np.arange(max(0, total - (n - size)), min(size, total) + 1)
        far = np.abs(support - total * size / n)
        chance = stats.hypergeom.pmf(support, n, total, size)
        return min(1.0, float(chance[far >= abs(first - total * size / n) * (1.0 - 1e-9)].sum()))
    observed = sum(_distance(hits, sizes, total, n) for hits, sizes, total, n in known)
    rng, beyond, drawn, most = np.random.default_rng(seed), 0, 0, max(math.ceil(_DRAWS_PER_LEVEL / level), 9_999)
    while drawn < most and beyond < _EXCEEDANCES:
        size = min(_CHUNK, most - drawn)
        far = np.zeros(size)
        for _, sizes, total, n in known:
            far += _distance(rng.multivariate_hypergeometric(sizes, total, size, method="marginals"), sizes, total, n)
        extreme = np.flatnonzero(far >= observed * (1.0 - 1e-9))
        if beyond + len(extreme) >= _EXCEEDANCES:
            return _EXCEEDANCES / (drawn + int(extreme[_EXCEEDANCES - beyond - 1]) + 1.0)
        beyond, drawn = beyond + len(extreme), drawn + size
    return (beyond + 1.0) / (drawn + 1.0)


def _distance(hits: NDArray[np.integer], sizes: Index, total: int, n: int) -> Array:
    expected = sizes * (total / n)
    return np.asarray(((hits - expected) ** 2 / (expected * (1.0 - total / n))).sum(axis=-1))


def sign_flip_p_value(cells: Array, level: float, noise: float = 1.0) -> float:
    """P-value of mean zero of a sum of ``cells`` (clusters, d): its length among those with random signs.

    Valid for any dependence in clusters (Hemerik, Goeman and Finos 2020). ``noise`` multiplies the clusters' variance.
    """
    cells = cells[np.abs(cells).max(axis=1, initial=0.0) > 0.0]
    if not cells.size:
        return math.nan
    fitted = max(1.0 - cells.shape[1] / len(cells), 0.0)  # residuals about shares that were estimated vary less
    observed, rng = fitted * (1.0 - 1e-9) * float((cells.sum(axis=0) ** 2).sum()) / noise, np.random.default_rng(0)
    beyond, drawn, most = 0, 0, max(math.ceil(_DRAWS_PER_LEVEL / level), 9_999)
    while drawn < most and beyond < _EXCEEDANCES:
        size = min(max(2_000_000 // len(cells), 1), most - drawn)
        signs = 2.0 * rng.integers(0, 2, (size, len(cells)), dtype=np.int8) - 1.0
        beyond, drawn = beyond + int((((signs @ cells) ** 2).sum(axis=1) >= observed).sum()), drawn + size
    return (beyond + 1.0) / (drawn + 1.0)

"""The registry of checks: each is one function with its code, subject, limit and advice, for K ≥ 2 classes."""

import math
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
from scipy.special import kolmogorov

from crcen._support.text import count_text, listed, plural
from crcen.report.evidence import Evidence, kept_by, log_odds, permutation_importance, pure_cells, single_columns
from crcen.report.quality import ReliabilityGroup, reliability, reliability_groups, steps_of
from crcen.tables.leaks import suspects
from crcen.tables.profile import trained_with_weights
from crcen.theory import limits
from crcen.theory.expense import outside_chance
from crcen.theory.groups import GROUP_ERROR_RATE
from crcen.theory.intervals import design_effect, share_rows, shifted_probabilities
from crcen.theory.metrics import ThresholdCurve, log_losses, roc_area
from crcen.theory.price import Price
from crcen.theory.residual_test import residual_effect, student_p_value
from crcen.theory.rows import Array, Bools, Clusters, Estimator, effective_rows
from crcen.theory.selective import LabelSelection, label_selection

# Whether a check warns (None: it cannot be made), and what was measured or why it cannot.
Outcome = tuple[bool | None, str]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    code: str  # stable: CRC001 and so on
    title: str  # what would be wrong
    status: str  # "warning", "passed", or "unknown" if the check cannot be made
    measured: str  # or why it is unknown
    limit: str  # when it is a warning
    advice: str
    tested: str

    @property
    def sentence(self) -> str:
        """The outcome in words: what is wrong and what to try, what was tested and measured, or why it was not."""
        if self.status == "warning":
            return f"{self.title}: {self.measured}. {self.advice}"
        outcome = "" if self.status == "passed" else "not tested; "
        return f"{self.tested[0].upper()}{self.tested[1:]}: {outcome}{self.measured}."

    def to_dict(self) -> dict[str, str]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "sentence": self.sentence}


# Checks by code; None if a check does not apply.
CHECKS: dict[str, Callable[[Evidence], Finding | None]] = {}
COLUMN_CHECKS: set[str] = set()  # of those that need every column of the rows


def check(
    code: str, *, tested: str, title: str, limit: str, advice: str, needs_columns: bool = False
) -> Callable[[Callable[[Evidence], Outcome | None]], Callable[[Evidence], Finding | None]]:
    """Register a function that returns whether to warn and what was measured, or None if it does not apply."""

    def register(run: Callable[[Evidence], Outcome | None]) -> Callable[[Evidence], Finding | None]:
        def found(evidence: Evidence) -> Finding | None:
            outcome = None if needs_columns and evidence.X is None else run(evidence)
            if outcome is None:
                return None
            warns, measured = outcome
            status = "unknown" if warns is None else "warning" if warns else "passed"
            return Finding(code, title, status, measured, limit, "" if warns is None else advice, tested)

        CHECKS[code] = found
        COLUMN_CHECKS.update([code] * needs_columns)
        return found

    return register


def examine(evidence: Evidence, codes: Collection[str] | None = None) -> tuple[Finding, ...]:
    """Run the checks that apply, or those with these codes, in the order of their codes."""
    found = [run(evidence) for code, run in sorted(CHECKS.items()) if codes is None or code in codes]
    return tuple(one for one in found if one is not None)


def _chance(p: float) -> str:
    """A probability under chance in words."""
    if p >= 0.1:
        return "consistent with chance"
    if p < 1e-9:
        return "by chance in fewer than 1 of 1,000,000,000 cases"
    return f"by chance in 1 of {float(f'{1.0 / p:.2g}'):,.0f} cases"


_TOO_FEW = f"fewer than {limits.FEWEST_OF_A_CLASS} rows of all classes but one are too few to tell"


def _can_be_ranked(evidence: Evidence) -> bool:
    """Whether two classes have enough rows: a few rows that happen to lie right would look like a leak."""
    return int((evidence.counts >= limits.FEWEST_OF_A_CLASS).sum()) > 1


@check(
    "CRC001",
    tested="number of rows of each class",
    title="Too few rows of a class",
    limit=f"fewer than {limits.FEWEST_POSITIVES}: the interval of recall is then at least about ±14 percentage points",
    advice="Collect more labelled rows of it, or evaluate the model by cross-validation over all rows; use the "
    "intervals, not the single values.",
)
def too_few_rows(evidence: Evidence) -> Outcome:
    """Compare the rows of each evaluated class here and in training with the limit."""
    here, trained = evidence.counts, evidence.training_rows
    least = np.minimum(here, trained) if evidence.has_price else here
    few = [k for k in evidence.evaluated if least[k] < limits.FEWEST_POSITIVES]
    shown = few or [min(evidence.evaluated, key=lambda k: least[k])]
    before = [f", {count_text(trained[k])} in training" if evidence.has_price else "" for k in range(len(here))]
    return bool(few), listed([f"{here[k]:,} rows of class {evidence.names[k]} here{before[k]}" for k in shown], 4)


@check(
    "CRC002",
    tested="expense of steps between prices",
    title="Expense outside its bracket",
    limit=f"a step between two round prices more than {limits.EXPENSE_Z:g} standard deviations outside; for several "
    f"classes, any step that doubles a class weight, in fewer than {limits.EXPENSE_P:g} of cases by chance",
    advice="The cost of a catch differs from what the probabilities imply. Fit again with more rows or a stronger "
    "penalty, or correct the probabilities on new labelled rows, before relying on a price.",
)
def expense_outside(evidence: Evidence) -> Outcome:
    """Compare what one more catch costs with the bracket of its prices, or of the weights of each class."""
    if evidence.no_test:
        return None, evidence.no_test
    steps, has_positive = evidence.of(steps_of), evidence.has_positive
    judged = [(z, step) for step in steps if not math.isnan(z := step.deviation(evidence.noise, evidence.effect))]
    if not judged:
        return None, f"too few decisions change with the {'price' if has_positive else 'weights'} to tell"
    z, step = max(judged, key=lambda one: abs(one[0]))
    if z == 0.0:
        of = "between round prices" if has_positive else "of class weights"
        return False, f"{plural(len(judged), 'step')} {of} can be judged, and none lies outside its bracket"
    low, high, compared = step.bracket_low, step.bracket_high, f"{plural(len(judged), 'step')} compared"
    if has_positive:
        is_outside, where, unit = abs(z) > limits.EXPENSE_Z, f"between the prices {low:g} and {high:g}", "false alarms"
    else:  # many steps of several classes
        chance = outside_chance([one for one, _ in judged])
        is_outside, compared, unit = chance < limits.EXPENSE_P, f"{_chance(chance)}, {compared}", "in weight of others"
        where = f"where the weight of {evidence.names[step.number]} rises from {low:.3g} to {high:.3g},"
    found = f"a catch cost {step.expense:.3g} {unit}"
    found = found if step.catches > 0.0 else f"{count_text(step.delta_fp)} {unit} were added and no catch"
    return is_outside, f"{where} {found}; that is {abs(z):.1f} standard deviations outside the bracket ({compared})"


@check(
    "CRC003",
    tested="calibration of the probabilities",
    title="Probabilities are not calibrated",
    limit=f"a group off by a factor of {limits.CALIBRATION_RATIO:g} or more, by chance in fewer than 1 of "
    f"{1.0 / limits.CALIBRATION_P:,.0f} cases",
    advice="Recalibrate on rows that were not used for training; check that these rows have the class shares of daily "
    "use. A stronger penalty or an average of more networks often helps.",
)
def not_calibrated(evidence: Evidence) -> Outcome:
    """Compare observed with expected rows of a class in groups of rows with similar probabilities."""
    if evidence.no_test:
        return None, evidence.no_test
    groups = [(k, group) for k, own in evidence.of(reliability).items() for group in own]
    large = [one for one in groups if _is_large(one[1])]
    judged = [(group_chance(group, len(groups), evidence.noise), k, group) for k, group in large or groups]
    p_value, k, worst = min(judged, key=lambda one: one[0])
    said = _chance(p_value) if large else "the largest difference, and a small one"
    return bool(large) and p_value < limits.CALIBRATION_P, (
        f"at a mean probability of {worst.mean_p:.3g}, {worst.observed_positives:.4g} rows of class "
        f"{evidence.names[k]} were observed and {worst.expected_positives:.4g} expected ({said}, {len(groups)} groups "
        "compared)"
    )


def group_chance(group: ReliabilityGroup, n_groups: int, noise: float) -> float:
    """Probability of such a group by chance among all groups, by the rarer of the class and the rest."""
    # No z, which is 30 for 1 row where 0.001 were expected.
    found, expected = group.observed_positives, group.expected_positives
    variance = ((found - expected) / group.z) ** 2 if group.z else 0.0
    if group.mean_p > 0.5:
        size = expected / group.mean_p
        found, expected = size - found, size - expected
    return min(1.0, n_groups * student_p_value(limits.count_chance(found, expected, variance, noise), group.degrees))


def _is_large(group: ReliabilityGroup) -> bool:
    low, high = sorted((group.observed_positives, group.expected_positives))
    return high > limits.CALIBRATION_RATIO * low


_TINY = 1e-12  # probabilities nearer to 0 and 1 have no log-odds worth comparing


@check(
    "CRC004",
    tested="class shares and scores against training",
    title="These rows differ from the training rows",
    limit=f"a share of a class off by a factor of {limits.SHARE_RATIO:g} and {limits.SHARE_Z:g} standard deviations; "
    f"scores whose distributions are {limits.SCORE_DISTANCE:g} apart (Kolmogorov–Smirnov), beyond model uncertainty; "
    f"or labels of two classes that fit as if {100 * limits.SWAPPED_SHARE:g} % or more (above one half for a model "
    f"without out-of-fold rows) were swapped, by chance in fewer than {limits.SWAPPED_P:g} of cases of all pairs",
    advice="Find out what changed: another time, place, selection or measurement. If only the shares moved, state the "
    "share of daily use (crcen predict --prevalence); otherwise train again with recent rows. If labels fit as if "
    "swapped, check how they were joined to the rows.",
)
def unlike_training(evidence: Evidence) -> Outcome:
    """Compare shares of classes and distributions of scores with those of training."""
    swapped = _swapped(evidence)
    if not evidence.has_price or evidence.no_test:
        no_test = evidence.no_test or "the model keeps no record of its training rows"
        return (True, swapped) if swapped else (None, no_test)
    shares = evidence.totals / evidence.totals.sum()
    judged = limits.judge_class_shares(evidence.y, evidence.weights, evidence.trained_counts, evidence.clusters)
    tests = {k: judged[k] for k in evidence.evaluated}
    moved = [k for k, test in tests.items() if test.has_moved]
    shown = moved or [max(tests, key=lambda k: abs(tests[k].z))]
    where = getattr(evidence.model, "shares_are_", "in training")
    said = [
        f"class {evidence.names[k]} has {100 * tests[k].share:.3g} % of rows here and {100 * tests[k].before:.3g} % "
        f"{where} ({abs(tests[k].z):.1f} standard deviations)"
        for k in shown
    ]
    measured = listed(said, 4)
    if moved and _is_calibrated_at(evidence, shares):
        measured += "; with the probabilities shifted to these shares they are calibrated: only the prevalence differs"
    distances = _score_distances(evidence)
    is_off = any(d >= limits.SCORE_DISTANCE and p * len(distances) < limits.SCORE_P for _, d, p in distances)
    if distances:
        k, distance, _ = max(distances, key=lambda one: one[1])
        of = "" if evidence.has_positive else f" of {evidence.names[k]}"
        apart = "from those of training rows, after allowing for model uncertainty"
        measured += f"; scores{of} differ by {distance:.3f} {apart}"
    return bool(moved) or is_off or bool(swapped), f"{swapped}; {measured}" if swapped else measured


# Rows of a pair of classes whose labels are compared, and of many pairs together.
_FEWEST_OF_A_PAIR, _MOST_OF_A_PAIR, _MOST_OF_PAIRS = 400, 2000, 200_000


def _swapped(evidence: Evidence) -> str:
    """A question if the labels of two classes fit as if many of them were swapped; empty otherwise."""
    pairs = list(combinations(np.flatnonzero(evidence.counts >= limits.FEWEST_OF_A_CLASS).tolist(), 2))
    most = max(_FEWEST_OF_A_PAIR, min(_MOST_OF_A_PAIR, _MOST_OF_PAIRS // max(len(pairs), 1)))
    effect = residual_effect(evidence.y, evidence.proba, evidence.weights, evidence.clusters)
    # A model fitted without rows held out may be overconfident, so that honest labels contradict it often.
    is_calibrated = evidence.is_out_of_fold or kept_by(evidence.model, "oof_key_equation_") is not None
    rng, found = np.random.default_rng(evidence.random_state), []
    for first, second in pairs:
        rows = rng.permutation(np.flatnonzero((evidence.y == first) | (evidence.y == second)))[:most]
        own, odds = evidence.weights[rows], np.log(np.maximum(evidence.proba[rows][:, [first, second]], _TINY))
        weights = own * (effective_rows(own) / own.sum() / effect) if own.any() else own
        pair = (evidence.y[rows] == second, odds[:, 1] - odds[:, 0], weights)
        share, p_value = limits.swapped_share(*pair, is_calibrated=is_calibrated)
        found.append((min(1.0, len(pairs) * p_value), share, evidence.names[first], evidence.names[second]))
    p_value, share, *names = min(found, default=(1.0, 0.0, "", ""))
    if not p_value < limits.SWAPPED_P:
        return ""
    fit = f"fit the model as if {100.0 * share:.0f} % of them were swapped"
    return f"the labels of {names[0]} and {names[1]} {fit} ({_chance(p_value)}): are the labels swapped?"


def _is_calibrated_at(evidence: Evidence, shares: Array) -> bool:
    """Whether probabilities shifted to these class shares are calibrated here."""
    trained = evidence.trained_counts / evidence.trained_counts.sum()
    p = shifted_probabilities(evidence.proba, trained, np.maximum(shares, 1e-9))
    rows = (None, evidence.weights, evidence.clusters)
    groups = [one for k in evidence.evaluated for one in reliability_groups(evidence.y == k, p[:, k], *rows)]
    large = [one for one in groups if _is_large(one)]
    return all(group_chance(one, len(groups), evidence.noise) >= limits.CALIBRATION_P for one in large)


def _score_distances(evidence: Evidence) -> list[tuple[int, float, float]]:
    """Distance of the scores of each evaluated class from those of training, and its p-value, if any are kept."""
    kept, profile = kept_by(evidence.model, "oof_proba_"), getattr(evidence.model, "profile_", None)
    out_of_fold = np.empty((0, len(evidence.names))) if kept is None else np.asarray(kept, dtype=np.float64)
    out_of_fold = out_of_fold[np.isfinite(out_of_fold).all(axis=1)]
    if evidence.is_audited or not len(out_of_fold):  # audited rows were chosen by their scores
        return []
    found, error, weights, counts = [], evidence.training_error, evidence.price.weights, evidence.trained_counts
    # Scores of training rows are kept without their weights.
    own = np.ones(evidence.n_rows) if trained_with_weights(evidence.model) else evidence.weights
    for number, k in enumerate(evidence.evaluated):
        others = np.arange(len(counts)) != k
        rest = float(counts[others].sum())
        shift = math.log(weights[k] * rest / (weights[others] @ counts[others]))
        spread = math.sqrt(limits.UNMEASURED / counts.min())  # the log-odds of a class against the mean of the others
        slack = limits.SCORE_ERRORS * (spread if error is None else error.sizes[k] / np.mean(others))
        # Far beyond price and share no decision changes: two models are sure of the same rows by different log-odds.
        limit = limits.SCORE_RANGE + abs(shift + math.log(counts[k] / rest))
        before, here = [log_odds(out_of_fold[:, k], _TINY)], log_odds(evidence.proba[:, k], _TINY) + shift
        # Folds train on fewer rows, and a model has learnt its own: rows that differ from both have changed.
        if profile is not None and profile.scores and not evidence.is_out_of_fold:
            before.append(np.reshape(profile.scores[0], (-1, len(evidence.evaluated)))[:, number])
        ends = (-limit, limit)
        distances = [
            score_distance(np.clip(one + shift, *ends), np.clip(here, *ends), slack, evidence.clusters, own)
            for one in before
        ]
        found.append((k, *min(distances)))
    return found


def score_distance(
    old: Array, here: Array, slack: float = 0, clusters: Clusters | None = None, weights: Array | float = 1.0
) -> tuple[float, float]:
    """Lévy distance at a fixed width, with the p-value of Kolmogorov and Smirnov; scores within a slack are equal.

    Two models can give many of the same rows one score each, with values that are close but not equal.
    """
    weights, order, before = np.broadcast_to(weights, here.shape), np.argsort(here), np.sort(old)
    mass, at = np.append(0.0, np.cumsum(weights[order])), here[order]

    there, own = (before, np.arange(old.size + 1) / old.size), (at, mass / mass[-1])  # places, and shares up to them

    def above(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[float, float]:
        ends = ((one, one[0]), (other, one[0] + slack))
        high, low = (shares[np.searchsorted(places, end, side="right")] for (places, shares), end in ends)
        return float((high - low).max()), float(one[0][(high - low).argmax()])

    distance, place = max(above(there, own), above(own, there), (0.0, 0.0))
    n_here = share_rows(here <= place, weights)
    size = old.size * n_here / (old.size + n_here) / design_effect((here <= place).astype(float), weights, clusters)
    return distance, float(kolmogorov(distance * (math.sqrt(size) + 0.12 + 0.11 / math.sqrt(size))))


def _areas(evidence: Evidence, rows: Bools | slice = slice(None)) -> dict[int, float]:
    """Area under the ROC curve of each evaluated class with enough rows."""
    y, weights = evidence.y[rows], evidence.weights[rows]
    found = {}
    for k in evidence.evaluated:
        own = y == k
        if min(int(own.sum()), int((~own).sum())) >= limits.FEWEST_OF_A_CLASS:
            found[k] = roc_area(*ThresholdCurve(own, evidence.proba[rows, k]).totals(weights))
    return found


@check(
    "CRC005",
    tested="separation of the classes",
    title="The classes are separated almost perfectly",
    limit=f"an area of {limits.NEAR_PERFECT_AREA:g} or more, for every class",
    advice="This may be a leak: look for a column that is filled in after the event, for rows that occur in "
    "training too, and for labels made by a rule. With no errors most prices give the same decisions.",
)
def separable(evidence: Evidence) -> Outcome:
    """Compare the area of the class that is hardest to separate with the limit."""
    areas = _areas(evidence)
    if not areas or not _can_be_ranked(evidence):
        return None, _TOO_FEW
    worst = min(areas, key=lambda k: areas[k])
    area = areas[worst]
    whose = "" if evidence.has_positive else f" of {evidence.names[worst]}, the class with the most errors,"
    errors = "" if area < 1.0 else ": every pair of rows is in order"
    return area >= limits.NEAR_PERFECT_AREA, f"the area under the ROC curve{whose} is {area:.5g}{errors}"


@check(
    "CRC006",
    tested="leaks in single columns (ROC area; values, ranges and missing cells of one class only)",
    title="A column reveals the outcome",
    limit=f"an area of {limits.LEAK_AREA:g} or more for one column alone (for several classes: "
    f"{limits.NEAR_PERFECT_AREA:g}, between every two classes, or for one class if no other column reaches "
    f"{limits.LEAK_AREA:g}); or cells that occur for one class only, by an exact binomial test corrected for all "
    "comparisons; here, or in the training rows of crcen fit",
    advice="Ask when that column is known. If it is written after or because of the event, or is an identifier in the "
    "order of the outcome, drop it (crcen fit --drop) and train again.",
    needs_columns=True,
)
def leaks(evidence: Evidence) -> Outcome | None:
    """Look for columns that separate classes alone, and for cells that occur for one class only."""
    found, trained = evidence.of(single_columns), list(getattr(evidence.model, "leaks_", ()))
    if not trained and (not found or not _can_be_ranked(evidence)):
        return None, _TOO_FEW if evidence.columns else "the model has no column"
    suspected, pure = suspects(found, evidence.labels.n_classes), evidence.of(pure_cells)
    areas = [
        f"“{one.name}”" + ("" if evidence.has_positive else f" for {evidence.names[k]}") + f" ({area:.4f})"
        for one, k, area in suspected
    ]
    said = [f"suspects by area under the ROC curve: {listed(areas, 5)}"] if areas else []
    said += [f"cells of one class only: {listed([one.sentence for one in pure], 5)}"] if pure else []
    named = {*(one.name for one, _, _ in suspected), *(" and ".join(one.columns) for one in pure)}
    before = [f"“{name}”" for name in trained if name not in named]
    said += [f"crcen fit warned about {listed(before, 5)} on the training rows"] if before else []
    if said:
        return True, "; ".join(said)
    best = max(found, key=lambda one: one.area)
    largest = f"of {len(found)} columns “{best.name}” has the largest area under the ROC curve ({best.area:.4f})"
    return False, f"{largest}; none has cells of one class only"


@check(
    "CRC007",
    tested="key equation",
    title="The key equation fails on these rows",
    limit=f"a p-value below {limits.EQUATION_P:g} (joint test for several classes)",
    advice="The model did not keep its balance on new rows: it is overfitted, or the rows come from another "
    "distribution. Use a stronger penalty, solve the bias on held-out rows, or see CRC004.",
)
def equation_off(evidence: Evidence) -> Outcome:
    """Test the key equations of rows that the model did not see."""
    if evidence.is_out_of_fold:
        return None, "the output bias was solved on these out-of-fold rows"
    test = evidence.equations
    if test.z_reason:
        return None, test.z_reason
    if evidence.has_positive:
        return test.verdict == "does not hold", str(test)
    worst = max((one for one in test.classes if one.is_tested), key=lambda one: abs(one.z))
    more = "more" if worst.z > 0.0 else "less"
    return test.verdict == "does not hold", (
        f"{test.equations}; most off is {worst.label}, {more} frequent than stated (z = {worst.z:.1f})"
    )


@check(
    "CRC008",
    tested="training rows or their copies among these rows",
    title="These look like the training rows",
    limit="more rows of training than chance allows where rows repeat, copies that depend on the label, or a key "
    "equation that holds to the last digits",
    advice="Evaluate the model on rows that were not used in training (crcen split sets some aside), and remove copies "
    "before the split; nothing here is evidence otherwise.",
)
def training_rows(evidence: Evidence) -> Outcome:
    """Compare these rows with the fingerprint of the training rows."""
    if evidence.is_out_of_fold:
        return False, "every row was scored by models that did not see it, although the saved model did"
    is_balanced = "balanced" in evidence.equations.z_reason
    residual = f"residual {evidence.equations.residual:.2g}"
    if is_balanced:
        residual += ", which only a balance solve on these rows gives"
    known = evidence.recognition
    if known is not None:
        is_seen = True if is_balanced else {"seen": True, "new": False}.get(known.status)
        return is_seen, f"{known.measured}{_without_copies(evidence) if is_seen else ''}; {residual}"
    kept = getattr(getattr(evidence.model, "key_equation_", None), "rows", "")
    if not is_balanced and (not evidence.has_positive or "out-of-fold" in kept):
        # Solved on rows it had not seen, such a model leaves no trace on those it has.
        return None, f"the model keeps no hashes of its training rows; {residual}"
    return is_balanced, residual


def _without_copies(evidence: Evidence) -> str:
    """Metrics of the rows that were certainly not in training, next to those of all rows."""
    is_new = None if evidence.recognition is None else evidence.recognition.is_new
    if is_new is None or is_new.all() or len(is_new) != evidence.n_rows:
        return ""
    own = evidence.of(_areas), _areas(evidence, is_new)
    both = [k for k in own[0] if k in own[1]]
    if not both:
        return ""
    losses = log_losses(evidence.y, evidence.proba)
    loss = [float(np.average(losses[rows], weights=evidence.weights[rows])) for rows in (slice(None), is_new)]
    area = [float(np.mean([one[k] for k in both])) for one in own]
    found = ""
    if evidence.has_positive:
        alarms = evidence.price.decide(evidence.p)
        recalls = [float(alarms[evidence.target & rows].mean()) for rows in (np.ones_like(is_new), is_new)]
        found = f"recall {recalls[1]:.3g} (all rows {recalls[0]:.3g}), "
    found += f"area under the ROC curve {area[1]:.3g} (all rows {area[0]:.3g}), "
    found += f"log loss {loss[1]:.3g} (all rows {loss[0]:.3g})"
    return f"; on the {int(is_new.sum()):,} rows that were certainly not in training: {found}"


# A few columns carry the model if they have this share of the importance and the log loss fell by this share.
_FEW, _FEW_SHARE, _FEW_SKILL = 5, 0.95, 0.95
_SEVERAL_SHARE = 0.95  # with more classes one column often separates the easy ones: it must have this share


@check(
    "CRC009",
    tested="dependence on a few columns",
    title="The model depends on one or a few columns",
    limit=f"one column with {100 * limits.DOMINANT_SHARE:g} % or more ({100 * _SEVERAL_SHARE:g} % for several classes) "
    f"of what all columns add, where the log loss is {100 * limits.DOMINANT_SKILL:g} % or more below that without "
    f"columns; also up to {_FEW} columns, at most half of all (a quarter for several classes), with "
    f"{100 * _FEW_SHARE:g} %, where it is {100 * _FEW_SKILL:g} % or more below",
    advice="Ask when these columns are known, and fit again without them (crcen fit --drop): if the rest is far "
    "weaker, they may be written after or because of the event.",
    needs_columns=True,
)
def dominated(evidence: Evidence) -> Outcome | None:
    """Compare the importance of the first columns with that of all."""
    if not _can_be_ranked(evidence):
        return None, _TOO_FEW
    if len(evidence.columns) < 2:
        return None, "the model has one column"
    found = evidence.of(permutation_importance)
    shares, loss, base = found.shares, found.log_loss, found.base_log_loss
    skill = 1.0 - loss / base
    where = f"{100 * skill:.0f} % below" if skill >= 0.0 else "above"
    n_few, is_binary = 1, evidence.labels.n_classes == 2
    most = limits.DOMINANT_SHARE if is_binary else _SEVERAL_SHARE
    warns = bool(shares[0] >= most and loss <= (1.0 - limits.DOMINANT_SKILL) * base)
    if not warns and skill >= _FEW_SKILL:
        enough = int(np.searchsorted(np.cumsum(shares), _FEW_SHARE - 1e-12)) + 1
        # Several classes are often easy to separate by a few of a few columns.
        if enough <= min(_FEW, len(shares) // (2 if is_binary else 4)):
            warns, n_few = True, enough
    first = [f"“{one.name}”" for one in found.columns[:n_few]]
    names = first[0] if n_few == 1 else f"{', '.join(first[:-1])} and {first[-1]}"
    verb, added = "has" if n_few == 1 else "have", sum(one.increase for one in found.columns[:n_few])
    return warns, (
        f"{names} {verb} {100 * shares[:n_few].sum():.0f} % of the importance of all {len(shares)} columns (shuffling "
        f"adds {added:.3g} to the log loss), and the log loss is {where} that without columns"
    )


@check(
    "CRC010",
    tested="differences between groups",
    title="Groups differ at one price",
    limit=f"a difference that chance gives in fewer than {GROUP_ERROR_RATE:g} of cases, over all groups, columns and "
    "figures together",
    advice="See the panel of groups: where rows found over expected differ, or the key equation fails for a group, "
    "the probabilities are wrong for it, and columns or rows for it are lacking. Otherwise the groups differ in how "
    "rare or how hard to find positives are, and one price finds them at the same cost each. Other prices for groups "
    "are a choice that people must make and may have to answer for; none is made here.",
)
def groups_differ(evidence: Evidence) -> Outcome | None:
    """Report the comparison of groups, if some were named."""
    if not evidence.groups:
        return None
    differing = [one for one in evidence.groups if one.differing]
    if not any(not math.isnan(test.p_value) for one in evidence.groups for test in one.tests):
        return None, "too few rows of all groups but one to tell"
    return bool(differing), "; ".join(one.sentence for one in differing or evidence.groups)


# Labels depend on the score if their absence has a smaller p-value and shares of labels differ by this factor.
_SELECTION_P, _SELECTION_RATIO = 1e-6, 1.5


@check(
    "CRC011",
    tested="labels missing depending on the score",
    title="Labels depend on the model",
    limit=f"labels for alarms only; or scores of rows with and without a label that differ by chance in fewer than 1 "
    f"of {1.0 / _SELECTION_P:,.0f} cases, with shares of labels that differ by a factor of {_SELECTION_RATIO:g} "
    "between alarms and other rows",
    advice="Check some rows without an alarm, drawn with known probabilities (crcen predict --audit), and evaluate "
    "the model with --audited: recall and cost of all rows can then be estimated.",
)
def selected_labels(evidence: Evidence) -> Outcome | None:
    """Compare the scores of rows with and without a label."""
    one = evidence.selection
    if one is None:
        return None
    n_rows = evidence.n_rows + one.n_missing
    if evidence.is_audited:
        return False, f"{evidence.n_rows:,} of {n_rows:,} rows have a label, drawn with known probabilities"
    if not one.n_missing:
        return False, f"all {n_rows:,} rows have a label"
    shares = f"{_share(one.alarm_share)} of the alarms and {_share(one.quiet_share)} of the other rows have one"
    shares = f"{one.n_missing:,} of {n_rows:,} rows have no label: {shares}"
    if one.is_alarms_only:
        return True, f"only alarms have labels: recall cannot be estimated from these rows; {shares}"
    if math.isnan(one.p_value) or math.isnan(one.alarm_share) or math.isnan(one.quiet_share):
        return None, shares
    low, high = sorted((one.alarm_share, one.quiet_share))
    depends = one.p_value < _SELECTION_P and high > _SELECTION_RATIO * low
    said = "labels are missing depending on the score" if depends else f"equal scores: {_chance(one.p_value)}"
    return depends, f"{said}; {shares}"


def selection_of(model: Estimator, labelled: Bools, proba: Array) -> LabelSelection:
    """Compare rows with and without a label; of several classes, all but the most frequent are alarms."""
    price: Price = model.weighting_
    quiet = int(np.argmax(price.counts)) if price.positive is None else 1 - price.positive
    return label_selection(labelled, 1.0 - proba[:, quiet], price.decide(proba) != quiet)


def _share(value: float) -> str:
    return "none" if math.isnan(value) else f"{100.0 * value:.3g} %"

"""One answer to one question: the limit of every verdict, and the verdicts that fits, evaluations and reports share.

A limit stands here once. The limits are set for few false alarms: a verdict that cries wolf is soon read by nobody.
"""

import math
from dataclasses import dataclass

from crcen.theory.expense import ExpenseStep
from crcen.theory.key_equation import KeyEquation
from crcen.theory.price import Price
from crcen.theory.residual_test import FEWEST_TO_TEST, TrainingError, two_sided
from crcen.theory.shown import Shown

__all__ = [
    "ARRIVAL_TURNS",
    "ARRIVAL_Z",
    "CALIBRATION_P",
    "CALIBRATION_RATIO",
    "DOMINANT_SHARE",
    "DOMINANT_SKILL",
    "DRIFT_SCALE",
    "EQUATION_P",
    "EXPENSE_P",
    "EXPENSE_Z",
    "FALSE_ALARM_RATE",
    "FEWEST_OF_A_CLASS",
    "FEWEST_POSITIVES",
    "LEAK_AREA",
    "LEAST_INFORMATION",
    "LEAST_VARIANCE",
    "NEAR_PERFECT_AREA",
    "SCORE_DISTANCE",
    "SCORE_P",
    "SCORE_RANGE",
    "SHARE_RATIO",
    "SHARE_Z",
    "UNLIKE_DISTANCE",
    "UNLIKE_P",
    "UNLIKE_RATIO",
    "UNLIKE_SCALE",
    "UNLIKE_SHARE",
    "WATCHED_COLUMNS_PART",
    "EquationTest",
    "ShareTest",
    "StepTest",
    "fitted_model_noise",
    "fitted_noise",
    "is_dominated",
    "is_nearly_separated",
    "count_chance",
    "judge_class_share",
    "judge_equation",
    "judge_share",
    "judge_step",
    "score_slack",
]

# Fewer positive rows leave recall uncertain by more than 14 percentage points.
FEWEST_POSITIVES = 50
# Fewer rows of a class are too few for any test or ranking: one lucky row decides.
FEWEST_OF_A_CLASS = 10
# An expense so many standard deviations outside its bracket is not chance.
EXPENSE_Z = 3.0
# With several classes there are many steps: any of them is so far outside in fewer than so many cases.
EXPENSE_P = 0.003
# Below this variance of the number of catches a normal distribution says nothing about them.
LEAST_VARIANCE = 5.0
# A group of probabilities is off by this factor, by chance in fewer than so many cases.
CALIBRATION_P, CALIBRATION_RATIO = 0.0001, 1.25
# The share of positives moved by so many standard deviations and this factor.
SHARE_Z, SHARE_RATIO = 4.0, 1.25
# Distributions of scores this far apart (Kolmogorov and Smirnov), by chance in fewer than so many cases.
SCORE_DISTANCE, SCORE_P = 0.1, 0.001
# Further in log-odds than this beyond the price and the share of positives, scores are as good as equal.
SCORE_RANGE = 4.0
# Scores out of fold are of models that saw other rows than the whole one: moved by so many times its own error they are
# still the same.
_SCORE_ERRORS = 2.0
# Sides of a key equation whose logarithms differ by less look alike.
_SIDES_ALIKE = 0.2
_SMALLEST_P = 1e-15
# The key equation fails where chance explains the residual in fewer than so many cases.
EQUATION_P = 0.001
# The variance of a fitted model's mean log-odds, over what that many labels alone would leave, where not measured.
_UNMEASURED = 2.0
# Area under the ROC curve from which a column alone, and the whole model, are too good to be true unasked.
LEAK_AREA, NEAR_PERFECT_AREA = 0.99, 0.999
# One column's part in what all columns add when shuffled, where the log loss fell by this part of what it is without
# columns. Both: a strong honest column (a balance for default, age for death) has the first and not the second.
DOMINANT_SHARE, DOMINANT_SKILL = 0.8, 0.6
# A monitor alarms falsely with this chance over the whole life of a stream, and looks for drifts of this size in
# log-odds first. Where columns are watched too, this part of the chance is theirs.
FALSE_ALARM_RATE, DRIFT_SCALE, WATCHED_COLUMNS_PART = 0.05, 0.3, 0.5
# It compares from this much information on, about as many expected positives: with fewer a score is not nearly normal.
LEAST_INFORMATION = 10.0
# Labels arrive by what they are where a piece of the stream is off by so many standard deviations, so many times far
# too many beside far too few: a change of the world turns once, not again and again.
ARRIVAL_Z, ARRIVAL_TURNS = 3.0, 3
# New rows are unlike training rows, by chance in fewer than so many cases over all comparisons, where it matters: by
# shares of rows, the distance of two distributions, the ratio of two alarm shares, and of two scales.
UNLIKE_P = 0.001
UNLIKE_SHARE, UNLIKE_DISTANCE, UNLIKE_RATIO, UNLIKE_SCALE = 0.01, SCORE_DISTANCE, 1.5, 5.0


def fitted_model_noise(n_new: float, weighting: Price) -> float:
    """By how much a residual on new rows may vary more than under the true posterior: 1 + 2 · n_new / n_train.

    For models whose own error was not measured (`crcen.training_error`, which `crcen fit` keeps in the file). The
    error of a logistic regression makes it 1 + n_new / n_train; searched networks and trees were seen between 1.5 and
    2.6 times that.

    Parameters
    ----------
    n_new : float
        New rows, or the sum of their weights.
    weighting : Price
        With the counts of the training rows.
    """
    return fitted_noise(n_new, weighting.n_pos + weighting.n_neg)


def fitted_noise(n_new: float, n_train: float) -> float:
    """The same from the numbers of new rows and of training rows."""
    return 1.0 + _UNMEASURED * n_new / n_train


def score_slack(weighting: Price, error: TrainingError | None) -> float:
    """Log-odds by which scores of the same rows differ between models of one kind that were trained on others.

    Parameters
    ----------
    weighting : Price
        With the counts of the training rows.
    error : TrainingError or None
        The model's own error, where it was measured; else what so many labels leave, as in `fitted_model_noise`.
    """
    own = math.sqrt(_UNMEASURED / min(weighting.n_pos, weighting.n_neg)) if error is None else error.size
    return _SCORE_ERRORS * own


@dataclass(frozen=True)
class EquationTest(Shown):
    """The key equation on new rows, tested.

    Parameters
    ----------
    equation : KeyEquation
        Both sides and Z, as if probabilities were known without error.
    z, p_value : float
        The same for a fitted model, with its own error in the variance. NaN where there is no test.
    reason : str
        Why there is no test; empty where there is one.
    """

    equation: KeyEquation
    z: float
    p_value: float
    reason: str = ""

    def __str__(self) -> str:
        both = f"left side {self.equation.lhs:.4g}, right side {self.equation.rhs:.4g}"
        if self.reason:
            return f"{both} ({self.reason})"
        p_value = f"{self.p_value:.2g}" if self.p_value >= _SMALLEST_P else f"below {_SMALLEST_P:g}"
        return f"{both}; z = {self.z:.2f}, p-value {p_value}{self._direction}"

    @property
    def _direction(self) -> str:
        """Where the equation does not hold: what is off, also where both sides look alike."""
        if self.verdict != "does not hold":
            return ""
        one = self.equation
        said = f": {'more' if self.z > 0.0 else 'fewer'} positives than the probabilities say"
        if 0.0 < one.lhs < math.inf and math.log(one.lhs / one.rhs) * math.copysign(1.0, self.z) < _SIDES_ALIKE:
            said += ", which the sides do not show, as they take the share of positives from training"
        return said

    @property
    def verdict(self) -> str:
        """What the test says: "holds", "does not hold" (p-value below `EQUATION_P`) or "not tested"."""
        if math.isnan(self.p_value):
            return "not tested"
        return "does not hold" if self.p_value < EQUATION_P else "holds"

    def to_dict(self) -> dict[str, float | str | None]:
        """Plain values, ready for JSON; None for what does not exist."""
        one = self.equation
        values = {"left": one.lhs, "right": one.rhs, "residual": one.residual, "z": self.z, "p_value": self.p_value}
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        return {**known, "verdict": self.verdict}


def judge_equation(equation: KeyEquation, noise: float = 1.0, n_rarer: float = math.inf) -> EquationTest:
    """Test the key equation, allowing for the model's own error.

    Parameters
    ----------
    equation : KeyEquation
        On rows that the model did not see.
    noise : float
        As `fitted_model_noise` gives it; 1 for the true posterior, or where the equation was tested with a measured
        `TrainingError`.
    n_rarer : float
        Rows of the rarer class; with fewer than `FEWEST_TO_TEST` the residual is far from normal.
    """
    if equation.z_reason:
        return EquationTest(equation, math.nan, math.nan, equation.z_reason)
    if n_rarer < FEWEST_TO_TEST:
        few = f"fewer than {FEWEST_TO_TEST} rows of a class are too few to test"
        return EquationTest(equation, math.nan, math.nan, few)
    if noise == 1.0:
        return EquationTest(equation, equation.z, equation.p_value)
    z = equation.z / math.sqrt(noise)
    # Where the residual is too lopsided for the normal tail, its bound stands.
    bound = equation.p_value if equation.p_value > two_sided(equation.z) else 0.0
    return EquationTest(equation, z, max(two_sided(z), bound))


def count_chance(observed: float, expected: float, variance: float | None = None, noise: float = 1.0) -> float:
    """At most how likely a count as far from its expectation as this one is, also where the expectation is small.

    Chernoff's bound of a sum of events, beside the normal tail. The normal tail alone takes one event where 0.001 were
    expected for 30 standard deviations.

    Parameters
    ----------
    observed, expected : float
        Counts, or sums of weights.
    variance : float, optional
        Of the count; by default its expectation.
    noise : float
        As `fitted_model_noise` gives it.
    """
    spread = expected if variance is None else variance
    if observed == expected:
        return 1.0
    if spread <= 0.0 or expected <= 0.0:
        return 0.0
    scale = spread / expected  # in units of single events
    k, m = observed / scale, expected / scale
    exponent = (k * math.log(k / m) if k > 0.0 else 0.0) - k + m
    return min(
        1.0, max(2.0 * math.exp(-exponent / noise), two_sided((observed - expected) / math.sqrt(spread * noise)))
    )


@dataclass(frozen=True)
class ShareTest:
    """The share of positives here beside that of training.

    Parameters
    ----------
    share, before : float
        Here, and in training.
    z : float
        The difference in standard deviations.
    n_rows : float
        Rows here.
    """

    share: float
    before: float
    z: float
    n_rows: float

    @property
    def has_moved(self) -> bool:
        """Whether it moved beyond chance and by enough to matter: `SHARE_Z` and `SHARE_RATIO`."""
        high, low = max(self.share, self.before), min(self.share, self.before)
        by_chance = count_chance(self.n_rows * self.share, self.n_rows * self.before)
        return abs(self.z) > SHARE_Z and by_chance < 2.0 * two_sided(SHARE_Z) and high > SHARE_RATIO * low


def judge_share(n_pos: float, n_neg: float, trained: Price) -> ShareTest:
    """Compare the share of positives with that of training.

    Parameters
    ----------
    n_pos, n_neg : float
        Rows here, or sums of their weights.
    trained : Price
        With the counts of the training rows.
    """
    return judge_class_share(n_pos, n_pos + n_neg, trained.n_pos, trained.n_pos + trained.n_neg)


def judge_class_share(n_own: float, here: float, n_own_before: float, there: float) -> ShareTest:
    """Compare the share of a class with that of training, from its rows and all rows here, and there."""
    share, before = n_own / here, n_own_before / there
    pooled = (n_own + n_own_before) / (here + there)
    deviation = math.sqrt(pooled * (1.0 - pooled) * (1.0 / here + 1.0 / there))
    return ShareTest(share, before, (share - before) / deviation, here)


@dataclass(frozen=True)
class StepTest:
    """A step between two prices, and whether what it cost is chance.

    Parameters
    ----------
    step : ExpenseStep
        Counts, expense and bracket.
    z : float
        How far the catches lie outside of what the bracket allows, in standard deviations: negative where a catch cost
        too much, positive where it cost too little, 0 inside; NaN where too few rows changed to tell.
    """

    step: ExpenseStep
    z: float

    @property
    def is_beyond_chance(self) -> bool:
        """Whether it lies more than `EXPENSE_Z` standard deviations outside."""
        return abs(self.z) > EXPENSE_Z

    @property
    def sentence(self) -> str:
        """What it cost beside its bracket, in plain words."""
        step, catches = self.step, self.step.catches
        if catches == 0.0 and step.delta_fp == 0.0:
            return "no decision changes between these prices"
        if math.isnan(self.z):
            return "too few decisions change between these prices to tell"
        if self.z == 0.0:
            return "inside its bracket"
        where = "above its bracket" if self.z < 0.0 else "below its bracket"
        if not self.is_beyond_chance:
            return f"{where}, within chance"
        return f"{where}, beyond chance: probabilities between these prices are too {'high' if self.z < 0 else 'low'}"


def judge_step(step: ExpenseStep, noise: float = 1.0, squares: float | None = None) -> StepTest:
    """Judge what the catches of one step cost, where one model's threshold moved.

    A row that flips has a posterior between the two thresholds if probabilities are right. So the positives among the
    rows that flip are, up to chance, between these two shares of them.

    Parameters
    ----------
    step : ExpenseStep
        Between two prices.
    noise : float
        As `fitted_model_noise` gives it; 1 for the true posterior.
    squares : float, optional
        Sum of the squared weights of the rows that flip; by default their number.
    """
    size = step.catches + step.delta_fp
    squares = size if squares is None else squares
    if size <= 0.0 or squares <= 0.0:
        return StepTest(step, math.nan)
    if step.verdict == "inside":
        return StepTest(step, 0.0)
    share = 1.0 / (1.0 + (step.bracket_low if step.verdict == "below" else step.bracket_high))
    if share * (1.0 - share) * size**2 / squares < LEAST_VARIANCE:
        return StepTest(step, math.nan)
    z = (step.catches - share * size) / math.sqrt(share * (1.0 - share) * squares)
    return StepTest(step, z / math.sqrt(noise))


def is_nearly_separated(roc_auc: float) -> bool:
    """Whether classes are separated so well (`NEAR_PERFECT_AREA`) that a leak is likelier than such luck.

    Parameters
    ----------
    roc_auc : float
        Area under the ROC curve on rows that took no part in training.
    """
    return roc_auc >= NEAR_PERFECT_AREA


def is_dominated(share: float, log_loss: float, base_log_loss: float) -> bool:
    """Whether one column nearly alone tells the outcome, and tells it well.

    Parameters
    ----------
    share : float
        Its part in the rise of the log loss over all columns, each shuffled by itself.
    log_loss, base_log_loss : float
        Of the model, and of saying the share of positives to everybody.
    """
    return share >= DOMINANT_SHARE and log_loss <= (1.0 - DOMINANT_SKILL) * base_log_loss

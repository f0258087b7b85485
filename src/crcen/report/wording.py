"""The summary in words, for a reader who decides and does not compute."""

from collections.abc import Sequence

import numpy as np

from crcen._support.values import Values
from crcen.report.checks import Finding
from crcen.report.evidence import Evidence
from crcen.report.measurements import quality_of
from crcen.report.rendering import count, digits, percent

_OUT_OF_FOLD = " All figures are out of fold: each row was judged by models trained without it."


def sentences(measured: Values, findings: Sequence[Finding]) -> list[str]:
    """The results of `measure` and `examine` as plain sentences."""
    rows, quality = measured["rows"], measured["quality"]
    by_weight = " by weight" if rows["is_weighted"] else ""
    saved = " The saved model was trained on all of them, and the importance of columns is its own."
    return [
        f"Of {count(rows['n_rows'])} rows, {count(rows['n_positive_rows'])} are “{rows['pos_label']}” "
        f"({percent(rows['share'])}{by_weight}); that is what the model looks for."
        + (_OUT_OF_FOLD + saved if rows["is_out_of_fold"] else ""),
        _price(quality),
        _outcome(quality, by_weight),
        _worth(rows, quality),
        check_sentence(findings),
    ]


def _against(cost: float, habit_cost: float) -> str:
    """How a cost compares with that of a habit."""
    saved = 1.0 - cost / habit_cost if habit_cost > 0.0 else 0.0
    return f"saves {percent(saved)} of" if saved >= 0.0 else f"costs {percent(-saved)} more than"


def _price(quality: Values) -> str:
    if not quality["has_price"]:
        return (
            "The model has no price of its own, so this page starts at one false alarm per catch, the usual threshold "
            "of one half. Move the slider to the value of a catch."
        )
    return (
        f"One more catch may cost up to {_alarms(quality['price'])}: the model raises an alarm where the probability "
        f"is above {percent(quality['threshold'])}."
    )


def _alarms(value: float) -> str:
    return f"{digits(value)} false alarm{'' if value == 1 else 's'}"


def _outcome(quality: Values, by_weight: str) -> str:
    alarms = quality["tp"] + quality["fp"]
    total = quality["tp"] + quality["fn"]
    if not alarms:
        return f"At this price it raises no alarm at all on these rows, and misses all {count(total)}."
    low, high = quality["recall_interval"]
    found = (
        f"It finds {count(quality['tp'])} of {count(total)}{by_weight} ({percent(quality['recall'])}; with this many "
        f"rows the true share is likely between {percent(low)} and {percent(high)})"
    )
    if not quality["tp"]:
        return f"It finds none of {count(total)} and raises {count(alarms)} false alarms."
    low, high = quality["precision_interval"]
    return (
        f"{found} with {count(alarms)} alarms, {count(quality['fp'])} of them false: {percent(quality['precision'])} "
        f"are right (likely {percent(low)} to {percent(high)}). On average a catch comes with "
        f"{_alarms(quality['false_alarms_per_catch'])}, and {digits(quality['alarms_per_1000'])} of every "
        "1,000 rows need a check."
    )


def _worth(rows: Values, quality: Values) -> str:
    price, total = quality["price"], rows["n_pos"] + rows["n_neg"]
    with_model = price * quality["fn"] + quality["fp"]
    without = min(price * rows["n_pos"], rows["n_neg"])
    habit = "raising no alarm" if price * rows["n_pos"] <= rows["n_neg"] else "raising an alarm for every row"
    limits = quality["cost_interval"]
    likely = "" if limits is None else f" (95 % interval {digits(limits[0])} to {digits(limits[1])})"
    return (
        f"Counting a miss as {_alarms(price)}, its errors cost {_alarms(1000.0 * with_model / total)} per "
        f"1,000 rows{likely}. That {_against(with_model, without)} the cost of {habit}, the better of the two policies "
        "without a model."
    )


def class_sentences(evidence: Evidence, findings: Sequence[Finding]) -> list[str]:
    """The same without a positive class."""
    quality, order = evidence.of(quality_of), np.argsort(-evidence.counts, kind="stable")
    shares = [f"{evidence.names[k]} {percent(float(evidence.counts[k] / evidence.n_rows))}" for k in order[:6]]
    more = f" and {len(order) - 6} rarer ones" if len(order) > 6 else ""
    held_out = _OUT_OF_FOLD if evidence.is_out_of_fold else ""
    worst, cost = int(np.argmax(quality.cost_by_class)), quality.cost
    part = quality.cost_by_class[worst] / cost.value if cost.value > 0.0 else 0.0
    return [
        f"{count(evidence.n_rows)} rows of {len(order)} classes: {', '.join(shares)}{more}.{held_out}",
        f"Decided by the least expected cost, a row costs {digits(cost.value)} (95 % interval {digits(cost.low)} to "
        f"{digits(cost.high)}). That {_against(quality.habit_cost - quality.saved.value, quality.habit_cost)} what "
        f"{quality.habit} for every row costs, {digits(quality.habit_cost)}, the cheapest single decision.",
        f"Most of it, {percent(float(part))}, comes from rows that are {evidence.names[worst]}, of which "
        f"{percent(quality.recalls[worst].value)} are found.",
        check_sentence(findings),
    ]


def check_sentence(findings: Sequence[Finding]) -> str:
    """Which checks warn; without a warning what was tested; and which checks could not be made."""
    codes = [finding.code for finding in findings if finding.status == "warning"]
    unknown = [finding.code for finding in findings if finding.status == "unknown"]
    left = f" Not tested: {', '.join(unknown)}." if unknown else ""
    if codes:
        n_made, verb = len(findings) - len(unknown), "warns" if len(codes) == 1 else "warn"
        named = ", ".join(codes)
        return f"{len(codes)} of {n_made} checks {verb} ({named}): read the warnings before using these figures.{left}"
    passed = [f"{finding.tested} ({finding.code})" for finding in findings if finding.status == "passed"]
    return f"No warnings. Tested: {'; '.join(passed)}.{left}" if passed else f"No check could be made.{left}"

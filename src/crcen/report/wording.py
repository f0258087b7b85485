"""The summary in words, for a reader who decides and does not compute."""

from collections.abc import Mapping, Sequence
from typing import Any

from crcen.report.finding import Finding

__all__ = ["check_sentence", "count", "digits", "percent", "sentences"]


def count(value: float | None) -> str:
    """A count: whole where it is whole, one digit where weights make it a sum."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def digits(value: float | None, places: int = 3) -> str:
    """A number to a few significant digits, without an exponent where people do not expect one."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10**places:
        return f"{value:,.0f}"
    return f"{value:.{places}g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def percent(value: float | None) -> str:
    """A share as a percentage, with more digits near both ends."""
    if value is None:
        return "–"
    scaled = 100.0 * value
    if 0.0 < scaled < 1.0 or 99.0 < scaled < 100.0:
        return f"{scaled:.2f}\u00a0%"
    return f"{scaled:.3g}\u00a0%" if scaled < 10.0 else f"{scaled:.0f}\u00a0%"


def sentences(measured: Mapping[str, Any], findings: Sequence[Finding]) -> list[str]:
    """What was found, in the order in which one would tell it.

    Parameters
    ----------
    measured : dict
        As `crcen.report.measurements.measure` gives it.
    findings : sequence of Finding
        As `crcen.report.findings.examine` gives them.

    Returns
    -------
    list of str
        Plain sentences.
    """
    rows, quality = measured["rows"], measured["quality"]
    by_weight = " by weight" if rows["is_weighted"] else ""
    held_out = (
        " All figures are out of fold: each row was judged by models trained without it. The saved model was trained "
        "on all of them, and the importance of columns is its own."
    )
    return [
        f"Of {count(rows['n_rows'])} rows, {count(rows['n_positive_rows'])} are “{rows['pos_label']}” "
        f"({percent(rows['share'])}{by_weight}); that is what the model looks for."
        + (held_out if rows["is_out_of_fold"] else ""),
        _price(quality),
        _outcome(quality, by_weight),
        _worth(rows, quality),
        check_sentence(findings),
    ]


def _price(quality: Mapping[str, Any]) -> str:
    if not quality["has_price"]:
        return (
            "The model names no price of its own, so this page starts at one false alarm for one catch, the usual "
            "threshold of one half. Move the slider to what a catch is worth to you."
        )
    return (
        f"The model was told that one more catch may cost up to {_alarms(quality['price'])}, so it raises an alarm "
        f"where the probability is above {percent(quality['threshold'])}."
    )


def _alarms(value: float) -> str:
    return f"{digits(value)} false alarm{'' if value == 1 else 's'}"


def _outcome(quality: Mapping[str, Any], by_weight: str) -> str:
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
        "1,000 rows need a look."
    )


def _worth(rows: Mapping[str, Any], quality: Mapping[str, Any]) -> str:
    price = quality["price"]
    total = rows["n_pos"] + rows["n_neg"]
    with_model = price * quality["fn"] + quality["fp"]
    without = min(price * rows["n_pos"], rows["n_neg"])
    habit = "raising no alarm" if price * rows["n_pos"] <= rows["n_neg"] else "raising an alarm for every row"
    saved = 1.0 - with_model / without
    verb = f"saves {percent(saved)} of" if saved >= 0.0 else f"costs {percent(-saved)} more than"
    return (
        f"Counting a miss as {_alarms(price)}, its errors cost {_alarms(1000.0 * with_model / total)} per "
        f"1,000 rows. That {verb} the cost of {habit}, the better of the two habits that need no model."
    )


def check_sentence(findings: Sequence[Finding]) -> str:
    """How many checks warn, and which could not be made."""
    codes = [finding.code for finding in findings if finding.status == "warning"]
    unknown = [finding.code for finding in findings if finding.status == "unknown"]
    looked = len(findings) - len(unknown)
    left = f" {len(unknown)} could not be made ({', '.join(unknown)})." if unknown else ""
    if not codes:
        return f"{f'All {looked}' if not unknown else looked} checks passed.{left}"
    named = ", ".join(codes)
    return f"{len(codes)} of {looked} checks warn ({named}): read the warnings before using these figures.{left}"

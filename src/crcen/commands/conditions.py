"""What a model must keep to in a pipeline: checks that must not warn, a recall and a precision that must be reached."""

from collections.abc import Sequence
from typing import Any

from crcen import InvalidParameter
from crcen.commands.quality import Measured
from crcen.report.checks import CHECKS

__all__ = ["CODES", "broken_conditions", "codes_of"]

# Those of the report.
CODES = tuple(sorted(CHECKS))
_ANY = "any"


def codes_of(fail_on: str | Sequence[str] | None) -> tuple[str, ...]:
    """Codes of checks from a list of them or a text with commas; "any" is all."""
    if not fail_on:
        return ()
    given = fail_on.split(",") if isinstance(fail_on, str) else list(fail_on)
    codes = [str(code).strip().upper() for code in given]
    if [_ANY.upper()] == codes:
        return CODES
    unknown = [code for code in codes if code not in CODES]
    if unknown:
        raise InvalidParameter(
            f"fail_on must name checks of the report, {CODES[0]} to {CODES[-1]}, or any: got {', '.join(unknown)}.",
            parameter="fail_on",
        )
    return tuple(codes)


def broken_conditions(
    findings: Sequence[Any],
    codes: tuple[str, ...],
    quality: dict[str, Measured],
    min_recall: float | None,
    min_precision: float | None,
) -> tuple[str, ...]:
    """A sentence for each condition that is not kept; a check that cannot be made breaks none."""
    broken = warned_codes(findings, codes)
    for name, least in least_shares(min_recall, min_precision).items():
        found = quality[name].value
        if not found >= least:
            broken.append(f"{name} is {found:.4g}, below {least:g}")
    return tuple(broken)


def warned_codes(findings: Sequence[Any], codes: tuple[str, ...]) -> list[str]:
    """A sentence for each check among these codes that warns."""
    return [
        f"{one.code} warns: {one.title[0].lower()}{one.title[1:]}, {one.measured}"
        for one in findings
        if one.status == "warning" and one.code in codes
    ]


def least_shares(min_recall: float | None, min_precision: float | None) -> dict[str, float]:
    """What must be reached, by name, where anything was asked for."""
    asked = {"recall": min_recall, "precision": min_precision}
    found = {name: least for name, least in asked.items() if least is not None}
    for name, least in found.items():
        if not 0.0 < least <= 1.0:
            raise InvalidParameter(
                f"min_{name} must be a share above 0 and at most 1: got {least:g}.", parameter=f"min_{name}"
            )
    return found

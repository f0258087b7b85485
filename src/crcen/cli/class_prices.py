"""Options for what mistakes between several classes are worth: a file of costs, or a weight for each class."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["CostsFile", "Weighting", "with_classes"]

_PANEL = "Several classes"
CostsFile = Annotated[
    Path | None,
    typer.Option(
        help="Table of costs, .csv or .xlsx: a row for each true class, a column for each decision; other columns, "
        "such as review, are actions.",
        rich_help_panel=_PANEL,
    ),
]
Weighting = Annotated[
    list[str] | None,
    typer.Option(
        help="balanced, none, or what a mistake on each class is worth: fine=1,worn=5,broken=40; may be repeated.",
        rich_help_panel=_PANEL,
    ),
]


def with_classes(price: Any, weighting: list[str] | None, costs: Path | None) -> Any:
    """The one thing that was stated: a price or wish of two classes (None where there is none), or a weighting.

    Parameters
    ----------
    price : price, wish or None
        From the options for two classes.
    weighting : list of str or None
        From --weighting.
    costs : Path or None
        From --costs; passed on beside this, and checked here.

    Returns
    -------
    price, wish, "balanced", dict or None
        None where nothing was stated, or costs. For ``--weighting none`` a dict is not possible, since labels are not
        known yet: it is the text "none".
    """
    stated = [*(["a price or wish"] if price is not None else []), *(["--weighting"] if weighting else [])]
    stated += ["--costs"] if costs is not None else []
    if len(stated) > 1:
        raise typer.BadParameter(f"{' and '.join(stated)} both say what mistakes are worth: give one of them.")
    if not weighting:
        return price
    if len(weighting) == 1 and weighting[0].strip().lower() in ("balanced", "none"):
        return weighting[0].strip().lower()
    found: dict[str, float] = {}
    for part in (one for text in weighting for one in text.split(",")):
        label, mark, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            mark = ""
        if not mark or not label.strip():
            raise typer.BadParameter(
                f"--weighting must be balanced, none, or CLASS=WEIGHT with commas between, such as "
                f"fine=1,worn=5,broken=40: got {part!r}."
            )
        found[label.strip()] = weight
    return found

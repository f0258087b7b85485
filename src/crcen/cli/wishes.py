"""Options for people who have no price: so many alarms, a recall, a precision."""

from typing import Annotated, Any

import typer

from crcen.cli.options import made, price

__all__ = [
    "AlarmCost",
    "Capacity",
    "Confidence",
    "CostColumn",
    "Precision",
    "Recall",
    "ReviewPrices",
    "Weight",
    "price_or_wish",
    "two_prices",
]

_PANEL = "Instead of a price"
Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        "--top",
        help="So many alarms: 200 of these rows, 20/day, 100/week, or 5/1000 rows.",
        metavar="N[/day]",
        rich_help_panel=_PANEL,
    ),
]
Recall = Annotated[
    float | None, typer.Option(help="Find at least this share of the positives, such as 0.9.", rich_help_panel=_PANEL)
]
Precision = Annotated[
    float | None, typer.Option(help="At least this share of alarms right, such as 0.5.", rich_help_panel=_PANEL)
]
Confidence = Annotated[
    float | None,
    typer.Option(help="Guarantee --recall with this probability, such as 0.95.", rich_help_panel=_PANEL),
]
ReviewPrices = Annotated[
    str | None,
    typer.Option(
        help="Two prices, such as 2,30: between them a person looks.", metavar="LOW,HIGH", rich_help_panel="Price"
    ),
]
CostColumn = Annotated[
    str | None, typer.Option(help="Column with what a miss of that row costs.", rich_help_panel="Price")
]
AlarmCost = Annotated[
    float, typer.Option(help="What a false alarm costs, in the unit of --cost-column.", rich_help_panel="Price")
]
Weight = Annotated[str | None, typer.Option(help="Column that says how much each row counts, as survey weights do.")]


def price_or_wish(
    budget: float | None,
    cost_ratio: float | None,
    alpha: float | None,
    lam: float | None,
    balanced: bool,
    capacity: str | None,
    recall: float | None,
    precision: float | None,
    confidence: float | None = None,
) -> Any:
    """The one price or wish that was stated, or None."""
    wishes = {"--capacity": capacity, "--recall": recall, "--precision": precision}
    given = [name for name, value in wishes.items() if value is not None]
    prices = {
        "--budget": budget,
        "--cost-ratio": cost_ratio,
        "--alpha": alpha,
        "--lam": lam,
        "--balanced": balanced or None,
    }
    stated = given + [name for name, value in prices.items() if value is not None]
    if given and len(stated) > 1:
        raise typer.BadParameter(f"{' and '.join(stated)} both say where alarms begin: give one of them.")
    if confidence is not None and recall is None:
        raise typer.BadParameter("--confidence must go with --recall, which it guarantees.")
    if not given:
        return price(budget, cost_ratio, alpha, lam, balanced)
    import crcen

    if capacity is not None:
        return _capacity(capacity)
    if recall is not None:
        return made(crcen.RecallAtLeast, "--recall", recall, confidence=confidence)
    return made(crcen.PrecisionAtLeast, "--precision", precision)


def _capacity(text: str) -> Any:
    """A number of alarms, also for a day, a week or so many rows."""
    import crcen

    number, _, per = text.replace(",", "").partition("/")
    period: Any = per.strip() or None
    try:
        if period is not None and period not in ("day", "week"):
            period = int(period)
        alarms = int(number)
    except ValueError:
        raise typer.BadParameter(
            f"--capacity must be a number of alarms, such as 200, 20/day, 100/week or 5/1000: got {text!r}."
        ) from None
    return made(crcen.Capacity, "--capacity", alarms, per=period)


def two_prices(text: str | None) -> Any:
    """The two prices of --review, or None."""
    if text is None:
        return None
    import crcen

    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--review must be two prices, such as 2,30: got {text!r}.") from None
    return made(crcen.Review, "--review", low, high)

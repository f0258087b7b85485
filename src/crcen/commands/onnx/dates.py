"""The numbers that a model makes of a date, as operations of an ONNX graph."""

from typing import Any

__all__ = ["date_parts"]

_DAY = 86_400.0
# Days from 0000-03-01, with which the count of the algorithm below begins, to 1970-01-01.
_EPOCH = 719_468.0


def date_parts(graph: Any, seconds: str) -> dict[str, str]:
    """Days, month, day, weekday and hour from seconds since 1970-01-01 UTC, as `DateColumn` has them.

    Month and day follow Howard Hinnant's ``civil_from_days``: years begin in March, so that the leap day comes last.
    All steps but the first are on whole numbers, which doubles hold exactly.

    Parameters
    ----------
    graph : Graph
        Where the operations go.
    seconds : str
        Doubles of shape (rows, 1), without NaN.

    Returns
    -------
    dict of str to str
        Name of the part → name of its result, (rows, 1).
    """

    def scaled(value: str, factor: float) -> str:
        return graph.apply("Mul", value, graph.constant(factor))

    def plus(value: str, number: float) -> str:
        return graph.apply("Add", value, graph.constant(number))

    def whole(value: str, divisor: float) -> str:
        return graph.apply("Floor", graph.apply("Div", value, graph.constant(divisor)))

    def total(*values: str) -> str:
        found = values[0]
        for value in values[1:]:
            found = graph.apply("Add", found, value)
        return found

    def rest(value: str, divisor: float) -> str:
        return total(value, scaled(whole(value, divisor), -divisor))

    date = whole(seconds, _DAY)
    of_day = total(seconds, scaled(date, -_DAY))
    hour, minute = whole(of_day, 3600.0), whole(rest(of_day, 3600.0), 60.0)
    of_era = rest(plus(date, _EPOCH), 146_097.0)
    leaps = (scaled(whole(of_era, 1460.0), -1.0), whole(of_era, 36_524.0), scaled(whole(of_era, 146_096.0), -1.0))
    year = whole(total(of_era, *leaps), 365.0)
    of_year = total(of_era, scaled(year, -365.0), scaled(whole(year, 4.0), -1.0), whole(year, 100.0))
    month = whole(plus(scaled(of_year, 5.0), 2.0), 153.0)  # 0 is March
    day = plus(total(of_year, scaled(whole(plus(scaled(month, 153.0), 2.0), 5.0), -1.0)), 1.0)
    return {
        "days": graph.apply("Div", seconds, graph.constant(_DAY)),
        "month": plus(rest(plus(month, 2.0), 12.0), 1.0),
        "day": day,
        "weekday": rest(plus(date, 3.0), 7.0),
        "hour": total(hour, graph.apply("Div", minute, graph.constant(60.0))),
    }

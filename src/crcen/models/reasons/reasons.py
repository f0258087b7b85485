"""Reasons: for every row what its columns add to the natural log-odds, and the same in words."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.decision import sigmoid

__all__ = ["Reasons", "shortened", "spelled"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_LONGEST_CELL, _SHOWN_ROWS = 40, 10
# Numbers that are years, where all of a column are.
_YEARS = (1800.0, 2200.0)


@dataclass(frozen=True, eq=False)
class Reasons:
    """What columns add to the natural log-odds of rows; prints itself.

    Parameters
    ----------
    columns : tuple of str
        Columns of the table.
    values : float64 array of shape (n, columns)
        What each column of each row adds, against typical rows: Shapley values. They and ``base`` add up to
        ``log_odds``.
    errors : float64 array of shape (n, columns)
        Their standard errors.
    log_odds : float64 array of shape (n,)
        Natural log-odds of the positive class; without a positive class log p(class) / p(rival).
    base : float, or float64 array of shape (n,)
        Mean log-odds of the background rows; one value for each row without a positive class.
    cells : object array of shape (n, columns)
        The cells as text.
    classes, rivals : object arrays of shape (n,), optional
        Without a positive class: the explained class of each row, and the most probable other class.
    """

    columns: tuple[str, ...]
    values: Array
    errors: Array
    log_odds: Array
    base: float | Array
    cells: NDArray[np.object_]
    classes: NDArray[np.object_] | None = None
    rivals: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def standard_error(self) -> float:
        """The largest one."""
        return float(self.errors.max(initial=0.0))

    def sentences(self, number: int = 3) -> list[list[str]]:
        """For every row its strongest reasons in words, such as "balance 2,310: +1.4 log-odds".

        Parameters
        ----------
        number : int, default=3
            How many; fewer where there are fewer columns.
        """
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidParameter(f"number must be a whole number of at least 1: got {number!r}.")
        order = np.argsort(-np.abs(self.values), axis=1, kind="stable")[:, :number]
        return [[self._sentence(i, int(j)) for j in row] for i, row in enumerate(order)]

    def columns_of(self, number: int = 3) -> list[list[str]]:
        """The same by rank: the strongest reason of every row, then the second one, and so on; "" for none."""
        found = self.sentences(number)
        return [[one[i] if i < len(one) else "" for one in found] for i in range(number)]

    def _sentence(self, row: int, column: int) -> str:
        return f"{self.columns[column]} {self.cells[row, column]}: {_signed(self.values[row, column])} log-odds"

    def to_frame(self) -> Any:
        """The values as a data frame, a column for each of the table."""
        import pandas as pd

        return pd.DataFrame(self.values, columns=list(self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        pairs = {"classes": self.classes, "rivals": self.rivals}
        return {
            "columns": list(self.columns),
            "values": self.values.tolist(),
            "errors": self.errors.tolist(),
            "log_odds": self.log_odds.tolist(),
            "base": self.base.tolist() if isinstance(self.base, np.ndarray) else self.base,
            "standard_error": self.standard_error,
            **{name: [str(one) for one in labels] for name, labels in pairs.items() if labels is not None},
        }

    @property
    def about(self) -> str:
        """What the values are compared with, and how exact they are."""
        if isinstance(self.base, np.ndarray):
            return f"against typical rows, for a class rather than the likeliest other one, {self.exactness}"
        return (
            f"against typical rows with log-odds {self.base:.2f} (probability {sigmoid(np.array(self.base)):.3g}), "
            f"{self.exactness}"
        )

    @property
    def exactness(self) -> str:
        """The largest standard error in words."""
        return f"standard error at most {self.standard_error:.2g} log-odds" if self.standard_error else "exact"

    def __repr__(self) -> str:
        return f"<Reasons of {len(self):,} rows and {len(self.columns)} columns, {self.about}>"

    def __str__(self) -> str:
        lines = [f"Reasons of {len(self):,} rows {self.about}"]
        shown = self._some(_SHOWN_ROWS)
        lines += [f"  {i + 1}: {shown._line(i, one)}" for i, one in enumerate(shown.sentences())]
        return "\n".join([*lines, *(["  …"] if len(self) > len(shown) else [])])

    def _line(self, row: int, reasons: list[str]) -> str:
        text = "; ".join(reasons)
        if self.classes is None or self.rivals is None:
            return text
        return f"{self.classes[row]} rather than {self.rivals[row]}: {text}"

    def _some(self, n: int) -> "Reasons":
        """The first ``n`` rows."""
        arrays = (self.values[:n], self.errors[:n], self.log_odds[:n])
        base = self.base[:n] if isinstance(self.base, np.ndarray) else self.base
        pairs = (None if labels is None else labels[:n] for labels in (self.classes, self.rivals))
        return Reasons(self.columns, *arrays, base, self.cells[:n], *pairs)

    def _repr_html_(self) -> str:
        shown = self._some(_SHOWN_ROWS)
        rows = "".join(
            f"<tr><td>{i + 1}</td><td>{log_odds:.2f}</td>{''.join(f'<td>{escape(one)}</td>' for one in reasons)}</tr>"
            for i, (log_odds, reasons) in enumerate(zip(shown.log_odds, shown.sentences(), strict=True))
        )
        head = "<tr><th>row</th><th>log-odds</th><th>reasons, the strongest first</th></tr>"
        return f"<table>{head}{rows}</table><p>{escape(f'{len(self):,} rows, {self.about}')}</p>"


def spelled(values: Array) -> NDArray[np.object_]:
    """Numbers of a column as people write them, "missing" for NaN."""
    present = values[~np.isnan(values)]
    are_years = present.size > 0 and bool(
        ((present >= _YEARS[0]) & (present <= _YEARS[1]) & (present == np.round(present))).all()
    )
    return np.array([_number(float(value), are_years) for value in values], dtype=object)


def _number(value: float, is_year: bool) -> str:
    if np.isnan(value):
        return "missing"
    if is_year:
        return f"{value:.0f}"
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e15):
        return f"{value:.4g}"
    if value == round(value) or size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _signed(value: float) -> str:
    """Two digits; what is smaller than the error that is asked for needs no more."""
    return f"{value:+.1f}" if abs(value) >= 1.0 else f"{value:+.2f}"


def shortened(text: str) -> str:
    """A cell that fits on a line."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"

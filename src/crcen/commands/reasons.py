"""Reasons of decisions, chunk by chunk, as columns of the scored table."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidParameter
from crcen.commands.inputs import source_of
from crcen.commands.scoring import model_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["REASONS_FOR", "RowReasons"]

# Without a positive class: the column that says what reasons are for.
REASONS_FOR = "reasons_for"

_MOST_REASONS, _MOST_BACKGROUND = 100, 100_000


@dataclass
class RowReasons:
    """Reasons of alarms, or of the decision for each row if the model has no positive class.

    Parameters
    ----------
    model : fitted classifier
        With ``reasons``.
    number : int
        Reasons for each row; 0 for none at all.
    background : data frame, str or Path, optional
        Rows to compare with, or their file.
    read : ReadOptions, optional
        How that file is read.
    """

    model: Any
    number: int
    background: Any = None
    read: Any = None
    n_rows: int = field(default=0, init=False)
    standard_error: float = field(default=0.0, init=False)
    base: float = field(default=np.nan, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or not 0 <= self.number <= _MOST_REASONS:
            raise InvalidParameter(
                f"reasons must be a whole number from 0 to {_MOST_REASONS}: got {self.number!r}.", parameter="reasons"
            )
        if self.background is not None and not self.number:
            raise InvalidParameter(
                "background is for reasons: say how many with reasons=.", parameter=("background", "reasons")
            )
        if self.number and not hasattr(self.model, "reasons"):
            raise InvalidParameter(f"a {type(self.model).__name__} gives no reasons; models that crcen fit writes do.")
        if self.background is not None:
            frame = source_of(self.background, self.read, self.model, is_strict=False).read()
            if len(frame) > _MOST_BACKGROUND:
                frame = frame.sample(_MOST_BACKGROUND, random_state=0)
            self.background = model_rows(self.model, frame, set())

    @property
    def _is_binary(self) -> bool:
        return self.model.weighting_.positive is not None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        first = [REASONS_FOR] if self.number and not self._is_binary else []
        return [*first, *(f"reason_{i + 1}" for i in range(self.number))]

    def columns(
        self, chunk: "pd.DataFrame", p: NDArray[np.float64], chosen: NDArray[np.int64], ignored: set[str]
    ) -> dict[str, NDArray[Any]]:
        """The columns for a chunk with probabilities (n, K) and decisions; empty texts where a row is no alarm."""
        found = {name: np.full(len(p), "", dtype=object) for name in self.names}
        if not self.number:
            return found
        positive, of = self.model.weighting_.positive, {}
        rows = np.ones(len(p), dtype=bool) if positive is None else chosen == positive
        if not rows.any():
            return found
        if positive is None:  # of another action than a class the most probable class is explained
            of["classes"] = self.model.classes_[np.where(chosen < p.shape[1], chosen, p.argmax(axis=1))]
        reasons = self.model.reasons(model_rows(self.model, chunk[rows], ignored), background=self.background, **of)
        self.n_rows += len(reasons)
        self.standard_error = max(self.standard_error, reasons.standard_error)
        if positive is None:
            pairs = zip(reasons.classes, reasons.rivals, strict=True)
            found[REASONS_FOR][:] = [f"{one} rather than {other}" for one, other in pairs]
        else:
            self.base = reasons.base
        for name, texts in zip(self.names[-self.number :], reasons.columns_of(self.number), strict=True):
            found[name][rows] = texts
        return found

    @property
    def summary(self) -> dict[str, Any] | None:
        """Rows explained, the mean log-odds that they are compared with, and the largest standard error."""
        if not self.number:
            return None
        base = None if np.isnan(self.base) else self.base
        return {"rows": self.n_rows, "base_log_odds": base, "standard_error": self.standard_error}

    @property
    def lines(self) -> list[str]:
        """The same in words; empty without reasons."""
        if not self.number:
            return []
        if not self.n_rows:
            return ["No row is an alarm, so there are no reasons"]
        exact = f"standard error at most {self.standard_error:.2g}" if self.standard_error else "exact"
        if not self._is_binary:
            return [f"Reasons of {self.n_rows:,} rows, in log-odds of a class against the likeliest other one: {exact}"]
        return [
            f"Reasons of {self.n_rows:,} alarms, in log-odds, against rows with {self.base:.2f} in the mean: {exact}"
        ]

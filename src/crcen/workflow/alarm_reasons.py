"""Why rows are alarms: the strongest reasons of each, chunk by chunk, as columns of the scored table."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidParameter
from crcen.workflow.inputs import source_of
from crcen.workflow.model_rows import model_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AlarmReasons"]

_MOST_REASONS, _MOST_BACKGROUND = 100, 100_000


@dataclass
class AlarmReasons:
    """Reasons of the alarms among rows in passing.

    Parameters
    ----------
    model : fitted classifier
        With ``reasons``.
    number : int
        Reasons for each alarm; 0 for none at all.
    background : data frame, str or Path, optional
        Rows to compare with, or their file.
    """

    model: Any
    number: int
    background: Any = None
    n_rows: int = field(default=0, init=False)
    standard_error: float = field(default=0.0, init=False)
    base: float = field(default=np.nan, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or not 0 <= self.number <= _MOST_REASONS:
            raise InvalidParameter(f"reasons must be a whole number from 0 to {_MOST_REASONS}: got {self.number!r}.")
        if self.background is not None and not self.number:
            raise InvalidParameter("background is for reasons: say how many with reasons=.")
        if self.number and not hasattr(self.model, "reasons"):
            raise InvalidParameter(f"a {type(self.model).__name__} gives no reasons; models that crcen fit writes do.")
        if self.background is not None:
            frame = source_of(self.background).read()
            if len(frame) > _MOST_BACKGROUND:
                frame = frame.sample(_MOST_BACKGROUND, random_state=0)
            self.background = model_rows(self.model, frame, set())

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [f"reason_{i + 1}" for i in range(self.number)]

    def of(self, chunk: "pd.DataFrame", alarms: NDArray[np.bool_], ignored: set[str]) -> dict[str, NDArray[Any]]:
        """The columns for a chunk; empty texts where a row is no alarm."""
        columns = {name: np.full(len(alarms), "", dtype=object) for name in self.names}
        if not self.number or not alarms.any():
            return columns
        found = self.model.reasons(model_rows(self.model, chunk[alarms], ignored), background=self.background)
        self.n_rows += len(found)
        self.standard_error, self.base = max(self.standard_error, found.standard_error), found.base
        sentences = found.sentences(self.number)
        for i, name in enumerate(self.names):
            columns[name][alarms] = [one[i] if i < len(one) else "" for one in sentences]
        return columns

    @property
    def summary(self) -> dict[str, Any] | None:
        """Rows explained, the mean log-odds that they are compared with, and the largest standard error."""
        if not self.number:
            return None
        base = None if np.isnan(self.base) else self.base
        return {"rows": self.n_rows, "base_log_odds": base, "standard_error": self.standard_error}

    @property
    def line(self) -> str:
        """The same in words."""
        if not self.n_rows:
            return "No row is an alarm, so there are no reasons"
        return f"Reasons of {self.n_rows:,} alarms, in log-odds, against rows with {self.base:.2f} in the mean: " + (
            f"standard error at most {self.standard_error:.2g}" if self.standard_error else "exact"
        )

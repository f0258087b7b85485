"""Why rows are alarms: the strongest reasons of each, chunk by chunk, as columns of the scored table."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidParameter
from crcen.commands.inputs import source_of
from crcen.commands.model_rows import model_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["REASONS_FOR", "AlarmReasons"]

# Of several classes: the column that says what reasons are for.
REASONS_FOR = "reasons_for"

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
    def names(self) -> list[str]:
        """What the columns are called."""
        return [f"reason_{i + 1}" for i in range(self.number)]

    @property
    def class_names(self) -> list[str]:
        """What the columns are called of several classes."""
        return [REASONS_FOR, *self.names] if self.number else []

    def of(self, chunk: "pd.DataFrame", alarms: NDArray[np.bool_], ignored: set[str]) -> dict[str, NDArray[Any]]:
        """The columns for a chunk; empty texts where a row is no alarm."""
        columns = {name: np.full(len(alarms), "", dtype=object) for name in self.names}
        if self.number and alarms.any():
            found = self._explained(chunk[alarms], ignored)
            self.base = found.base
            for name, texts in zip(self.names, found.columns_of(self.number), strict=True):
                columns[name][alarms] = texts
        return columns

    def of_classes(self, chunk: "pd.DataFrame", classes: NDArray[Any], ignored: set[str]) -> dict[str, NDArray[Any]]:
        """The columns for a chunk of several classes: what is explained, and the reasons."""
        if not self.number:
            return {}
        found = self._explained(chunk, ignored, classes=classes)
        pairs = [f"{one} rather than {other}" for one, other in zip(found.classes, found.rivals, strict=True)]
        texts = zip(self.names, found.columns_of(self.number), strict=True)
        return {
            REASONS_FOR: np.array(pairs, dtype=object),
            **{name: np.array(one, dtype=object) for name, one in texts},
        }

    def _explained(self, chunk: "pd.DataFrame", ignored: set[str], **of: Any) -> Any:
        found = self.model.reasons(model_rows(self.model, chunk, ignored), background=self.background, **of)
        self.n_rows += len(found)
        self.standard_error = max(self.standard_error, found.standard_error)
        return found

    @property
    def summary(self) -> dict[str, Any] | None:
        """Rows explained, the mean log-odds that they are compared with, and the largest standard error."""
        if not self.number:
            return None
        base = None if np.isnan(self.base) else self.base
        return {"rows": self.n_rows, "base_log_odds": base, "standard_error": self.standard_error}

    @property
    def class_summary(self) -> dict[str, Any] | None:
        """Of several classes: rows explained, and the largest standard error."""
        return {"rows": self.n_rows, "standard_error": self.standard_error} if self.number else None

    @property
    def class_line(self) -> str:
        """How exact they are, of several classes."""
        return (
            f"Reasons of {self.n_rows:,} rows, in log-odds of a class against the likeliest other one: " + self._exact
        )

    @property
    def _exact(self) -> str:
        return f"standard error at most {self.standard_error:.2g}" if self.standard_error else "exact"

    @property
    def line(self) -> str:
        """The same in words."""
        if not self.n_rows:
            return "No row is an alarm, so there are no reasons"
        return (
            f"Reasons of {self.n_rows:,} alarms, in log-odds, against rows with {self.base:.2f} in the mean: "
            + self._exact
        )

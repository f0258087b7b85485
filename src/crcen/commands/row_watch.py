"""New rows beside those of training, chunk by chunk: in what they differ, and whether they are the same."""

import math
from typing import Any

from crcen.theory.price import Price

__all__ = ["RowWatch", "unlike_lines"]


def unlike_lines(unlike: tuple[Any, ...]) -> list[str]:
    """Differences from training as lines of text."""
    return [
        *(["Unlike training, more than chance allows:"] if unlike else []),
        *(f"  {one.sentence}" for one in unlike),
    ]


class RowWatch:
    """What a model knows of its training rows, compared with rows in passing.

    Parameters
    ----------
    model : fitted classifier
        One without a profile, such as a network on plain numbers, knows nothing.
    recognises : bool, default=False
        Whether to look for training rows too.
    """

    def __init__(self, model: Any, *, recognises: bool = False) -> None:
        self._model = model
        profile = getattr(model, "profile_", None)
        self._rows = None if profile is None else profile.new_rows(model.columns_)
        self._fingerprint = getattr(model, "fingerprint_", None) if recognises else None
        self._n_compared = self._n_seen = 0

    def add(self, frame: Any, encoded: Any) -> None:
        """Count a chunk: the rows, and what the model's encoder made of them."""
        if self._rows is not None:
            self._rows.add(encoded)
        if self._fingerprint is not None:
            compared, seen = self._fingerprint.compare(self._model.row_hashes(frame, encoded))
            self._n_compared, self._n_seen = self._n_compared + compared, self._n_seen + seen

    @property
    def notes(self) -> list[str]:
        """A sentence where a model of a table cannot compare."""
        if self._rows is not None or not hasattr(self._model, "columns_"):
            return []
        return ["this model keeps no profile of its training rows, so that these were not compared with them"]

    def unlike(
        self, n_alarms: int, n_rows: int, price: Price | None, error_rate: float | None = None
    ) -> tuple[Any, ...]:
        """Differences from training beyond chance; of alarms where they were counted on all these rows, at a price."""
        if self._rows is None:
            return ()
        threshold = 0.0 if price is None else math.log(price.threshold) - math.log1p(-price.threshold)
        options = {} if error_rate is None else {"error_rate": error_rate}
        return tuple(self._rows.differences(n_alarms if n_rows == self._rows.n_rows else None, threshold, **options))

    def recognition(self) -> Any:
        """Whether these are training rows; None where the model cannot know."""
        return None if self._fingerprint is None else self._fingerprint.judge(self._n_compared, self._n_seen)

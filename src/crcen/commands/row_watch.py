"""New rows beside those of training, chunk by chunk: in what they differ, and whether they are the same."""

import math
from typing import Any

import numpy as np

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
        # Columns whose rare and new values share an input: a new value there is no oddity by itself.
        self.pooled = {one.name for one in getattr(model, "columns_", ()) if getattr(one, "has_other", False)}
        profile = getattr(model, "profile_", None)
        self._rows = None if profile is None else profile.new_rows(model.columns_)
        self._fingerprint = getattr(model, "fingerprint_", None) if recognises else None
        self._compared: list[tuple[Any, Any]] = []

    def add(self, frame: Any, encoded: Any) -> None:
        """Count a chunk: the rows, and what the model's encoder made of them."""
        if self._rows is not None:
            self._rows.add(encoded)
        if self._fingerprint is not None:
            self._compared.append(self._fingerprint.compare(self._model.row_hashes(frame, encoded)))

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

    def recognition(self, numbers: Any = None, is_labelled: Any = None) -> Any:
        """Whether these are training rows; None for a model without a fingerprint.

        Parameters
        ----------
        numbers : int array of shape (n labelled,), optional
            Class numbers of the rows with a label: whether training rows among them depend on it.
        is_labelled : bool array of shape (n,), optional
            Which rows have a label; the others are left out.
        """
        if self._fingerprint is None:
            return None
        can, matches = (np.concatenate([chunk[i] for chunk in self._compared]) for i in range(2))
        if is_labelled is not None:
            can, matches = can[is_labelled], matches[is_labelled]
        return self._fingerprint.judge(can, matches, numbers, self._model.classes_.tolist())

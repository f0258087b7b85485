"""A loaded model answers made-up rows before it is given out: parts that do not fit together are found here."""

import warnings
from typing import Any

import numpy as np

__all__ = ["answers_a_row"]

_ROWS = 3


def answers_a_row(model: Any) -> None:
    """Raise, whatever a model's parts raise, unless it gives probabilities and decisions for a few rows."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        rows = made_up_rows(model)
        probabilities = np.asarray(model.predict_proba(rows), dtype=np.float64)
        decisions = np.asarray(model.predict(rows))
        if hasattr(model, "profile_"):
            new = model.profile_.new_rows(model.columns_)
            new.add(model.encode(rows))
            new.differences(n_alarms=1)
        if hasattr(model, "fingerprint_"):
            model.recognise(rows)
    if probabilities.shape != (_ROWS, 2) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("its probabilities are none")
    for part in (model, getattr(model, "estimator_", model)):
        labels = list(part.classes_)
        if len(labels) != 2 or getattr(part, "pos_label_", labels[0]) not in labels:
            raise ValueError("its labels are not two")
    if decisions.shape != (_ROWS,) or not np.isin(decisions, model.classes_).all():
        raise ValueError("its decisions are no labels")


def made_up_rows(model: Any) -> Any:
    """Rows such as the model was trained on, as far as its state says."""
    if hasattr(model, "columns_"):
        import pandas as pd

        cells = {column.name: [None, *_cells(column)] for column in model.columns_}
        return pd.DataFrame(cells, dtype=object)
    rows = np.zeros((_ROWS, model.n_features_in_))
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def _cells(column: Any) -> tuple[Any, Any]:
    if column.kind == "category":
        return (*column.categories, "another", "another")[0], "a category nobody has seen"
    return {"date": ("2024-02-29", "?"), "text": ("some words", "")}.get(column.kind, ("1", "0"))

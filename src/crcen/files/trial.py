"""A loaded model answers made-up rows before it is given out: parts that do not fit together are found here."""

import warnings
from collections.abc import Iterator
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
        if hasattr(model, "background_"):
            typical = np.asarray(model.estimator_.predict_proba(model.background_))
            if not len(typical) or not np.isfinite(typical).all():
                raise ValueError("its typical rows are none")
    if probabilities.shape != (_ROWS, len(model.classes_)) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("its probabilities are none")
    for part in (model, getattr(model, "estimator_", model)):
        labels = list(part.classes_)
        if len(labels) < 2 or getattr(part, "pos_label_", labels[0]) not in labels:
            raise ValueError("its labels are not two or more")
    allowed = [*model.classes_, *getattr(getattr(model, "costs_", None), "actions", ())]
    if decisions.shape != (_ROWS,) or not all(one in allowed for one in decisions.tolist()):
        raise ValueError("its decisions are no labels")


def made_up_rows(model: Any) -> Any:
    """Rows such as the model was trained on, as far as its state says."""
    if hasattr(model, "columns_"):
        import pandas as pd

        cells = {column.name: [None, *_cells(column)] for column in model.columns_}
        return pd.DataFrame(cells, dtype=object)
    inside = getattr(model, "estimator_", None)
    if type(model).__name__ == "PosteriorCorrection" and hasattr(inside, "columns_"):
        return made_up_rows(inside)
    if hasattr(model, "row_shape_"):
        return np.zeros((_ROWS, *model.row_shape_), dtype=np.int64 if model.has_whole_rows_ else np.float64)
    rows = np.zeros((_ROWS, model.n_features_in_))
    names = getattr(model, "feature_names_in_", None)
    labels = dict(_categories(model, names if names is not None else range(model.n_features_in_)))
    if names is None:
        if not labels:
            return rows
        rows = rows.astype(object)
        for name, label in labels.items():
            rows[:, name] = label
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names).assign(**{str(name): label for name, label in labels.items()})


def _categories(part: Any, columns: Any) -> Iterator[tuple[Any, Any]]:
    """A category that training had, for each column that goes to an encoder of categories first or after imputers."""
    if hasattr(part, "categories_"):
        yield from ((column, found[0]) for column, found in zip(columns, part.categories_, strict=True) if len(found))
    elif type(part).__name__ == "PosteriorCorrection":
        yield from _categories(part.estimator_, columns)
    elif hasattr(part, "transformers_"):
        columns = list(columns)
        for _, inner, chosen in part.transformers_:
            if not isinstance(inner, str) and isinstance(chosen, list):
                yield from _categories(inner, [columns[one] if isinstance(one, int) else one for one in chosen])
    elif hasattr(part, "steps"):
        for _, step in part.steps:
            yield from _categories(step, columns)
            if not hasattr(step, "statistics_"):  # another step may change the columns
                return


def _cells(column: Any) -> tuple[Any, Any]:
    if column.kind == "category":
        return (*column.categories, "another", "another")[0], "a category nobody has seen"
    return {"date": ("2024-02-29", "?"), "text": ("some words", "")}.get(column.kind, ("1", "0"))

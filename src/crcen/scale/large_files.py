"""fit_files: from Parquet files larger than memory to a saved model, in this process or on a Ray cluster."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crcen._support.extras import need
from crcen._support.whole_files import check_place
from crcen.exceptions import DataUnavailable, InvalidParameter
from crcen.files.saving import save
from crcen.models.classifier import CRCENClassifier
from crcen.scale.arrow_columns import index_columns
from crcen.scale.arrow_source import parquet_files
from crcen.scale.ray.fit import fit_ray
from crcen.scale.stream import fit_stream

__all__ = ["FilesFit", "fit_files"]

ENGINES = ("stream", "ray")


@dataclass(frozen=True, eq=False)
class FilesFit:
    """A model fitted to files; prints itself.

    Parameters
    ----------
    model : CRCENClassifier
        Ready to predict.
    data, target : str
        What it was fitted on.
    engine : str
        What trained it.
    seconds : float
        How long that took.
    path : Path or None
        Where the model was saved.
    notes : tuple of str
        What a person should know.
    """

    model: CRCENClassifier
    data: str
    target: str
    engine: str
    seconds: float
    path: Path | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        model, weighting = self.model, self.model.weighting_
        return {
            "data": self.data,
            "target": self.target,
            "positive": model.pos_label_.item() if hasattr(model.pos_label_, "item") else model.pos_label_,
            "rows": {"positive": weighting.n_pos, "negative": weighting.n_neg},
            "columns": [str(name) for name in model.feature_names_in_],
            "weighting": {"lam": weighting.lam, "alpha": weighting.alpha, "cost_ratio": weighting.cost_ratio},
            "network": {"hidden": list(model.hidden), "l2": model.l2, "epochs": model.n_iter_},
            "key_equation": {"residual": model.key_equation_.residual},
            "loss_curve": model.loss_curve_.tolist(),
            "engine": self.engine,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "path": None if self.path is None else str(self.path),
        }

    def __str__(self) -> str:
        model, weighting = self.model, self.model.weighting_
        lines = [
            f"{self.data}: {weighting.n_pos + weighting.n_neg:,.0f} rows, {weighting.n_pos:,.0f} with {self.target} = "
            f"{model.pos_label_} ({weighting.imbalance_ratio:.3g} negatives per positive)",
            f"Columns   {len(model.feature_names_in_)} numbers",
            f"Price     a miss is worth {weighting.cost_ratio:.6g} false alarms",
            f"Trained   {model.n_iter_} epochs by {self.engine} in {self.seconds:.0f} s; last loss "
            f"{model.loss_curve_[-1]:.5f}",
            f"Key equation on these rows: residual {model.key_equation_.residual:.1e}, by construction.",
            *(f"Note: {note}." for note in self.notes),
            "No row was held out, so nothing here says how good it is: crcen evaluate on other rows does.",
        ]
        if self.path is not None:
            lines.append(f"Saved to {self.path}")
        return "\n".join(lines)


def fit_files(
    data: str | Path,
    *,
    target: str,
    engine: str = "stream",
    positive: str | None = None,
    weighting: Any = "balanced",
    drop: tuple[str, ...] | list[str] = (),
    epochs: int = 5,
    workers: int = 2,
    storage: str | Path | None = None,
    random_state: int | None = 0,
    verbose: int = 0,
    out: str | Path | None = None,
) -> FilesFit:
    """Fit one network to Parquet files of numbers that need not fit in memory, and save it.

    Parameters
    ----------
    data : str or Path
        A file, a folder of .parquet files, or a pattern.
    target : str
        Column of labels.
    engine : {"stream", "ray"}
        In this process (`crcen.fit_stream`), or on a Ray cluster (`crcen.fit_ray`).
    positive : str, optional
        The label to find; default the rarer one.
    weighting
        As in `crcen.CRCENClassifier`.
    drop : list of str
        Columns to leave out.
    epochs : int
        Passes over the rows.
    workers, storage
        With Ray: how many train, and where checkpoints are kept.
    random_state, verbose
        As in `crcen.CRCENClassifier`.
    out : str or Path, optional
        Where to save the model.

    Returns
    -------
    FilesFit
        The model and what there is to say about it.
    """
    if engine not in ENGINES:
        raise InvalidParameter(f"engine must be one of {', '.join(ENGINES)}: got {engine!r}.")
    if out is not None:
        check_place(out, data)
    start = time.perf_counter()
    schema = _schema(data, target)
    names, label_type = list(schema.names), schema.field(target).type
    unknown = sorted(set(drop) - set(names))
    if unknown:
        raise InvalidParameter(f"there is no column {', '.join(unknown)} to leave out; there are {', '.join(names)}.")
    index = [name for name in index_columns(schema) if name not in {target, *drop}]
    notes = [f"{name} was the index of a pandas data frame and is left out" for name in index]
    settings: dict[str, Any] = {
        "epochs": epochs,
        "features": [name for name in names if name not in {target, *drop, *index}],
        "pos_label": None if positive is None else _as_label(positive, label_type),
        "random_state": random_state,
        "verbose": verbose,
    }
    if engine == "ray":
        model = fit_ray(data, target, weighting, num_workers=workers, storage_path=storage, **settings)
    else:
        model = fit_stream(data, target, weighting, **settings)
    seconds = time.perf_counter() - start
    path = save(model, out) if out is not None else None
    trained_by = f"{workers} workers of Ray" if engine == "ray" else "one process"
    return FilesFit(model, str(data), target, trained_by, seconds, path, tuple(notes))


def _schema(data: str | Path, target: str) -> Any:
    """Columns of the first file, the target among them."""
    pq = need("pyarrow.parquet", "tables")
    first = parquet_files(data)[0]
    try:
        schema = pq.read_schema(first)
    except (OSError, ValueError) as error:
        raise DataUnavailable(f"{first} cannot be read as Parquet: {' '.join(str(error).split())[:160]}") from error
    if target not in schema.names:
        raise InvalidParameter(f"{first} has no column {target!r}; it has {', '.join(schema.names[:12])}.")
    return schema


def _as_label(text: str, label_type: Any) -> Any:
    """A word of the command line as a label of a column."""
    import pyarrow as pa

    try:
        if pa.types.is_boolean(label_type):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if pa.types.is_integer(label_type):
            return int(text)
        return float(text) if pa.types.is_floating(label_type) else text
    except (KeyError, ValueError) as error:
        raise InvalidParameter(f"the positive label {text!r} is none of a column of {label_type}.") from error

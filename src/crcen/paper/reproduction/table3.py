"""Table 3: all methods on all sets, F1 and G-mean on test rows, beside the published numbers."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, log_loss

import crcen
from crcen._support.progress import steps
from crcen.datasets.dataset import Dataset
from crcen.exceptions import TrainingFailed
from crcen.paper.methods import Tuning, make_method
from crcen.paper.reproduction.protocol import OWN_METRIC, Split, select, splits
from crcen.paper.reproduction.published import published
from crcen.paper.reproduction.stand_ins import STAND_INS
from crcen.paper.reproduction.tuning import params_of
from crcen.paper.run_folder import RunFolder
from crcen.paper.tables import Table

__all__ = ["cells", "run_table3", "table3", "table3_ranks"]

METRICS = {"f1": "F1", "g_mean": "Gm"}


def run_table3(
    settings: Mapping[str, Any],
    methods: Sequence[str],
    folder: Path,
    selection: RunFolder,
    data_home: Path | None,
    engine: str = "local",
) -> RunFolder:
    """Fit and score what is missing; write rows and tables."""
    run = RunFolder(folder, {**settings, "methods": list(methods)}, key=("dataset", "split", "method"))
    todo = [
        (name, number, method)
        for name in settings["sets"]
        for number in range(settings["splits"])
        for method in methods
        if not run.has(dataset=name, split=number, method=method)
    ]
    data: Dataset | None = None
    with steps("table 3", len(todo)) as advance:
        for name, number, method in todo:
            if data is None or data.name != name:
                data = crcen.load_dataset(name, data_home)
            split = splits(data, settings)[number]
            run.add([_evaluate(data, split, method, settings, selection, engine)])
            advance(f"{name} split {number} {method}")
    for file, table in (("table3", table3(run.rows, settings)), ("table3_ranks", table3_ranks(run.rows))):
        run.write(f"{file}.md", table.markdown())
        run.write(f"{file}.csv", table.csv())
    run.finish()
    return run


def _evaluate(
    data: Dataset, split: Split, method: str, settings: Mapping[str, Any], selection: RunFolder, engine: str
) -> dict[str, Any]:
    """One row: a method fitted on a split's training rows and scored on its test rows; a failure is a row too."""
    row: dict[str, Any] = {"dataset": data.name, "split": split.number, "method": method}
    seed = settings["seed"] + split.number
    params: dict[str, Any] = {"random_state": seed}
    by_g_mean: dict[str, Any] | None = None
    stand_ins = STAND_INS if settings.get("reading") == "2019" else {}
    make: Callable[..., Any] = stand_ins.get(method, partial(make_method, method))
    try:
        tuning = Tuning() if crcen.METHODS[method].training is not None else crcen.METHODS[method].tuning
        if tuning is not None:
            start, searched = time.perf_counter(), len(selection.rows)
            chosen = select(selection, data, split, method, settings, engine)
            if len(selection.rows) > searched:
                row["search_seconds"] = time.perf_counter() - start
            if "error" in chosen:
                return row | {"error": chosen["error"]}
            params = params_of(tuning, chosen, settings, seed)
            tuned = [key for key in ("hidden", "l2", "cost_ratio") if key in chosen]
            row |= {key: chosen[key] for key in tuned} | {"cv_score": chosen["score"]}
            if settings["scoring"] == OWN_METRIC:
                other = chosen["g_mean"]
                by_g_mean = params_of(tuning, other, settings, seed)
                row |= {f"g_mean_{key}": other[key] for key in tuned}
        if method == "crcen_ensemble":
            params["n_members"] = settings["members"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # imbalanced-learn's notices about its own defaults
            start = time.perf_counter()
            model = make(**params).fit(data.X[split.train], data.y[split.train])
            row["seconds"] = time.perf_counter() - start
            if by_g_mean not in (None, params):
                other_model = make(**by_g_mean).fit(data.X[split.train], data.y[split.train])
    except (ValueError, TrainingFailed) as error:
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    scores = _scores(model, data.X[split.test], data.y[split.test])
    if by_g_mean not in (None, params):
        counts = crcen.confusion_counts(data.y[split.test], other_model.predict(data.X[split.test]))
        scores["g_mean"] = float(counts.g_mean)
    return row | scores


def _scores(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    counts = crcen.confusion_counts(y, model.predict(X))
    p = model.predict_proba(X)[:, 1]
    scores: dict[str, Any] = {name: int(getattr(counts, name)) for name in ("tp", "fp", "fn", "tn")}
    for name in ("recall", "specificity", "precision", "f1", "g_mean"):
        scores[name] = float(getattr(counts, name))
    scores["average_precision"] = float(average_precision_score(y, p))
    scores["log_loss"] = float(log_loss(y, p, labels=[0, 1]))
    if hasattr(model, "estimators_"):
        scores["estimators"] = len(model.estimators_)
    if isinstance(model, crcen.CRCENClassifier):
        equation = crcen.key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_)
        scores |= {"test_lhs": equation.lhs, "test_rhs": equation.rhs, "train_residual": model.key_equation_.residual}
    return scores


def cells(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], tuple[float, float, int]]:
    """(method, set, metric) → mean, standard deviation and number of splits; methods that failed are absent."""
    grouped: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        for metric in METRICS:
            if metric in row:
                grouped.setdefault((row["method"], row["dataset"], metric), []).append(row[metric])
    return {
        key: (float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else float("nan"), len(v))
        for key, v in grouped.items()
    }


def table3(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Table:
    """Mean ± sd over splits, the published value and the difference; best per column in bold, ours and the paper's."""
    ours = cells(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    sets = list(dict.fromkeys(row["dataset"] for row in rows))
    best = {(d, m): max((ours[k][0] for k in ours if k[1:] == (d, m)), default=np.nan) for d in sets for m in METRICS}
    best_paper = {
        (d, m): max((cell[0] for k in methods if (cell := published("table3", k, d, m))), default=np.nan)
        for d in sets
        for m in METRICS
    }
    lines = []
    for method in methods:
        line = {"method": crcen.METHODS[method].label}
        for d in sets:
            for metric, title in METRICS.items():
                paper = published("table3", method, d, metric)
                value = ours.get((method, d, metric))
                if value is None:
                    text = "failed"
                else:
                    mean = f"**{value[0]:.3f}**" if value[0] == best[d, metric] else f"{value[0]:.3f}"
                    text = f"{mean} ± {value[1]:.3f}"
                    if value[2] < settings["splits"]:
                        text += f" [{value[2]} of {settings['splits']} splits]"
                if paper:
                    printed = f"**{paper[0]:.3f}**" if paper[0] == best_paper[d, metric] else f"{paper[0]:.3f}"
                    text += f" (paper {printed}" + (f", {value[0] - paper[0]:+.3f})" if value else ")")
                line[f"{d} {title}"] = text
        lines.append(line)
    failed = sorted({f"{row['method']} on {row['dataset']}: {row['error']}" for row in rows if "error" in row})
    note = (
        f"Mean ± standard deviation over {settings['splits']} stratified splits, in brackets the published value and "
        f"our difference; hyperparameters selected by {settings['scoring']} ({settings['selection']})."
    )
    return Table("Table 3", lines, note + (" Failed: " + "; ".join(failed) + "." if failed else ""))


def table3_ranks(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Mean rank of each method over the columns, 1 is best, for our numbers and the published ones."""
    ours = {key: value[0] for key, value in cells(rows).items()}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    columns = sorted({key[1:] for key in ours})
    paper = {
        (method, *column): cell[0]
        for method in methods
        for column in columns
        if (cell := published("table3", method, *column))
    }
    groups = (
        ("ours", ours, methods),
        ("ours, the paper's methods only", ours, [method for method in methods if crcen.METHODS[method].in_paper]),
        ("paper", paper, list(dict.fromkeys(key[0] for key in paper))),
    )
    lines = []
    for method in methods:
        line = {"method": crcen.METHODS[method].label}
        for title, table, group in groups:
            ranks = [_rank(table, group, method, column) for column in columns] if method in group else []
            line[title] = f"{np.mean(ranks):.2f}" if ranks else ""
        if not all(crcen.METHODS[other].in_table3 for other in methods):  # some of the others are costly
            seconds = [row["seconds"] for row in rows if row["method"] == method and "seconds" in row]
            line["seconds a fit"] = f"{np.mean(seconds):.2f}" if seconds else "failed"
            searches = [row["search_seconds"] for row in rows if row["method"] == method and "search_seconds" in row]
            line["seconds a search"] = f"{np.mean(searches):.0f}" if searches else ""
        lines.append(line)
    note = "Mean rank over the columns of Table 3; a method that failed ranks last there."
    bounded = [crcen.METHODS[method] for method in methods if crcen.METHODS[method].budget]
    if bounded:
        note += " At most: " + "; ".join(f"{method.label} {method.budget}" for method in bounded) + "."
    return Table("Table 3, mean ranks", lines, note)


def _rank(
    table: Mapping[tuple[str, str, str], float], group: Sequence[str], method: str, column: tuple[str, str]
) -> float:
    """Rank among a group of methods with ties averaged; those without a value there are last."""
    values = [table.get((other, *column), -np.inf) for other in group]
    own = table.get((method, *column), -np.inf)
    above = sum(value > own for value in values)
    return above + (sum(value == own for value in values) + 1) / 2

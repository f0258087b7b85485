"""Table 3: all methods on all sets, F1 and G-mean on test rows, beside the published numbers."""

import time
import warnings
from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, log_loss

import crcen
from crcen._support.extras import need
from crcen._support.values import attributes
from crcen.datasets.benchmark import Dataset
from crcen.exceptions import TrainingFailed
from crcen.paper import Array, Classifier, Index, Make, Rows, Seed, Settings, Values
from crcen.paper.methods import factory, make_method
from crcen.paper.protocol import OWN_METRIC, Split, each_split, error_sentence, params_of, select, tuning_of
from crcen.paper.run_folder import RunFolder, Table, published

METRICS = {"f1": "F1", "g_mean": "Gm"}
Cell = tuple[str, str, str]  # method, set, metric


def _scikit_learn_mlp(sampler: str | None = None, random_state: Seed = None) -> Classifier:
    """MLPClassifier with its defaults, after resampling, on the columns as they are."""
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier((100,), alpha=1e-4, max_iter=200, random_state=random_state)
    if sampler is None:
        return network
    rebalance = getattr(need("imblearn.over_sampling", "baselines"), sampler)(random_state=random_state)
    return need("imblearn.pipeline", "baselines").make_pipeline(rebalance, network)


# RUSBoost by SAMME.R, and the balanced random forest with the defaults of imbalanced-learn 0.5.
_LIBRARIES_2019: dict[str, Make] = {
    "rusboost": factory("crcen.paper.classical.RealRUSBoostClassifier"),
    "balanced_rf": factory(
        "imblearn.ensemble.BalancedRandomForestClassifier",
        n_estimators=100, sampling_strategy="auto", replacement=False, bootstrap=True, max_features="sqrt",
    ),
}  # fmt: skip
# Reading → methods that replace those of the comparison; they are fitted with their defaults, without a search.
READINGS: dict[str, dict[str, Make]] = {
    "today": {},
    "2019": _LIBRARIES_2019,
    "scikit-learn": {
        "mlp": _scikit_learn_mlp,
        "adasyn": partial(_scikit_learn_mlp, "ADASYN"),
        "smote": partial(_scikit_learn_mlp, "SMOTE"),
        **_LIBRARIES_2019,
    },
}


def run_table3(
    settings: Settings, methods: list[str], folder: Path, selected: RunFolder, home: Path | None, engine: str = "local"
) -> RunFolder:
    """Fit and score what is missing; write rows and tables."""
    run = RunFolder(folder, {**settings, "methods": list(methods)}, key=("dataset", "split", "method"))
    every = product(settings["sets"], range(settings["splits"]), methods)
    todo = [one for one in every if not run.has(**dict(zip(run.key, one, strict=True)))]
    for data, split, method in each_split("table 3", todo, settings, home):
        run.add([_evaluate(data, split, method, settings, selected, engine)])
    run.write_tables({"table3": table3(run.rows, settings), "table3_ranks": table3_ranks(run.rows)})
    return run


def _evaluate(data: Dataset, split: Split, method: str, settings: Settings, selected: RunFolder, engine: str) -> Values:
    """A method fitted on a split's training rows and scored on its test rows; a failure is a row, too."""
    row: Values = {"dataset": data.name, "split": split.number, "method": method}
    seed = settings["seed"] + split.number
    params: Values = {"random_state": seed}
    by_g_mean: Values | None = None
    replaced = READINGS[settings.get("reading", "today")]
    make = replaced.get(method, partial(make_method, method))
    X, y, X_test, y_test = data.X[split.train], data.y[split.train], data.X[split.test], data.y[split.test]
    try:
        tuning = None if method in replaced else tuning_of(method)
        if tuning is not None:
            start, searched = time.perf_counter(), len(selected.rows)
            chosen = select(selected, data, split, method, settings, engine)
            if len(selected.rows) > searched:
                row["search_seconds"] = time.perf_counter() - start
            if "error" in chosen:
                return row | {"error": chosen["error"]}
            params = params_of(tuning, chosen, settings, seed)
            tuned = [key for key in ("hidden", "l2", "cost_ratio") if key in chosen]
            row |= {key: chosen[key] for key in tuned} | {"cv_score": chosen["score"]}
            if settings["scoring"] == OWN_METRIC:
                by_g_mean = params_of(tuning, chosen["g_mean"], settings, seed)
                row |= {f"g_mean_{key}": chosen["g_mean"][key] for key in tuned}
        if method == "crcen_ensemble":
            params["n_members"] = settings["members"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence, and imbalanced-learn's notices about its own defaults
            start = time.perf_counter()
            model = make(**params).fit(X, y)
            row["seconds"] = time.perf_counter() - start
            scores = _scores(model, X_test, y_test)
            if by_g_mean not in (None, params):
                other = make(**by_g_mean).fit(X, y)
                scores["g_mean"] = float(crcen.confusion_counts(y_test, other.predict(X_test)).g_mean)
    except (ValueError, TrainingFailed) as error:
        return row | {"error": error_sentence(error)}
    return row | scores


def _scores(model: Classifier, X: Array, y: Index) -> Values:
    counts = crcen.confusion_counts(y, model.predict(X))
    p = model.predict_proba(X)[:, 1]
    scores = attributes(counts, "tp fp fn tn recall specificity precision f1 g_mean")
    scores |= {"average_precision": float(average_precision_score(y, p)), "log_loss": log_loss(y, p, labels=[0, 1])}
    if hasattr(model, "estimators_"):
        scores["estimators"] = len(model.estimators_)
    if isinstance(model, crcen.CRCENClassifier):
        equation = crcen.key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_)
        scores |= {"test_lhs": equation.lhs, "test_rhs": equation.rhs, "train_residual": model.key_equation_.residual}
    return scores


def cells(rows: Rows) -> dict[Cell, tuple[float, float, int]]:
    """(method, set, metric) → mean, standard deviation and number of splits; failed methods are absent."""
    frame = pd.DataFrame(list(rows), columns=["method", "dataset", *METRICS]).melt(["method", "dataset"]).dropna()
    found = frame.groupby(["method", "dataset", "variable"], sort=False)["value"].agg(["mean", "std", "count"])
    return dict(zip(found.index, found.itertuples(index=False, name=None), strict=True))


def published_cells(methods: Iterable[str], columns: Iterable[tuple[str, str]]) -> dict[Cell, float]:
    """The published means of Table 3 by (method, set, metric)."""
    every = product(methods, columns)
    return {(name, *column): cell[0] for name, column in every if (cell := published("table3", name, *column))}


def table3(rows: Rows, settings: Settings) -> Table:
    """Ours, published and difference in every cell; the best of each column in bold, for both."""
    ours = cells(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    columns = [(d, m) for d in dict.fromkeys(row["dataset"] for row in rows) for m in METRICS]
    paper = published_cells(methods, columns)
    best = {c: max((value[0] for key, value in ours.items() if key[1:] == c), default=np.nan) for c in columns}
    best_paper = {c: max((value for key, value in paper.items() if key[1:] == c), default=np.nan) for c in columns}

    def bold(value: float, largest: float) -> str:
        return f"**{value:.3f}**" if value == largest else f"{value:.3f}"

    lines = []
    for method in methods:
        line = {"method": crcen.METHODS[method].label}
        for column in columns:
            value, text = ours.get((method, *column)), "failed"
            if value is not None:
                text = f"{bold(value[0], best[column])} ± {value[1]:.3f}"
                if value[2] < settings["splits"]:
                    text += f" [{value[2]} of {settings['splits']} splits]"
            if (method, *column) in paper:
                printed = paper[method, *column]
                difference = f", {value[0] - printed:+.3f}" if value else ""
                text += f" (paper {bold(printed, best_paper[column])}{difference})"
            line[f"{column[0]} {METRICS[column[1]]}"] = text
        lines.append(line)
    failed = sorted({f"{row['method']} on {row['dataset']}: {row['error']}" for row in rows if "error" in row})
    note = (
        f"Mean ± standard deviation over {settings['splits']} stratified splits, in brackets the published value and "
        f"our difference; hyperparameters selected by {settings['scoring']} ({settings['selection']})."
    )
    return Table("Table 3", lines, note + (" Failed: " + "; ".join(failed) + "." if failed else ""))


def table3_ranks(rows: Rows) -> Table:
    """Mean rank of each method over the columns, 1 is best, for our numbers and the published ones."""
    ours = {key: value[0] for key, value in cells(rows).items()}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    columns = sorted({key[1:] for key in ours})
    paper = published_cells(methods, columns)
    groups = (
        ("ours", ours, methods),
        ("ours, the paper's methods only", ours, [method for method in methods if crcen.METHODS[method].in_paper]),
        ("paper", paper, list(dict.fromkeys(key[0] for key in paper))),
    )
    mean_ranks = {}
    for title, table, group in groups:
        values = np.array([[table.get((method, *column), -np.inf) for column in columns] for method in group])
        found = rankdata(-values, axis=0).mean(axis=1) if group and columns else ()
        mean_ranks[title] = {method: f"{rank:.2f}" for method, rank in zip(group, found, strict=False)}
    has_costly = not all(crcen.METHODS[other].in_table3 for other in methods)
    lines = []
    for method in methods:
        line = {"method": crcen.METHODS[method].label}
        line |= {title: by_method.get(method, "") for title, by_method in mean_ranks.items()}
        if has_costly:
            own = [row for row in rows if row["method"] == method]
            seconds = [row["seconds"] for row in own if "seconds" in row]
            searches = [row["search_seconds"] for row in own if "search_seconds" in row]
            line["seconds a fit"] = f"{np.mean(seconds):.2f}" if seconds else "failed"
            line["seconds a search"] = f"{np.mean(searches):.0f}" if searches else ""
        lines.append(line)
    note = "Mean rank over the columns of Table 3; a method that failed ranks last there."
    bounded = [crcen.METHODS[method] for method in methods if crcen.METHODS[method].budget]
    if bounded:
        note += " At most: " + "; ".join(f"{method.label} {method.budget}" for method in bounded) + "."
    return Table("Table 3, mean ranks", lines, note)

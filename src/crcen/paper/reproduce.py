"""`crcen reproduce`: Tables 1 to 3, Figure 1 and the claims of the paper, reproduced beside the published numbers."""

import os
import time
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from io import BytesIO
from itertools import product
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, log_loss

import crcen
from crcen._support.extras import need
from crcen._support.files import exclusive_lock, write_atomic
from crcen._support.progress import steps
from crcen._support.text import attributes, closest
from crcen.datasets.benchmark import Dataset
from crcen.exceptions import TrainingFailed
from crcen.paper import Array, Classifier, Index, Make, Rows, Seed, Settings, Values, protocol
from crcen.paper.methods import Tuning, factory, make_method
from crcen.paper.protocol import OWN_METRIC, RunFolder, Split, Table, published
from crcen.theory.expense import ExpenseTable
from crcen.theory.price import sigmoid
from crcen.theory.rows import Axes
from crcen.training.engines import find_engine
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import choice

# λ = ½, N₀/(N₀+N₁), 2N₀/(2N₀+N₁): no weight, α = 1, α = 2.
WEIGHTINGS: Values = {"half": None, "balanced": "balanced", "double": crcen.Alpha(2)}
SIMULATIONS = {"sim1": crcen.make_sim1, "sim2": crcen.make_sim2}
_LABELS = {"half": "λ = 1/2", "balanced": "λ = N0/(N0+N1)", "double": "λ = 2N0/(2N0+N1)"}


def run_table1(settings: Settings, folder: Path, engine: str = "local") -> RunFolder:
    """Train what is missing, stack by stack, and write rows and table."""
    run = RunFolder(folder, settings, key=("simulation", "run", "weighting"))
    at_once, n_runs = int(settings["runs_at_once"]), int(settings["runs"])
    starts = range(0, n_runs, at_once)
    parts = [(name, range(start, min(start + at_once, n_runs))) for name in SIMULATIONS for start in starts]
    missing = [(name, runs) for name, runs in parts if not run.has(simulation=name, run=runs[-1], weighting="double")]
    with steps("table 1", len(missing)) as advance:
        for name, runs in missing:
            run.add(_simulate(name, runs, settings, engine))
            advance(f"{name} runs {runs[0]} to {runs[-1]}")
    run.write_tables({"table1": table1(run.rows)})
    return run


def _simulate(name: str, runs: Sequence[int], settings: Settings, engine: str) -> list[Values]:
    """All networks of some runs of one simulation, in one stack."""
    make, n_pos, n_neg, n_test = SIMULATIONS[name], settings["n_pos"], settings["n_neg"], settings["n_test"]
    prices = {label: crcen.resolve(weighting, n_pos, n_neg) for label, weighting in WEIGHTINGS.items()}
    train_sets, jobs, owners = [], [], []
    for i, run in enumerate(runs):
        seeds = np.random.SeedSequence([settings["seed"], list(SIMULATIONS).index(name), run]).spawn(2)
        train_sets.append(make(n_pos, n_neg, seeds[0]))
        test = make(n_test, n_test, seeds[1])
        pool = i * (n_pos + n_neg) + np.arange(n_pos + n_neg)
        jobs += [_job(name, resolved.lam, pool, run, settings) for resolved in prices.values()]
        owners += [(run, train_sets[-1], test, *price) for price in prices.items()]
    X, y = np.concatenate([d.X for d in train_sets]), np.concatenate([d.y for d in train_sets])
    rows = []
    for (run, train, test, label, resolved), result in zip(owners, find_engine(engine)(X, y, jobs), strict=True):
        if result.network is None:
            raise TrainingFailed(f"table 1, {name}, run {run}: {result.status.value}.")
        logits = result.network.logits
        fitted, unseen = (crcen.key_equation(own.y, sigmoid(logits(own.X)), resolved) for own in (train, test))
        row = {"simulation": name, "run": run, "weighting": label, "lam": resolved.lam}
        row |= attributes(unseen, "lhs rhs mean_pos mean_neg")
        rows.append({**row, "train_residual": fitted.residual, "n_iter": result.n_iter})
    return rows


def _job(name: str, lam: float, pool: Index, run: int, settings: Settings) -> TrainingJob:
    if name == "sim1":  # logistic regression, to its optimum
        how: Values = {"hidden": (), "solver": "lbfgs", "max_epochs": 200, "tol": 1e-8}
    else:
        how = {"hidden": tuple(settings["hidden"]), "activation": "sigmoid", "seed": run, "shuffle_seed": run}
        how |= {"max_epochs": settings["epochs"], "learning_rate": settings["learning_rate"]}
    return TrainingJob((1.0 - lam, lam), rows=pool, l2=0.0, **how)


def table1(rows: Rows) -> Table:
    """Means and standard deviations over runs beside the published ones."""
    lines = []
    groups = pd.DataFrame(list(rows)).groupby(["simulation", "weighting"], sort=False) if rows else ()
    for (name, label), own in groups:
        paper, mean, sd = published("table1", name, label, "lhs"), own["lhs"].mean(), own["lhs"].std()
        line = {
            "simulation": name.capitalize(),
            "weight": _LABELS[label],
            "theory (RHS)": f"{own['rhs'].iloc[0]:g}",
            "ours (LHS)": f"{mean:.2f} ({sd:.2f})",
            "paper (LHS)": f"{paper[0]:.2f} ({paper[1]:.2f})" if paper else "",
            "paper − ours, in our sd": f"{(paper[0] - mean) / sd:+.2f}" if paper else "",
            "largest training residual": f"{own['train_residual'].max():.1e}",
            "runs": str(len(own)),
        }
        lines.append(line)
    note = "Key equation (1 − q̄_pos)/q̄_neg on rows not seen in training; mean and standard deviation over runs."
    return Table("Table 1", lines, note)


def run_table2(settings: Settings, folder: Path, data_home: Path | None) -> RunFolder:
    """Load every set and write its description."""
    run = RunFolder(folder, {"sets": settings["sets"]}, key=("dataset",))
    for name in settings["sets"]:
        if not run.has(dataset=name):
            data = crcen.load_dataset(name, data_home)
            run.add([{"dataset": name} | attributes(data, "n_samples n_features n_pos imbalance_ratio source")])
    run.write_tables({"table2": table2(run.rows)})
    return run


def table2(rows: Rows) -> Table:
    """Sizes and imbalance ratios, ours and the paper's."""
    lines = []
    for row in rows:
        metrics = {"n_samples": "count", "n_features": "count", "imbalance_ratio": "ratio"}
        paper = {column: published("table2", row["dataset"], column, metric) for column, metric in metrics.items()}
        # The paper prints ratios to two digits.
        ours = {column: float(row[column]) for column in metrics}
        ours["imbalance_ratio"] = float(f"{ours['imbalance_ratio']:.2g}")
        agrees = all(cell is None or ours[column] == cell[0] for column, cell in paper.items())
        line = {
            "dataset": row["dataset"],
            "rows": str(row["n_samples"]),
            "features": str(row["n_features"]),
            "positive": str(row["n_pos"]),
            "IR": f"{row['imbalance_ratio']:.2f}",
            **{f"paper {column}": f"{cell[0]:g}" if cell else "" for column, cell in paper.items()},
            "agrees": "yes" if agrees else "no",
            "source": row["source"],
        }
        lines.append(line)
    return Table("Table 2", lines, "Data sets as loaded, beside the paper's description (IR there has two digits).")


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
    "rusboost": factory("crcen.paper.estimators.RealRUSBoostClassifier"),
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
    for data, split, method in protocol.each_split("table 3", todo, settings, home):
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
        tuning = None if method in replaced else protocol.tuning_of(method)
        if tuning is not None:
            start, searched = time.perf_counter(), len(selected.rows)
            chosen = protocol.select(selected, data, split, method, settings, engine)
            if len(selected.rows) > searched:
                row["search_seconds"] = time.perf_counter() - start
            if "error" in chosen:
                return row | {"error": chosen["error"]}
            params = protocol.params_of(tuning, chosen, settings, seed)
            tuned = [key for key in ("hidden", "l2", "cost_ratio") if key in chosen]
            row |= {key: chosen[key] for key in tuned} | {"cv_score": chosen["score"]}
            if settings["scoring"] == OWN_METRIC:
                by_g_mean = protocol.params_of(tuning, chosen["g_mean"], settings, seed)
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
        return row | {"error": protocol.error_sentence(error)}
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


CURVES = {"retrained": "a network for each weight", "threshold": "one network, threshold moved"}
_LEGEND = "thin lines: range over splits; ×: the number of misses did not fall; ↑: off the scale"
_COLOURS = {"retrained": "#0072b2", "threshold": "#d55e00"}  # distinguishable for colour-blind readers


def run_figure1(
    settings: Settings, alphas: list[float], folder: Path, selected: RunFolder, home: Path | None, engine: str = "local"
) -> RunFolder:
    """Count misses and false alarms where they are missing; write rows, tables and the figure."""
    run = RunFolder(folder, {**settings, "alphas": list(alphas)}, key=("dataset", "split", "curve", "weight"))
    # A split is done when its last row is there: a kill may have interrupted writing.
    last = {"curve": list(CURVES)[-1], "weight": f"{alphas[-1]:g}"}
    every = [(name, number, "") for name in settings["sets"] for number in range(settings["splits"])]
    todo = [one for one in every if not run.has(dataset=one[0], split=one[1], **last)]
    for data, split, _ in protocol.each_split("figure 1", todo, settings, home):
        run.add(_counts(data, split, alphas, settings, selected, engine))
    for suffix in ("svg", "png"):
        run.write(f"figure1.{suffix}", draw_figure1(run.rows, suffix))
    run.write_tables(figure1_tables(run.rows, settings))
    return run


def _counts(
    data: Dataset, split: Split, alphas: Sequence[float], settings: Settings, selected: RunFolder, engine: str
) -> list[Values]:
    """(FN, FP) on a split's test rows for every weight, by retraining and by moving the plain network's threshold."""
    chosen = protocol.select(selected, data, split, "crcen", settings, engine)
    params = protocol.params_of(Tuning(), chosen, settings, settings["seed"] + split.number)
    X, y = data.X[split.train], data.y[split.train]
    X_test, y_test = data.X[split.test], data.y[split.test]
    n_pos, test_pos = int(y.sum()), int(y_test.sum())
    path = {"½": crcen.resolve(None, n_pos, len(y) - n_pos)}
    path |= {f"{alpha:g}": crcen.resolve(crcen.Alpha(alpha), n_pos, len(y) - n_pos) for alpha in alphas}
    natural = make_method("mlp", **params).fit(X, y).decision_function(X_test)  # λ = ½: the natural logit
    rows = []
    for weight, resolved in path.items():
        decisions = {
            "retrained": make_method("crcen", weighting=resolved, **params).fit(X, y).predict(X_test),
            "threshold": natural + resolved.logit_shift > 0,
        }
        for curve, predicted in decisions.items():
            counts = crcen.confusion_counts(y_test, predicted)
            rows.append(
                {"dataset": data.name, "split": split.number, "curve": curve, "weight": weight}
                | {"cost_ratio": resolved.cost_ratio, "fn": int(counts.fn), "fp": int(counts.fp)}
                | {"n_pos": test_pos, "n_neg": len(y_test) - test_pos}
            )
    return rows


def expenses(rows: Rows) -> list[Values]:
    """Per (set, curve, step): expense of the counts summed over splits, that of each split, and the bracket."""
    entries = []
    for (name, curve), own in pd.DataFrame(list(rows)).groupby(["dataset", "curve"], sort=False):
        per_split = [_table(part).steps for _, part in own.groupby("split", sort=False)]
        summed = own.groupby("weight", sort=False).agg({"cost_ratio": "mean", "fn": "sum", "fp": "sum"})
        for i, step in enumerate(_table(summed).steps):
            entries.append(
                {"dataset": name, "curve": curve, "from": summed.index[i], "to": summed.index[i + 1]}
                | {"expense": step.expense, "reason": step.reason, "verdict": step.verdict}
                | {"low": step.bracket_low, "high": step.bracket_high}
                | {"per_split": np.array([steps[i].expense for steps in per_split])}
                | {"pairs": [(step.fn_start, step.fp_start), (step.fn_end, step.fp_end)]}
            )
    return entries


def _table(points: pd.DataFrame) -> ExpenseTable:
    return crcen.expense_table([crcen.CostRatio(c) for c in points["cost_ratio"]], points["fn"], points["fp"])


def figure1_tables(rows: Rows, settings: Settings) -> dict[str, Table]:
    """The expense of each step, and the (FN, FP) pairs."""
    lines = []
    for entry in expenses(rows):
        known = entry["per_split"][np.isfinite(entry["per_split"])]
        line = {
            "dataset": entry["dataset"],
            "curve": CURVES[entry["curve"]],
            "step": f"{entry['from']} → {entry['to']}",
            "expense": f"{entry['expense']:.2f}" if np.isfinite(entry["expense"]) else entry["reason"],
            "over splits": f"{known.min():.2f} to {known.max():.2f}" if len(known) else "",
            "splits defined": f"{len(known)} of {len(entry['per_split'])}",
            "bracket": f"[{entry['low']:.2f}, {entry['high']:.2f}]",
            "verdict": entry["verdict"],
        }
        lines.append(line)
    pairs: list[Values] = []
    frame = pd.DataFrame(list(rows))
    for name, curve in product(frame["dataset"].unique(), CURVES):
        for split, own in frame[(frame["dataset"] == name) & (frame["curve"] == curve)].groupby("split"):
            labels = ["λ = ½" if weight == "½" else f"α = {weight}" for weight in own["weight"]]
            counts = [f"({fn}, {fp})" for fn, fp in zip(own["fn"], own["fp"], strict=True)]
            about = {"dataset": name, "curve": CURVES[curve], "split": str(split)}
            pairs.append(about | dict(zip(labels, counts, strict=True)))
    chosen = f"Hyperparameters selected by {settings['scoring']} ({settings['selection']})."
    note = "Expense of counts summed over the test parts of all splits; the bracket is [α₁·IR, α₂·IR] (λ = ½ is c = 1)."
    return {
        "figure1": Table("Figure 1, expense", lines, f"{note} {chosen}"),
        "figure1_pairs": Table("Figure 1, counts", pairs, f"(FN, FP) on the test rows of each split. {chosen}"),
    }


def draw_figure1(rows: Rows, suffix: str) -> bytes:
    """One panel per set: both curves, their range over splits, the bracket of each step, undefined steps marked."""
    need("matplotlib", "plots")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    entries = expenses(rows)
    names = list(dict.fromkeys(entry["dataset"] for entry in entries))
    n_columns = min(3, len(names))
    n_rows = -(-len(names) // n_columns)
    figure = Figure(figsize=(4.2 * n_columns, 3.2 * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax, name in zip(axes, names, strict=False):
        _panel(ax, name, [entry for entry in entries if entry["dataset"] == name])
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    look: Values = {"ncols": 3, "frameon": False, "fontsize": 9, "title": _LEGEND, "title_fontsize": 8}
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", **look)
    buffer = BytesIO()
    metadata = {"Date": None, "Creator": None} if suffix == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "crcen"}):  # the same rows give the same bytes
        figure.savefig(buffer, format=suffix, dpi=120, metadata=metadata)
    return buffer.getvalue()


def _panel(ax: Axes, name: str, entries: Rows) -> None:
    ends = list(dict.fromkeys(entry["to"] for entry in entries))
    for i, end in enumerate(ends):
        step = next(entry for entry in entries if entry["to"] == end)
        label = "bracket [α₁·IR, α₂·IR]" if i == 0 else None
        ax.fill_between([i - 0.35, i + 0.35], step["low"], step["high"], color="#999999", alpha=0.3, lw=0, label=label)
    top = 1.6 * max(entry["high"] for entry in entries)
    for offset, curve in ((-0.1, "retrained"), (0.1, "threshold")):
        own = [entry for entry in entries if entry["curve"] == curve]
        x = np.arange(len(own)) + offset
        ax.plot(x, [entry["expense"] for entry in own], "o-", color=_COLOURS[curve], ms=4, lw=1.3, label=CURVES[curve])
        for xi, entry in zip(x, own, strict=True):
            known = entry["per_split"][np.isfinite(entry["per_split"])]
            if len(known):
                ax.plot([xi, xi], [known.min(), known.max()], color=_COLOURS[curve], lw=1, alpha=0.6)
            if not np.isfinite(entry["expense"]):
                ax.text(xi, top, "×", color=_COLOURS[curve], ha="center", va="top")
            elif entry["expense"] > top:
                ax.text(xi, top, f"↑{entry['expense']:.0f}", color=_COLOURS[curve], ha="center", va="top", fontsize=8)
    ax.set_ylim(0, top)
    ax.set_xticks(range(len(ends)), ends)
    ax.set_title(name, fontsize=10)
    ax.set_xlabel("α at which the step ends")
    ax.set_ylabel("expense (false alarms per catch)")
    ax.spines[["top", "right"]].set_visible(False)


Claim = tuple[str, str, str]  # claim, verdict, number


def claims(table1: Rows, table3: Rows, figure1: Rows, settings: Settings) -> Table:
    """Claim, verdict and number for every statement of the paper that our results can test."""
    found = [_simulation_claim(table1), *performance_claims(table3), *expense_claims(figure1)]
    names = ("claim of the paper", "verdict here", "measured")
    note = (
        "Verdicts are derived from the rows of Tables 1 and 3 and Figure 1, whose hyperparameters were selected by "
        f"{settings['scoring']} ({settings['selection']})."
    )
    return Table("The paper's claims", [dict(zip(names, one, strict=True)) for one in found], note)


def _simulation_claim(rows: Rows) -> Claim:
    within = []
    for (simulation, label), lhs in pd.DataFrame(list(rows)).groupby(["simulation", "weighting"])["lhs"]:
        paper = published("table1", simulation, label, "lhs")
        if paper and len(lhs) > 1:
            within.append(abs(paper[0] - lhs.mean()) <= 2 * lhs.std())
    number = f"{sum(within)} of {len(within)} published means within 2 of our sd"
    return "simulated values match the key equation", "holds" if all(within) else "holds in part", number


def _by_method(values: Mapping[Cell, float], columns: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Cells as a table with a row for each method; those that the claims name have NaN where they failed."""
    named = ["crcen", "csmlp", "mlp", "mlp_threshold"]
    found = pd.DataFrame({c: {key[0]: value for key, value in values.items() if key[1:] == c} for c in columns})
    return found.reindex([*found.index, *(name for name in named if name not in found.index)])


def performance_claims(rows: Rows) -> Iterator[Claim]:
    """Claims of the paper about Table 3; a method may have failed."""
    means = {key: value[0] for key, value in cells(rows).items()}
    sets = list(dict.fromkeys(row["dataset"] for row in rows))
    columns = [(name, metric) for name in sets for metric in METRICS]
    every = _by_method(means, columns)
    table = every[[crcen.METHODS[name].in_paper for name in every.index]]
    paper = _by_method(published_cells({name for name, *_ in means}, columns), columns)
    own = table.loc["crcen"]

    wins, paper_wins = (int((cells.loc["crcen"] >= cells.max()).sum()) for cells in (table, paper))
    number = f"best in {wins} of {len(columns)} columns of Table 3, {paper_wins} in the paper"
    verdict = "holds" if wins > len(columns) / 2 else "in part" if wins >= len(columns) / 4 else "does not hold"
    yield "CRCEN has an overall better performance than the others", verdict, number

    gaps = (own - table.loc["csmlp"]).dropna()
    if len(gaps):
        mean = gaps.mean()
        verdict = "holds" if mean > 0.001 else "comparable, not better" if mean > -0.02 else "does not hold"
        number = f"mean difference {mean:+.3f}, CRCEN ahead in {int((gaps > 0).sum())} of {len(gaps)} cells"
        yield "CRCEN is slightly better than CSMLP and comparable", verdict, number

    gains = (table.drop(index="mlp") - table.loc["mlp"]).xs("g_mean", axis=1, level=1).stack().dropna()
    above = int((gains > 0).sum())
    verdict = "holds" if above == len(gains) else "holds mostly" if above > 0.8 * len(gains) else "in part"
    yield "every method gains over the plain MLP in G-mean", verdict, f"{above} of {len(gains)} method-set pairs"

    yield _rusboost_claim(rows, sets)

    moved = (every.loc["mlp_threshold"] - own).abs().dropna()
    if len(moved):
        number = f"mean absolute difference to CRCEN {moved.mean():.3f} over {len(moved)} cells"
        verdict = "holds" if moved.mean() < 0.03 else "does not hold"
        yield "(not in the paper) a plain MLP cut at 1−λ nearly ties", verdict, number

    for name in sets:
        of_crcen = (row for row in rows if row["dataset"] == name and row["method"] == "crcen")
        sides = [row["test_lhs"] for row in of_crcen if "test_lhs" in row]
        if sides:
            mean = float(np.mean(sides))
            verdict = "holds within a quarter" if 0.8 <= mean <= 1.25 else "misses by more than a quarter"
            number = f"left side {mean:.2f} on average ({min(sides):.2f} to {max(sides):.2f}), right side 1"
            yield f"the key equation carries over to unseen rows, α = 1: {name}", verdict, number


def _rusboost_claim(rows: Rows, sets: list[str]) -> Claim:
    judged = [row for row in rows if "recall" in row and crcen.METHODS[row["method"]].in_paper]
    means = pd.DataFrame(judged).groupby(["method", "dataset"])[["recall", "specificity"]].mean()
    own = means.reindex([("rusboost", name) for name in sets]).droplevel(0)
    count = int((own["recall"] >= means["recall"].groupby("dataset").max().reindex(sets)).sum())
    number = f"highest recall on {count} of {len(sets)} sets; mean recall {own['recall'].mean():.3f}, "
    number += f"specificity {own['specificity'].mean():.3f}"
    sizes = [row["estimators"] for row in rows if row["method"] == "rusboost" and "estimators" in row]
    is_cut_short = min(sizes, default=50) < 50
    if is_cut_short:
        number += f"; it stopped after {min(sizes)} to {max(sizes)} of its 50 base classifiers"
    verdict = "holds" if count > len(sets) / 2 else "does not hold" + " with today's RUSBoost" * is_cut_short
    return "RUSBoost is highest on the minority class, at the majority's cost", verdict, number


def expense_claims(rows: Rows) -> Iterator[Claim]:
    """Claims of the paper about Figure 1."""
    steps = {(e["dataset"], e["to"]): e for e in expenses(rows) if e["curve"] == "retrained"}
    sets = list(dict.fromkeys(d for d, _ in steps))
    ends = list(dict.fromkeys(end for _, end in steps))
    paths = [[steps[name, end]["expense"] for end in ends] for name in sets]
    rising = sum(bool(np.all(np.isfinite(path)) and np.all(np.diff(path) > 0)) for path in paths)
    verdict = "holds" if rising == len(sets) else "holds mostly" if rising > len(sets) / 2 else "in part"
    yield "expense rises with α", verdict, f"at every step on {rising} of {len(sets)} sets"

    for name in ("scene", "solar_flare_m0", "satimage", "us_crime"):
        if name in sets:
            (start, _), _ = steps[name, "1.5"]["pairs"]
            _, (end, _) = steps[name, "2"]["pairs"]
            verdict = "holds" if end >= start else "nearly holds" if end >= 0.9 * start else "does not hold"
            number = f"misses {start:.0f} → {end:.0f} from α = 1 to 2, summed over splits"
            yield f"no gain on the minority class beyond α = 1: {name}", verdict, number

    for name in ("satimage", "us_crime"):
        if name in sets:
            value, low, high = (steps[name, "1"][field] for field in ("expense", "low", "high"))
            verdict = "undefined" if np.isnan(value) else "holds" if value < 2 else "does not hold"
            found = "nothing more was caught;" if np.isnan(value) else f"{value:.2f}, where"
            number = f"{found} right probabilities give [{low:.2f}, {high:.2f}]"
            yield f"expense under 2 at α = 1: {name}", verdict, number

    if "abalone" in sets:
        own = [row for row in rows if row["dataset"] == "abalone" and row["curve"] == "retrained"]
        half, one = ([(row["fn"], row["fp"]) for row in own if row["weight"] == w] for w in ("0.5", "1"))
        listed = "; ".join(f"{a} → {b}" for a, b in zip(half, one, strict=True))
        step = steps["abalone", "1"]
        verdict = "in the same bracket" if step["verdict"] == "inside" else "outside its bracket"
        yield "Abalone (32, 158) → (13, 263), expense 5.53", verdict, f"{listed}; {step['expense']:.2f}"

    inside = sum(entry["verdict"] == "inside" for entry in steps.values())
    number = f"{inside} of {len(steps)} steps inside their bracket (counts summed over splits, no allowance for noise)"
    verdict = "holds mostly" if inside > 0.75 * len(steps) else "in part"
    yield "(not in the paper) expense lies in [α₁·IR, α₂·IR]", verdict, number


ARTEFACTS = ("table1", "table2", "table3", "figure1")
_CHOICES = {"selection": ("first_split", "per_split"), "scoring": ("f1", "g_mean", "weighted_log_loss", OWN_METRIC)}
_ARTEFACTS_OF = {"today": (*ARTEFACTS, "all"), "2019": ("table3", "figure1"), "scikit-learn": ("table3",)}


@dataclass(frozen=True)
class Reproduction:
    """Markdown texts to print, and the folder that holds everything."""

    folder: Path
    texts: list[str]


def read_settings(quick: bool, config: str | os.PathLike[str] | None = None, reading: str = "today") -> Values:
    """The packaged settings, full or quick, overridden by those of a reading and of a TOML file."""
    settings = _packaged_settings("quick" if quick else "full")
    if reading != "today":
        for section, values in _packaged_settings(f"reading_{reading}").items():
            settings[section] |= values
        settings["protocol"]["reading"] = reading
    if config is None:
        return settings
    try:
        own = tomllib.loads(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise crcen.InvalidParameter(f"config {os.fspath(config)} cannot be read as TOML: {error}.") from error
    for section, values in own.items():
        known = settings.get(section, {})
        unknown = sorted(set(values) - set(known)) if isinstance(values, dict) else [section]
        if unknown or not known:
            allowed = ", ".join(known) if known else f"the sections {', '.join(settings)}"
            entry = f"an unknown entry in [{section}] ({', '.join(unknown) or section})"
            raise crcen.InvalidParameter(f"config {os.fspath(config)} has {entry}: allowed are {allowed}.")
        known |= values
    return settings


def _packaged_settings(name: str) -> Values:
    file = resources.files("crcen.paper").joinpath("configs", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def reproduce(
    artefact: str = "all",
    *,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    selection: str | None = None,
    scoring: str | None = None,
    config: str | os.PathLike[str] | None = None,
    engine: str = "local",
    methods: str | None = None,
    reading: str = "today",
) -> Reproduction:
    """Rebuild tables and figure of the paper; an interrupted run is resumed.

    ``quick`` has fewer repetitions and the bundled sets only. The run folder ``out`` is by default ``runs/`` and a hash
    of the settings; ``selection``, ``scoring`` and a TOML file ``config`` override the packaged settings. The rows do
    not depend on ``engine`` ("local" or "ray"). ``methods`` of Table 3 are separated by commas, or "all".

    The reading states how open details of the paper are interpreted. "2019": 200 epochs, weak penalties, each
    cell selected by its own metric, RUSBoost and balanced random forest as their libraries had them. "scikit-learn":
    plain and resampled networks are `MLPClassifier` with its defaults on the columns as they are, CRCEN and CSMLP see
    the same columns, ensembles as in "2019".
    """
    find_engine(engine)
    choice("artefact", artefact, (*ARTEFACTS, "all"))
    choice("reading", reading, READINGS)
    if artefact not in _ARTEFACTS_OF[reading]:
        allowed = " and ".join(_ARTEFACTS_OF[reading])
        raise crcen.InvalidParameter(f"the reading {reading} is of {allowed}: got {artefact}.")
    settings = read_settings(quick, config, reading)
    shared = settings["protocol"]
    shared |= {name: given for name, given in (("selection", selection), ("scoring", scoring)) if given is not None}
    for name in _CHOICES.keys() & shared.keys():
        choice(name, shared[name], _CHOICES[name])
    if methods is not None and artefact not in ("table3", "all"):
        raise crcen.InvalidParameter(f"methods are those of table3: got {artefact}.", parameter="methods")
    if methods is not None:
        own = settings["table3"]["methods"]
        settings["table3"]["methods"] = method_names(methods, own if reading == "scikit-learn" else crcen.METHODS)
    folder = Path(out or f"runs/{'quick' if quick else 'full'}-{protocol.settings_hash(settings)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{folder} cannot be a run folder ({error.strerror}); give another --out."
        raise crcen.InvalidParameter(message) from error
    home = Path(data_home) if data_home is not None else None
    with exclusive_lock(folder, instead="give another --out"):
        return _rebuild(artefact, settings, folder, home, engine)


def method_names(text: str, allowed: Iterable[str] | None = None) -> list[str]:
    """Names of methods from a comma-separated text, or all of them."""
    known = list(crcen.METHODS if allowed is None else allowed)
    if text.strip() == "all":
        return known
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names or [text]:
        if name not in known:
            near = closest(name, known)
            message = f"there is no method {name!r}{f', did you mean {near}?' if near else '.'}"
            raise crcen.InvalidParameter(f"{message} Allowed are all, or some of {', '.join(known)}.")
    return list(dict.fromkeys(names))


def _rebuild(artefact: str, settings: Values, folder: Path, home: Path | None, engine: str) -> Reproduction:
    shared, runs, figure = settings["protocol"], dict[str, RunFolder](), ""
    wanted = ARTEFACTS if artefact == "all" else (artefact,)
    if "table1" in wanted:
        runs["table1"] = run_table1(settings["table1"], folder / "table1", engine)
    if "table2" in wanted:
        runs["table2"] = run_table2(shared, folder / "table2", home)
    if "table3" in wanted or "figure1" in wanted:
        selected = RunFolder(folder / "selection", shared, key=("dataset", "split", "method"))
    if "table3" in wanted:
        methods = settings["table3"]["methods"]
        runs["table3"] = run_table3(shared, methods, folder / "table3", selected, home, engine)
    if "figure1" in wanted:
        alphas = settings["figure1"]["alphas"]
        runs["figure1"] = run_figure1(shared, alphas, folder / "figure1", selected, home, engine)
        figure = (folder / "figure1" / "figure1.svg").read_text()
    tables = [table for run in runs.values() for table in run.tables]
    if artefact == "all":
        tables.append(claims(runs["table1"].rows, runs["table3"].rows, runs["figure1"].rows, shared))
        write_atomic(folder / "claims.md", tables[-1].markdown())
    # A single artefact has its own page, so that it does not replace that of all.
    write_atomic(folder / ("report.html" if artefact == "all" else f"{artefact}.html"), _page(tables, figure))
    return Reproduction(folder, [table.markdown() for table in tables])


def _page(tables: list[Table], figure: str) -> str:
    template = resources.files("crcen.paper").joinpath("report.html.j2").read_text(encoding="utf-8")
    sections = [table.html() for table in tables]
    if figure:
        at = next(i for i, table in enumerate(tables) if table.title.startswith("Figure 1"))
        sections.insert(at, f"<section><h2>Figure 1</h2>{figure[figure.index('<svg') :]}</section>")
    return jinja2.Template(template, keep_trailing_newline=True).render(sections=sections, version=crcen.__version__)

"""Figure 1: expense along a path of weights, with the theoretical bracket and a moved threshold beside it."""

import itertools
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import crcen
from crcen._support.extras import need
from crcen.datasets.benchmark import Dataset
from crcen.paper import Rows, Settings, Values
from crcen.paper.methods import Tuning, make_method
from crcen.paper.protocol import Split, each_split, params_of, select
from crcen.paper.run_folder import RunFolder, Table
from crcen.theory.expense import ExpenseTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    for data, split, _ in each_split("figure 1", todo, settings, home):
        run.add(_counts(data, split, alphas, settings, selected, engine))
    for suffix in ("svg", "png"):
        run.write(f"figure1.{suffix}", draw_figure1(run.rows, suffix))
    run.write_tables(figure1_tables(run.rows, settings))
    return run


def _counts(
    data: Dataset, split: Split, alphas: Sequence[float], settings: Settings, selected: RunFolder, engine: str
) -> list[Values]:
    """(FN, FP) on a split's test rows for every weight, by retraining and by moving the plain network's threshold."""
    chosen = select(selected, data, split, "crcen", settings, engine)
    params = params_of(Tuning(), chosen, settings, settings["seed"] + split.number)
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
        lines.append(
            {
                "dataset": entry["dataset"],
                "curve": CURVES[entry["curve"]],
                "step": f"{entry['from']} → {entry['to']}",
                "expense": f"{entry['expense']:.2f}" if np.isfinite(entry["expense"]) else entry["reason"],
                "over splits": f"{known.min():.2f} to {known.max():.2f}" if len(known) else "",
                "splits defined": f"{len(known)} of {len(entry['per_split'])}",
                "bracket": f"[{entry['low']:.2f}, {entry['high']:.2f}]",
                "verdict": entry["verdict"],
            }
        )
    pairs: list[Values] = []
    frame = pd.DataFrame(list(rows))
    for name, curve in itertools.product(frame["dataset"].unique(), CURVES):
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


def _panel(ax: "Axes", name: str, entries: Rows) -> None:
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

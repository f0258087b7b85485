"""write_report: one fitted model and labelled rows → one HTML file that needs nothing else."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.extras import installed_versions
from crcen._support.files import check_writable, write_atomic
from crcen._support.text import page_in_frame
from crcen._support.values import Values, json_value
from crcen._version import __version__
from crcen.exceptions import InvalidParameter
from crcen.report.charts import effect_charts, group_tables, importance_bars, reliability_charts
from crcen.report.checks import Finding, examine
from crcen.report.columns import column_effects, permutation_importance
from crcen.report.evidence import Evidence, gather, has_several_classes, kept_by
from crcen.report.measurements import DRAWN, compare, measure, measure_classes, quality_of, reliability
from crcen.report.rendering import asset, count, digits, embedded, page_names, percent, rendered
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.key_equation import EquationTest
from crcen.theory.labels import Labels
from crcen.theory.price import CostRatio
from crcen.theory.rows import Array, Estimator, Rows
from crcen.theory.selective import LabelSelection

# Classes with a reliability drawing, and with a page of their own.
MOST_CHARTS, MOST_PICKS = 12, 12
# Points of the curves of one class, all classes together.
_POINTS_OF_ALL = 8000
_LEAST_PRICE, _MOST_PRICE = 1e-3, 1e6
_STYLE, _SCRIPT = "@CRCEN-STYLE@", "@CRCEN-SCRIPT@"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pandas", "skrub")


@dataclass(frozen=True)
class Report:
    """A report that was written, with its size and the outcome of every check; usable wherever a path is."""

    path: Path
    n_bytes: int
    findings: tuple[Finding, ...]

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The checks that warn."""
        return tuple(finding for finding in self.findings if finding.status == "warning")

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        return page_in_frame(self.path)

    def __repr__(self) -> str:
        return f"<Report {self.path}: {self.n_bytes:,} bytes, {len(self.warnings)} of {len(self.findings)} checks warn>"


def write_report(
    model: Estimator,
    X: Rows,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    sample_weight: ArrayLike | None = None,
    title: str | None = None,
    data_name: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
    out_of_fold: ArrayLike | None = None,
    groups: Mapping[str, ArrayLike] | None = None,
    others: Mapping[str, ArrayLike] | None = None,
    costs: CostMatrix | None = None,
    selection: LabelSelection | None = None,
    is_audited: bool = False,
    recall_lows: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    is_stratified: bool = False,
    links: Sequence[tuple[str, str]] = (),
    random_state: int = 0,
) -> Report:
    """Write the results of a model on labelled rows as one self-contained HTML file, which loads and sends nothing.

    Parameters
    ----------
    model : object
        A fitted classifier with ``predict_proba`` and ``classes_``; ``weighting_``, ``pos_label_``, ``weighted_proba``,
        ``key_equation_``, ``oof_key_equation_`` and ``oof_decision_function_`` are used if it has them.
    X : DataFrame or array of shape (n, columns)
        Rows that took no part in training.
    y : array of shape (n,)
        Their labels, of at least two classes.
    path : str or path
        Where to write; an existing file is replaced, whole or not at all.
    sample_weight : array of shape (n,), optional
        Finite and not negative; counts are then sums of weights.
    title : str, optional
        Heading of the page.
    data_name, model_path : str, optional
        Names of the files of rows and model; of a path only the last part is shown.
    out_of_fold : array of shape (n,), or (n, K) for more than two classes, optional
        Natural probabilities by models that did not see these rows, if this one was trained on them.
    groups : dict of str to array of shape (n,), optional
        Groups to compare, by column: metrics, calibration and key equation of each (CRC010).
    others : dict of str to array of shape (n,) or (n, K), optional
        Natural probabilities by other models for these rows, of the positive class or of every class, to compare.
    costs : CostMatrix, optional
        Other costs of decisions than those of training, for more than two classes.
    selection : LabelSelection, optional
        How rows with and without a label differ (`crcen.theory.selective.label_selection`), for CRC011.
    is_audited : bool, default=False
        Whether labels were drawn with known probabilities, whose inverses are the sample weights.
    recall_lows : array of shape (K,), optional
        With audited labels: lower limits of the recall of each class (`crcen.theory.selective.recall_bounds`).
    clusters : array of shape (n,), optional
        Rows of the same cluster may depend on each other.
    is_stratified : bool, default=False
        Whether the class counts of these rows were fixed when they were drawn.
    links : sequence of (text, address), optional
        Documents that belong to the model, such as a declaration and a certificate.
    random_state : int, default=0
        Seed of the permutations.
    """
    place = check_writable(Path(path))
    if isinstance(random_state, bool) or not isinstance(random_state, int) or random_state < 0:
        raise InvalidParameter(f"random_state must be a whole number from 0, got {random_state!r}")
    if costs is not None and not has_several_classes(model):
        raise InvalidParameter(
            "costs must be left out: they are for several classes, and this page has a price to move."
        )
    evidence = gather(
        model,
        X,
        y,
        sample_weight,
        out_of_fold,
        groups=groups,
        costs=costs,
        selection=selection,
        is_audited=is_audited,
        recall_lows=None if recall_lows is None else np.asarray(recall_lows, dtype=np.float64),
        is_stratified=is_stratified,
        clusters=None if clusters is None else np.asarray(clusters),
        random_state=random_state,
    )
    findings = examine(evidence)
    end = "--budget" if evidence.has_positive else "--costs costs.csv --out scored.csv"
    names = page_names(title, data_name, model_path, end)
    models = compare(evidence, others or {}, names["model"] or "this model")
    if evidence.has_positive:
        price, parts = evidence.price.cost_ratio, _price_parts(evidence, findings, names, models)
    else:
        price, parts = None, _cost_parts(evidence, findings, models)
    importances = evidence.of(permutation_importance)
    shared: Values = {
        "findings": findings,
        "names": names,
        "links": list(links),
        "facts": _facts(evidence, names),
        "importance": json_value(asdict(importances)),
        "columns": importance_bars(importances),
        "groups": json_value(group_tables(evidence.groups, price)),
    }
    content = _render(**shared, **parts).encode("utf-8")
    write_atomic(place, content)
    return Report(place, len(content), findings)


def _render(**parts: object) -> str:
    """The page; parts that a page does not have are empty."""
    blank: Values = {"effects": [], "groups": [], "columns": [], "facts": {}, "findings": (), "sentences": []}
    values = {**blank, "is_part": False, **parts}
    return rendered("page.html.j2", values, asset("report.css"), asset("report.js"))


def _price_parts(
    evidence: Evidence, findings: Sequence[Finding], names: Mapping[str, str | None], models: Sequence[Values]
) -> Values:
    """Parts of a page about a positive class."""
    measured = measure(evidence, models)
    rows = measured["rows"]
    data = {**{name: measured[name] for name in DRAWN}, "command": names["command"], "rows": rows}
    share = f"{rows['n_positive_rows']:,} positive ({100.0 * rows['share']:.3g} %)"
    return {
        "has_positive": True,
        "measured": measured,
        "lead": f"{rows['n_rows']:,} rows, {share}",
        "sentences": sentences(measured, findings),
        "effects": effect_charts(column_effects(evidence)),
        "data": embedded(data),
    }


def _cost_parts(evidence: Evidence, findings: Sequence[Finding], models: Sequence[Values]) -> Values:
    """Parts of a page without a positive class."""
    measured, explored = measure_classes(evidence, models)
    picked = _picked(evidence)
    pages = [{"label": evidence.names[k], "html": _one_page(evidence, k, len(picked))} for k in picked]
    data = {"rows": explored, "decisions": measured["decisions"], "costs": measured["costs"], "pages": pages}
    counts = evidence.counts.tolist()
    return {
        "has_positive": False,
        "measured": measured,
        "lead": f"{evidence.n_rows:,} rows, {len(counts)} classes",
        "whose": "the model’s costs" if evidence.costs is None else "the stated costs",
        "sentences": class_sentences(evidence, findings),
        "equations": _equations(evidence.equations, evidence.is_out_of_fold),
        "reliability": reliability_charts(evidence.of(reliability), evidence.names, counts, MOST_CHARTS),
        "picks": [evidence.names[k] for k in picked],
        "data": embedded(data),
    }


def _equations(equations: EquationTest, is_out_of_fold: bool) -> Values:
    """The key equations as the page shows them."""
    lines = equations.lines()
    said = {"holds": "hold", "does not hold": "do not hold", "not tested": "were not tested"}[equations.verdict]
    said = f"they {said} ({lines[0].split(': ', 1)[1]})"
    if is_out_of_fold:
        said = "here the output biases were solved on these out-of-fold rows, so that it is none"
    pairs = next((line for line in lines if line.startswith("Pairs of classes")), ": ").split(": ", 1)[1]
    deviant = [str(one) for one in equations.deviant_pairs[:8]]
    return {**json_value(equations.to_dict()), "said": said, "pairs_said": pairs, "deviant": deviant}


# -- one class against the rest -----------------------------------------------------------------------------------


def _picked(evidence: Evidence) -> list[int]:
    """Classes with a page of their own: those that cost most, if they and others have rows."""
    cost, there = evidence.of(quality_of).cost_by_class, (evidence.counts > 0) & (evidence.counts < evidence.n_rows)
    return sorted(sorted(np.flatnonzero(there).tolist(), key=lambda k: -float(cost[k]))[:MOST_PICKS])


def price_of_class(costs: CostMatrix, k: int, counts: Array) -> float:
    """Cost of a miss of a class in rows of others taken for it: its mean extra cost over theirs, by counts."""
    others = np.flatnonzero(np.arange(costs.n_classes) != k)
    miss = float((costs.costs[k, others] - costs.costs[k, k]).mean())
    extra = costs.costs[others, k] - costs.costs[others, others]
    alarm = float(extra @ counts[others] / counts[others].sum())
    return float(np.clip(miss / alarm if alarm > 0.0 else _MOST_PRICE, _LEAST_PRICE, _MOST_PRICE))


def one_against_rest(evidence: Evidence, k: int) -> Evidence:
    """The evidence about one class as the positive one; its price follows from the costs of decisions."""
    classes, counts = np.empty(2, dtype=object), evidence.trained_counts
    classes[:] = [f"not {evidence.names[k]}", evidence.names[k]]
    labels = Labels(classes, classes[1])
    price = labels.resolve(
        CostRatio(price_of_class(evidence.cost_matrix, k, counts)), [counts.sum() - counts[k], counts[k]]
    )
    p = evidence.proba[:, k]
    return Evidence(
        SimpleNamespace(classes_=classes, pos_label_=classes[1]),
        labels,
        (evidence.y == k).astype(np.int64),
        np.column_stack([1.0 - p, p]),
        evidence.weights,
        price,
        is_weighted=evidence.is_weighted,
        is_out_of_fold=evidence.is_out_of_fold,
    )


def _one_page(evidence: Evidence, k: int, n_picked: int) -> str:
    """Explorer and curves of one class against the rest; the page puts in its own style and script."""
    one, target = one_against_rest(evidence, k), getattr(evidence.model, "target_name_", None) or "y"
    measured = measure(one, most_points=max(300, min(2000, _POINTS_OF_ALL // n_picked)))
    label = evidence.names[k]
    command = f"crcen fit train.csv --target {shlex.quote(target)} --positive {shlex.quote(label)} --budget"
    data = {**{name: measured[name] for name in DRAWN}, "command": command, "command_end": "--out one.crcen"}
    data["rows"] = measured["rows"]
    marks = {"style": _STYLE, "script": _SCRIPT}
    shown = {"has_positive": True, "measured": measured, "names": {"title": label}, "data": embedded(data)}
    return _render(is_part=True, **shown, **marks)


# -- the summary in words ------------------------------------------------------------------------------------------

_OUT_OF_FOLD = " All figures are out of fold: each row was judged by models trained without it."


def sentences(measured: Values, findings: Sequence[Finding]) -> list[str]:
    """The results of `measure` and `examine` as plain sentences."""
    rows, quality = measured["rows"], measured["quality"]
    by_weight = " by weight" if rows["is_weighted"] else ""
    saved = " The saved model was trained on all of them, and the importance of columns is its own."
    return [
        f"Of {count(rows['n_rows'])} rows, {count(rows['n_positive_rows'])} are “{rows['pos_label']}” "
        f"({percent(rows['share'])}{by_weight}); that is what the model looks for."
        + (_OUT_OF_FOLD + saved if rows["is_out_of_fold"] else ""),
        _price(quality),
        _outcome(quality, by_weight),
        _worth(rows, quality),
        check_sentence(findings),
    ]


def _against(cost: float, habit_cost: float) -> str:
    """How a cost compares with that of a habit."""
    saved = 1.0 - cost / habit_cost if habit_cost > 0.0 else 0.0
    return f"saves {percent(saved)} of" if saved >= 0.0 else f"costs {percent(-saved)} more than"


def _price(quality: Values) -> str:
    if not quality["has_price"]:
        return (
            "The model has no price of its own, so this page starts at one false alarm per catch, the usual threshold "
            "of one half. Move the slider to the value of a catch."
        )
    return (
        f"One more catch may cost up to {_alarms(quality['price'])}: the model raises an alarm where the probability "
        f"is above {percent(quality['threshold'])}."
    )


def _alarms(value: float) -> str:
    return f"{digits(value)} false alarm{'' if value == 1 else 's'}"


def _outcome(quality: Values, by_weight: str) -> str:
    alarms = quality["tp"] + quality["fp"]
    total = quality["tp"] + quality["fn"]
    if not alarms:
        return f"At this price it raises no alarm at all on these rows, and misses all {count(total)}."
    low, high = quality["recall_interval"]
    found = (
        f"It finds {count(quality['tp'])} of {count(total)}{by_weight} ({percent(quality['recall'])}; with this many "
        f"rows the true share is likely between {percent(low)} and {percent(high)})"
    )
    if not quality["tp"]:
        return f"It finds none of {count(total)} and raises {count(alarms)} false alarms."
    low, high = quality["precision_interval"]
    return (
        f"{found} with {count(alarms)} alarms, {count(quality['fp'])} of them false: {percent(quality['precision'])} "
        f"are right (likely {percent(low)} to {percent(high)}). On average a catch comes with "
        f"{_alarms(quality['false_alarms_per_catch'])}, and {digits(quality['alarms_per_1000'])} of every "
        "1,000 rows need a check."
    )


def _worth(rows: Values, quality: Values) -> str:
    price, total = quality["price"], rows["n_pos"] + rows["n_neg"]
    with_model = price * quality["fn"] + quality["fp"]
    without = min(price * rows["n_pos"], rows["n_neg"])
    habit = "raising no alarm" if price * rows["n_pos"] <= rows["n_neg"] else "raising an alarm for every row"
    limits = quality["cost_interval"]
    likely = "" if limits is None else f" (95 % interval {digits(limits[0])} to {digits(limits[1])})"
    return (
        f"Counting a miss as {_alarms(price)}, its errors cost {_alarms(1000.0 * with_model / total)} per "
        f"1,000 rows{likely}. That {_against(with_model, without)} the cost of {habit}, the better of the two policies "
        "without a model."
    )


def class_sentences(evidence: Evidence, findings: Sequence[Finding]) -> list[str]:
    """The same without a positive class."""
    quality, order = evidence.of(quality_of), np.argsort(-evidence.counts, kind="stable")
    shares = [f"{evidence.names[k]} {percent(float(evidence.counts[k] / evidence.n_rows))}" for k in order[:6]]
    more = f" and {len(order) - 6} rarer ones" if len(order) > 6 else ""
    held_out = _OUT_OF_FOLD if evidence.is_out_of_fold else ""
    worst, cost = int(np.argmax(quality.cost_by_class)), quality.cost
    part = quality.cost_by_class[worst] / cost.value if cost.value > 0.0 else 0.0
    return [
        f"{count(evidence.n_rows)} rows of {len(order)} classes: {', '.join(shares)}{more}.{held_out}",
        f"Decided by the least expected cost, a row costs {digits(cost.value)} (95 % interval {digits(cost.low)} to "
        f"{digits(cost.high)}). That {_against(quality.habit_cost - quality.saved.value, quality.habit_cost)} what "
        f"{quality.habit} for every row costs, {digits(quality.habit_cost)}, the cheapest single decision.",
        f"Most of it, {percent(float(part))}, comes from rows that are {evidence.names[worst]}, of which "
        f"{percent(quality.recalls[worst].value)} are found.",
        check_sentence(findings),
    ]


def check_sentence(findings: Sequence[Finding]) -> str:
    """Which checks warn; without a warning what was tested; and which checks could not be made."""
    codes = [finding.code for finding in findings if finding.status == "warning"]
    unknown = [finding.code for finding in findings if finding.status == "unknown"]
    left = f" Not tested: {', '.join(unknown)}." if unknown else ""
    if codes:
        n_made, verb = len(findings) - len(unknown), "warns" if len(codes) == 1 else "warn"
        named = ", ".join(codes)
        return f"{len(codes)} of {n_made} checks {verb} ({named}): read the warnings before using these figures.{left}"
    passed = [f"{finding.tested} ({finding.code})" for finding in findings if finding.status == "passed"]
    return f"No warnings. Tested: {'; '.join(passed)}.{left}" if passed else f"No check could be made.{left}"


# -- data, model and environment ----------------------------------------------------------------------------------


def _facts(evidence: Evidence, names: Mapping[str, str | None]) -> dict[str, list[tuple[str, str]]]:
    """Data, model and environment as pairs of text, by heading; no place on the machine is named."""
    model, price = evidence.model, evidence.price
    if evidence.has_positive:
        labels = [("positive label", str(evidence.labels.positive)), ("negative label", str(evidence.labels.negative))]
        priced = [
            ("price", f"{price.cost_ratio:.6g} false alarms per extra catch"),
            ("weight λ", f"{price.lam:.6g}"),
            ("multiplier α", f"{price.alpha:.6g}"),
            ("training rows", f"{price.n_pos:,.6g} positive, {price.n_neg:,.6g} negative"),
        ]
    else:
        labels = [("classes", ", ".join(evidence.names[:20]) + (" …" if len(evidence.names) > 20 else ""))]
        priced = [("training rows", f"{price.counts.sum():,.6g}")]
    data = [
        ("file", names["data"] or "not named"),
        ("rows", f"{evidence.n_rows:,}"),
        ("columns", f"{len(evidence.columns):,}"),
        *labels,
        ("judged", "out of fold, by models that did not see the row" if evidence.is_out_of_fold else "by this model"),
        ("sample weights", "yes" if evidence.is_weighted else "no"),
        ("seed of this report", str(evidence.random_state)),
    ]
    about = [("file", names["model"] or "not named"), ("kind", type(model).__name__)]
    about += priced if evidence.has_price else []
    chosen = kept_by(model, "best_params_")
    if isinstance(chosen, dict):
        about += [(str(name), str(value)) for name, value in chosen.items() if name != "weighting"]
    for line in kept_by(model, "leaderboard_") or ():
        weight = "" if line.weight != line.weight else f"weight {line.weight:.3g}, "
        scores = f"log loss {line.log_loss:.4g}, average precision {line.average_precision:.4g}"
        about.append((line.name, f"{weight}{scores}, ROC AUC {line.roc_auc:.4g} out of fold"))
    for label, attribute in (("epochs", "best_epochs_"), ("folds", "n_splits_")):
        value = kept_by(model, attribute)
        if value is not None:
            about.append((label, str(value)))
    versions = [("crcen", __version__), ("Python", platform.python_version()), *installed_versions(_PACKAGES).items()]
    versions.append(("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return {"Data": data, "Model": about, "Environment": versions}

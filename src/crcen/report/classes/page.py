"""The page of a model of several classes: costs that are typed, classes, key equations, one class against the rest."""

import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.extras import installed_versions
from crcen._support.values import json_value
from crcen._version import __version__
from crcen.exceptions import InvalidInput
from crcen.report.classes.class_importance import class_importance, rows_of_each_class
from crcen.report.classes.findings import ClassRows, class_reliability, compared_groups, examine_classes
from crcen.report.classes.one_class import class_separations, one_against_rest
from crcen.report.classes.reliability_charts import reliability_charts
from crcen.report.encoded_rows import EncodedRows, encoded_rows
from crcen.report.evidence import Evidence, answered_rows, kept_by
from crcen.report.finding import Finding
from crcen.report.group_panel import class_group_finding
from crcen.report.importance import Importances
from crcen.report.importance_bars import importance_bars
from crcen.report.measurements import DRAWN, key_equations, measure
from crcen.report.operating_points import operating_points
from crcen.report.reliability_groups import reliability_groups
from crcen.report.rendering import asset, embedded, policy
from crcen.report.wording import check_sentence, count, digits, percent
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.groups import GroupComparison
from crcen.theory.key_equation import EquationTest, judge_equations
from crcen.theory.limits import fitted_model_noise
from crcen.theory.metrics import Quality, measure_quality
from crcen.theory.price import Price
from crcen.theory.rows import check_row_weights

__all__ = ["class_page", "has_several_classes"]

Array = NDArray[np.float64]

# Numbers of the rows that the explorer decides again, classes with a reliability drawing, and with a page of their own.
MOST_NUMBERS, MOST_CHARTS, MOST_PICKS = 24_000, 12, 12
# Points of the curves of one class, all classes together.
_POINTS_OF_ALL = 8000
_STYLE, _SCRIPT = "@CRCEN-STYLE@", "@CRCEN-SCRIPT@"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pandas", "skrub")


def has_several_classes(model: Any) -> bool:
    """Whether a page about it is one of several classes: more than two, or costs of several actions."""
    classes = getattr(model, "classes_", ())
    return len(classes) > 2 or getattr(getattr(model, "weighting_", None), "positive", 1) is None


def class_page(
    environment: Any,
    model: Any,
    X: Any,
    y: Any,
    *,
    names: Mapping[str, str | None],
    sample_weight: Any,
    out_of_fold: Any,
    random_state: int,
    stated_costs: CostMatrix | None = None,
    groups: Any = None,
) -> tuple[str, tuple[Finding, ...]]:
    """The HTML of a model of several classes on labelled rows, and the outcome of its checks.

    Decisions are at the model's own costs, unless others are stated.
    """
    X, frame, numbers = answered_rows(model, X, y)
    weights = check_row_weights(sample_weight, numbers.size)
    encoded = encoded_rows(model, frame)
    p = _probabilities(model, X, encoded, out_of_fold, len(numbers))
    trained = getattr(model, "weighting_", None)
    labels = tuple(model.classes_.tolist())
    noise = 1.0
    if isinstance(trained, Price):
        noise = fitted_model_noise(weights, trained, kept_by(model, "profile_"))
    else:
        counts = np.bincount(numbers, weights, len(labels))
        trained = Price(np.ones(len(labels)), np.maximum(counts, 1e-9))
    kept = getattr(model, "costs_", None) if stated_costs is None else stated_costs
    costs = (trained.cost_matrix if kept is None else kept).for_classes(list(labels))
    error = kept_by(model, "training_error_") if out_of_fold is None else None
    equations = judge_equations(numbers, p, trained, labels, weights, noise=noise, error=error)
    rows = ClassRows(labels, numbers, p, weights, trained, equations.noise, out_of_fold is not None)
    quality = measure_quality(numbers, p, costs, weights)
    recognises = hasattr(model, "recognise") and out_of_fold is None
    recognition = model.recognise(frame) if recognises else None
    importances = class_importance(model, frame, encoded, rows, random_state)
    separations = class_separations(model, frame, rows, costs)
    findings = examine_classes(rows, quality, equations, recognition, separations, importances)
    compared = compared_groups(rows, costs, groups)
    findings = (*findings, class_group_finding(compared)) if compared else findings
    picked = _picked(rows, quality)
    pages = [
        _one_page(environment, one_against_rest(model, frame, encoded, rows, k, costs), model, picked) for k in picked
    ]
    measured, explored = _measured(rows, quality, random_state)
    style, script, one_script = asset("report.css"), asset("class_report.js"), asset("report.js")
    from jinja2.utils import markupsafe

    data = {"rows": explored, "decisions": measured["decisions"], "costs": measured["costs"]}
    data["pages"] = [{"label": str(labels[k]), "html": page} for k, page in zip(picked, pages, strict=True)]
    page: str = environment.from_string(asset("class_template.html.j2")).render(
        measured=measured,
        whose="the model’s costs" if stated_costs is None else "the stated costs",
        findings=findings,
        names=names,
        facts=_facts(model, rows, names, random_state),
        sentences=_sentences(rows, quality, findings),
        equations=_equations(equations, rows.is_out_of_fold),
        reliability=reliability_charts(class_reliability(rows), labels, rows.counts, MOST_CHARTS),
        importance=json_value(asdict(importances)),
        columns=importance_bars(asdict(importances)),
        groups=_groups(compared),
        picks=[str(labels[k]) for k in picked],
        policy=policy(style, script, one_script),
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        one_script=markupsafe.Markup(one_script),
        data=markupsafe.Markup(embedded(data)),
    )
    return page, findings


def _probabilities(model: Any, X: Any, encoded: EncodedRows | None, out_of_fold: Any, n_rows: int) -> Array:
    if out_of_fold is not None:
        p = np.asarray(out_of_fold, dtype=np.float64)
    elif encoded is not None:
        p = np.asarray(encoded.estimator.predict_proba(encoded.X), dtype=np.float64)
    else:
        p = np.asarray(model.predict_proba(X), dtype=np.float64)
    if p.shape != (n_rows, len(model.classes_)):
        raise InvalidInput(f"probabilities must have a column for each class and a row for each label: got {p.shape}.")
    if not np.isfinite(p).all() or (p < 0.0).any() or np.abs(p.sum(axis=1) - 1.0).max() > 1e-6:
        raise InvalidInput("probabilities must lie between 0 and 1 and sum to 1 in each row.")
    return p


def _picked(rows: ClassRows, quality: Quality) -> list[int]:
    """Classes that get a page of their own: those that cost most, if they and others have rows."""
    there = np.flatnonzero((rows.counts > 0) & (rows.counts < len(rows.y)))
    dearest = sorted(there.tolist(), key=lambda k: -float(quality.cost_by_class[k]))[:MOST_PICKS]
    return sorted(dearest)


def _measured(rows: ClassRows, quality: Quality, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers of the tables, and the rows that the explorer decides again."""
    values = quality.to_dict()
    top = max(max(one["cost_per_row"] for one in values["classes"]), 1e-300)
    classes = [
        {**one, "label": str(one["label"]), "bar": round(100 * one["cost_per_row"] / top, 1)}
        for one in values["classes"]
    ]
    chosen, weights = explored_rows(rows, seed)
    explored = {
        "labels": [str(label) for label in rows.labels],
        "y": rows.y[chosen].tolist(),
        "p": [[float(f"{one:.6g}") for one in column] for column in rows.p[chosen].T],
        "weights": None if (weights == 1.0).all() else [float(f"{one:.9g}") for one in weights],
    }
    measured = {
        "n_rows": len(rows.y),
        "n_explored": len(chosen),
        "is_sampled": len(chosen) < len(rows.y),
        "decisions": [str(name) for name in quality.names],
        "costs": [[float(f"{one:.6g}") for one in row] for row in quality.costs.costs.tolist()],
        "confusion": quality.counts.table.tolist(),
        "classes": classes,
        "cost": values["cost_per_row"],
        "habit": str(quality.habit),
        "habit_cost": quality.habit_cost,
    }
    shares = ("accuracy", "balanced_accuracy", "log_loss", "base_log_loss")
    return json_value({**measured, **{name: values[name] for name in shares}}), explored


def explored_rows(rows: ClassRows, seed: int) -> tuple[NDArray[np.int64], Array]:
    """Rows for the explorer and what each counts: all, or of many some of each class that count for all of it."""
    most = max(MOST_NUMBERS // len(rows.labels), len(rows.labels))
    return rows_of_each_class(rows, most, np.random.default_rng(seed))


def _one_page(environment: Any, evidence: Evidence, model: Any, picked: Sequence[int]) -> str:
    """Today's explorer and curves of one class against the rest; style and script are put in by the page's own."""
    from jinja2.utils import markupsafe

    points = operating_points(evidence.target, evidence.p, evidence.weights)
    groups = reliability_groups(evidence.target, evidence.p, evidence.q, evidence.weights)
    most = max(300, min(2000, _POINTS_OF_ALL // len(picked)))
    none = Importances((), evidence.n_rows, 0, 0.0, 0.0)
    measured = measure(evidence, points, groups, none, key_equations(evidence), most_points=most)
    target = getattr(model, "target_name_", None) or "y"
    label = str(evidence.pos_label)
    command = f"crcen fit train.csv --target {shlex.quote(target)} --positive {shlex.quote(label)} --budget"
    names = {"title": label, "data": None, "model": None, "command": command}
    data = {**{name: measured[name] for name in DRAWN}, "command": command, "command_end": "--out one.crcen"}
    data["rows"] = measured["rows"]
    page: str = environment.from_string(asset("template.html.j2")).render(
        measured=measured,
        is_part=True,
        findings=(),
        names=names,
        facts={},
        sentences=[],
        columns=[],
        effects=[],
        groups=[],
        policy=policy(asset("report.css"), asset("report.js")),
        style=markupsafe.Markup(_STYLE),
        script=markupsafe.Markup(_SCRIPT),
        data=markupsafe.Markup(embedded(data)),
    )
    return page


def _equations(equations: EquationTest, is_out_of_fold: bool) -> dict[str, Any]:
    lines = equations.lines()
    said = {"holds": "hold", "does not hold": "do not hold", "not tested": "were not tested"}[equations.verdict]
    said = f"they {said} ({lines[0].split(': ', 1)[1]})"
    if is_out_of_fold:
        said = "here the output biases were solved on these out-of-fold rows, so that it is none"
    pairs = next(line for line in lines if line.startswith("Pairs of classes")).split(": ", 1)[1]
    deviant = [str(one) for one in equations.deviant_pairs[:8]]
    return {**json_value(equations.to_dict()), "said": said, "pairs_said": pairs, "deviant": deviant}


def _groups(compared: Sequence[GroupComparison]) -> list[dict[str, Any]]:
    """What the page shows of each column of groups; bars of costs from 0 to 100."""
    shown = []
    for one in compared:
        top = max(
            [group.quality.cost.value for group in one.groups] + [group.quality.expected_cost for group in one.groups]
        )
        rows = [
            {
                **group.to_dict(),
                "bar": round(100.0 * group.quality.cost.value / (top or 1.0), 1),
                "equations": group.equation_sentence,
            }
            for group in one.groups
        ]
        shown.append({"column": one.column, "sentence": one.sentence, "differs": bool(one.differing), "groups": rows})
    return shown if not shown else list(json_value(shown))


def _sentences(rows: ClassRows, quality: Quality, findings: Sequence[Finding]) -> list[str]:
    """What was found, in the order in which one would tell it."""
    order = np.argsort(-rows.counts, kind="stable")
    shares = [f"{rows.labels[k]} {percent(float(rows.counts[k] / len(rows.y)))}" for k in order[:6]]
    more = f" and {len(order) - 6} rarer ones" if len(order) > 6 else ""
    held_out = (
        " All figures are out of fold: each row was judged by models trained without it." if rows.is_out_of_fold else ""
    )
    saved = quality.saved.value / quality.habit_cost if quality.habit_cost > 0.0 else 0.0
    verb = f"saves {percent(saved)} of" if saved >= 0.0 else f"costs {percent(-saved)} more than"
    dearest = int(np.argmax(quality.cost_by_class))
    part = quality.cost_by_class[dearest] / quality.cost.value if quality.cost.value > 0.0 else 0.0
    recall = quality.recalls[dearest]
    return [
        f"{count(len(rows.y))} rows of {len(rows.labels)} classes: {', '.join(shares)}{more}.{held_out}",
        f"Decided by the least expected cost, a row costs {digits(quality.cost.value)} (95 % interval "
        f"{digits(quality.cost.low)} to {digits(quality.cost.high)}). That {verb} what {quality.habit} for every row "
        f"costs, {digits(quality.habit_cost)}, the cheapest habit that needs no model.",
        f"Most of it, {percent(float(part))}, comes from rows that are {rows.labels[dearest]}, of which "
        f"{percent(recall.value)} are found.",
        check_sentence(findings),
    ]


def _facts(
    model: Any, rows: ClassRows, names: Mapping[str, str | None], random_state: int
) -> dict[str, list[tuple[str, str]]]:
    data = [
        ("file", names["data"] or "not named"),
        ("rows", f"{len(rows.y):,}"),
        ("classes", ", ".join(map(str, rows.labels[:20])) + (" …" if len(rows.labels) > 20 else "")),
        ("judged", "out of fold, by models that did not see the row" if rows.is_out_of_fold else "by this model"),
        ("sample weights", "yes" if (rows.weights != 1.0).any() else "no"),
        ("seed of this report", str(random_state)),
    ]
    about = [("file", names["model"] or "not named"), ("kind", type(model).__name__)]
    about.append(("training rows", f"{rows.trained.counts.sum():,.6g}"))
    environment = [("crcen", __version__), ("Python", platform.python_version())]
    environment += installed_versions(_PACKAGES).items()
    environment.append(("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return {"Data": data, "Model": about, "Environment": environment}

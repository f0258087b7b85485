"""write_report: one fitted model and labelled rows → one HTML file that needs nothing else."""

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
from crcen.report.checks import Finding, examine
from crcen.report.columns import column_effects, permutation_importance
from crcen.report.evidence import Evidence, gather, has_several_classes, kept_by
from crcen.report.measurements import DRAWN, compare, measure, measure_classes, quality_of, reliability
from crcen.report.rendering import asset, embedded, page_names, rendered
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import CostRatio, Labels
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
        raise InvalidParameter("costs must be left out: they are for several classes, and this page has a price.")
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
    parts = _price_parts(evidence, names, models) if evidence.has_positive else _cost_parts(evidence, models)
    importances = evidence.of(permutation_importance)
    shared: Values = {
        "findings": findings,
        "names": names,
        "links": list(links),
        "evidence": evidence,
        "facts": _facts(evidence.model),
        "importance": json_value(asdict(importances)),
        "groups": [
            {"about": one, "rows": [{**group.to_dict(), "equations": group.equation_sentence} for group in one.groups]}
            for one in evidence.groups
        ],
    }
    content = _render(**shared, **parts).encode("utf-8")
    write_atomic(place, content)
    return Report(place, len(content), findings)


def _render(**parts: object) -> str:
    """The page; parts that a page does not have are empty."""
    blank: Values = {"effects": [], "groups": [], "facts": {}, "findings": ()}
    values = {**blank, "is_part": False, **parts}
    return rendered("page.html.j2", values, asset("report.css"), asset("report.js"))


def _price_parts(evidence: Evidence, names: Mapping[str, str | None], models: Sequence[Values]) -> Values:
    """Parts of a page about a positive class."""
    measured, effects = measure(evidence, models), column_effects(evidence)
    data = {**{name: measured[name] for name in DRAWN}, "command": names["command"], "rows": measured["rows"]}
    return {"has_positive": True, "measured": measured, "effects": effects, "data": embedded(data)}


def _cost_parts(evidence: Evidence, models: Sequence[Values]) -> Values:
    """Parts of a page without a positive class."""
    measured, explored = measure_classes(evidence, models)
    picked = _picked(evidence)
    pages = [{"label": evidence.names[k], "html": _one_page(evidence, k, len(picked))} for k in picked]
    data = {"rows": explored, "decisions": measured["decisions"], "costs": measured["costs"], "pages": pages}
    order = np.argsort(-evidence.counts, kind="stable")
    return {
        "has_positive": False,
        "measured": measured,
        "shares": [(evidence.names[k], evidence.counts[k] / evidence.n_rows) for k in order],
        "whose": "the model’s costs" if evidence.costs is None else "the stated costs",
        "equations": json_value(evidence.equations.to_dict()),
        "reliability": {
            evidence.names[k]: groups for k, groups in evidence.of(reliability).items() if k in order[:MOST_CHARTS]
        },
        "picks": [evidence.names[k] for k in picked],
        "data": embedded(data),
    }


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
    ratio, p = CostRatio(price_of_class(evidence.cost_matrix, k, counts)), evidence.proba[:, k]
    price = labels.resolve(ratio, [counts.sum() - counts[k], counts[k]])
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


def _facts(model: Estimator) -> Values:
    """The model and its environment; no place on the machine is named."""
    chosen = kept_by(model, "best_params_")
    versions = {"crcen": __version__, "Python": platform.python_version(), **installed_versions(_PACKAGES)}
    return {
        "kind": type(model).__name__,
        "settings": chosen if isinstance(chosen, dict) else {},
        "leaderboard": kept_by(model, "leaderboard_") or (),
        "epochs": kept_by(model, "best_epochs_"),
        "folds": kept_by(model, "n_splits_"),
        "versions": versions,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }

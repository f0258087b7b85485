"""write_report: one fitted model and labelled rows → one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crcen._support.files import check_writable, write_atomic
from crcen._support.text import page_in_frame
from crcen._support.values import json_value
from crcen.exceptions import InvalidParameter
from crcen.report.classes.page import class_page, has_several_classes
from crcen.report.comparison import compare
from crcen.report.effect_charts import effect_charts
from crcen.report.effects import column_effects
from crcen.report.evidence import gather
from crcen.report.facts import facts_of
from crcen.report.finding import Finding
from crcen.report.findings import examine
from crcen.report.group_panel import check_groups, group_finding, group_tables
from crcen.report.importance import permutation_importance
from crcen.report.importance_bars import importance_bars
from crcen.report.measurements import DRAWN, key_equations, measure
from crcen.report.operating_points import operating_points
from crcen.report.reliability_groups import reliability_groups
from crcen.report.rendering import asset, embedded, environment, page_names, policy
from crcen.report.single_columns import separations
from crcen.report.wording import sentences

__all__ = ["Report", "write_report"]


@dataclass(frozen=True)
class Report:
    """A report that was written; usable wherever a path is.

    Parameters
    ----------
    path : Path
        The file.
    n_bytes : int
        Its size.
    findings : tuple of Finding
        Every check with its outcome.
    """

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
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str],
    *,
    sample_weight: Any = None,
    title: str | None = None,
    data_name: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
    out_of_fold: Any = None,
    groups: Any = None,
    others: Mapping[str, Any] | None = None,
    costs: Any = None,
    random_state: int = 0,
) -> Report:
    """Write what a model does on labelled rows as one self-contained HTML file.

    The page has a summary in words, an explorer in which the price of a catch is moved and every count follows, curves,
    permutation importance, the shape of each column's effect, groups where some are named, warnings with stable codes,
    and the versions used. It loads nothing and sends nothing.

    Parameters
    ----------
    model : object
        A fitted classifier with ``predict_proba`` and ``classes_``; of more than two classes the page is about costs of
        decisions, its classes and their key equations, and each against the rest. ``weighting_``, ``pos_label_``,
        ``weighted_proba``, ``key_equation_``, ``oof_key_equation_`` and ``oof_decision_function_`` are used where it
        has them.
    X : DataFrame or array of shape (n, columns)
        Rows that took no part in training.
    y : array of shape (n,)
        Their labels; both classes must be there, or several of more.
    path : str or path
        Where to write; an existing file is replaced, whole or not at all.
    sample_weight : array of shape (n,), optional
        Finite and not negative; counts are then sums of weights.
    title : str, optional
        Heading of the page.
    data_name, model_path : str, optional
        Names of the files the rows and the model come from; of a path only the last part is shown.
    out_of_fold : array of shape (n,), or (n, K) for more than two classes, optional
        Natural probabilities by models that did not see these rows, where this one was trained on them, as the folds of
        a search have. The page is then about those; the importance of columns is that of the model itself.
    groups : dict of str to array of shape (n,), optional
        Groups to compare, by column: recall, precision, calibration and key equation of each, and whether they differ
        beyond noise (CRC010).
    others : dict of str to array of shape (n,), optional
        Natural probabilities of the positive class by other models on these rows: they stand beside this one.
    costs : CostMatrix, optional
        Of a model of several classes: other costs of decisions than its own.
    random_state : int, default=0
        Seed of the permutations.

    Returns
    -------
    Report
        Where the file is, its size, and the outcome of every check.

    Raises
    ------
    InvalidInput
        If rows, labels, weights or probabilities cannot be used.
    InvalidParameter
        If the model is not a fitted binary classifier.
    DataUnavailable
        If the file cannot be written there.
    MissingExtra
        If jinja2 is not installed.
    """
    place, jinja = check_writable(Path(path)), environment()
    if isinstance(random_state, bool) or not isinstance(random_state, int) or random_state < 0:
        raise InvalidParameter(f"random_state must be a whole number from 0, got {random_state!r}")
    if has_several_classes(model):
        if others:
            raise InvalidParameter("others must be left out: they are for two classes, and this model has several.")
        own: dict[str, Any] = {"sample_weight": sample_weight, "out_of_fold": out_of_fold, "random_state": random_state}
        own |= {"stated_costs": costs, "groups": groups}
        named = page_names(title, data_name, model_path, "--costs costs.csv --out scored.csv")
        page, findings = class_page(jinja, model, X, y, names=named, **own)
        return _written(place, page, findings)
    if costs is not None:
        raise InvalidParameter(
            "costs must be left out: they are for several classes, and this page has a price to move."
        )
    evidence = gather(model, X, y, sample_weight, out_of_fold)
    points = operating_points(evidence.target, evidence.p, evidence.weights)
    reliability = reliability_groups(evidence.target, evidence.p, evidence.q, evidence.weights)
    equations = key_equations(evidence)
    importances = permutation_importance(evidence, random_state)
    compared = check_groups(evidence, groups)
    findings = examine(evidence, points, reliability, equations, separations(evidence, random_state), importances)
    findings = (*findings, group_finding(compared)) if compared else findings
    names = page_names(title, data_name, model_path)
    models = compare(evidence, others or {}, names["model"] or "this model")
    measured = measure(evidence, points, reliability, importances, equations, models)
    panels = {
        "effects": effect_charts(column_effects(evidence, importances, random_state)),
        "groups": json_value(group_tables(compared, evidence.weighting.cost_ratio)),
    }
    page = _render(jinja, measured, findings, names, facts_of(evidence, names, random_state), panels)
    return _written(place, page, findings)


def _written(place: Path, page: str, findings: tuple[Finding, ...]) -> Report:
    content = page.encode("utf-8")
    write_atomic(place, content)
    return Report(place, len(content), findings)


def _render(
    jinja: Any,
    measured: Mapping[str, Any],
    findings: Sequence[Finding],
    names: Mapping[str, str | None],
    facts: Mapping[str, list[tuple[str, str]]],
    panels: Mapping[str, list[dict[str, Any]]],
) -> str:
    from jinja2.utils import markupsafe

    template, style, script = (asset(name) for name in ("template.html.j2", "report.css", "report.js"))
    data = {**{name: measured[name] for name in DRAWN}, "command": names["command"], "rows": measured["rows"]}
    page: str = jinja.from_string(template).render(
        measured=measured,
        is_part=False,
        findings=findings,
        names=names,
        facts=facts,
        sentences=sentences(measured, findings),
        columns=importance_bars(measured["importance"]),
        **panels,
        policy=policy(style, script),
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        data=markupsafe.Markup(embedded(data)),
    )
    return page

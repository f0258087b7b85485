"""report_table: the HTML report of a model on labelled rows of a table, and the outcome of its checks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import crcen
from crcen import InvalidParameter, ReadOptions
from crcen._support.progress import busy, logged
from crcen._support.text import Values, attributes, page_in_frame
from crcen.commands import inputs, rules
from crcen.commands.certify import evidence_links
from crcen.commands.evaluate import share_notes
from crcen.commands.inputs import Data, FittedModel, check
from crcen.commands.results import note_lines
from crcen.commands.rules import CostsLike, Prevalence, ReviewPrices, Weighting
from crcen.commands.scoring import Judging, LabelledRows
from crcen.report.checks import Finding
from crcen.theory.intervals import LEVEL
from crcen.theory.rows import Array
from crcen.theory.thresholds import ReviewedRows


@dataclass(frozen=True)
class TableReport:
    """Where a report was written and what its checks found; prints itself."""

    path: Path
    n_rows: int
    findings: tuple[Finding, ...] = ()  # of every check, by code
    notes: tuple[str, ...] = ()
    review: ReviewedRows | None = None  # three decisions, if rows between two prices go to review
    shares: rules.ClassShares | None = None  # that the probabilities were moved to
    audited: rules.AuditedRows | None = None  # bounds on recall and missed rows, if labels were drawn

    def codes(self, status: str) -> list[str]:
        """Codes of the checks with this status: "warning", "passed" or "unknown"."""
        return [finding.code for finding in self.findings if finding.status == status]

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        first = attributes(self, "path rows=n_rows") | {"warnings": self.codes("warning")}
        first |= attributes(self, "findings notes review prevalence=shares")
        return first | rules.bound_values(self.audited) | attributes(self, "audited")

    def __repr__(self) -> str:
        n_warnings = len(self.codes("warning"))
        return f"<TableReport {self.path}: {self.n_rows:,} rows, {n_warnings} of {len(self.findings)} checks warn>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>{page_in_frame(self.path)}"

    def __str__(self) -> str:
        warned = ", ".join(self.codes("warning"))
        summary = [f"{self.n_rows:,} rows: warnings {warned}" if warned else f"{self.n_rows:,} rows: no warnings"]
        for status, title in (("passed", "tested without a warning"), ("unknown", "not tested")):
            summary += [f"{title}: {', '.join(self.codes(status))}"] if self.codes(status) else []
        lines = ["; ".join(summary), *note_lines(self.notes)]
        for finding in self.findings:
            if finding.status == "warning":
                lines.append(f"{finding.code}  warning  {finding.title}: {finding.measured}.")
                lines.append(f"{'':17}{finding.advice}")
            else:
                lines.append(f"{finding.code}  {finding.status:<8} {finding.sentence}")
        lines += [str(part) for part in (self.review, self.audited) if part is not None]
        lines += [] if self.shares is None else [self.shares.line(None)]
        return "\n".join([*lines, f"Written to {self.path}"])


@logged
def report_table(
    model: FittedModel | str | Path,
    data: Data,
    *,
    out: str | Path,
    target: str | None = None,
    weighting: Weighting = None,
    costs: CostsLike = None,
    weight: str | None = None,
    clusters: str | None = None,
    prevalence: Prevalence = None,
    audit_probability: str | None = None,
    confidence: float = LEVEL,
    groups: str | Sequence[str] = (),
    others: Sequence[FittedModel | str | Path] = (),
    review: ReviewPrices = None,
    title: str | None = None,
    declaration: str | Path | None = None,
    certificate: str | Path | None = None,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableReport:
    """Write one self-contained HTML page about a model on labelled rows, as `crcen report` does.

    Parameters
    ----------
    model, data, target, weight, clusters, prevalence, audit_probability, confidence, groups, review, read, verbose
        As in `crcen.evaluate_table`.
    out, title : str or Path, and str, optional
        The HTML file to write, and the title of the page.
    weighting, costs
        For a model of several classes: a price other than that of training, as `crcen.evaluate_table` takes it.
    others : sequence of models or of their files, optional
        Models to compare with this one on the same rows; they must have the same classes.
    declaration, certificate : str or Path, optional
        Files of `crcen.declare` and `crcen.certify` (JSON) of this model, which the page links to.
    """
    inputs.check_outputs({"out": out}, model, data, *others, costs, declaration, certificate, pages=("out",))
    is_used, bound = audit_probability is not None, "go with audit_probability=: it applies to the bound on recall"
    check("confidence", confidence, confidence == LEVEL or is_used, bound, "audit_probability")
    model_path = str(model) if isinstance(model, str | Path) else None
    links = evidence_links(out, model_path, declaration, certificate)
    roles = {"weight": weight, "clusters": clusters, "audit_probability": audit_probability}
    named: Values = {"target": target, "needs_target": True, "roles": roles, "groups": groups}
    judging = Judging.of(model, data, read, weighting, costs, **named, review=review)
    model, source, rule, target = judging.model, judging.source, judging.rule, str(judging.target)
    column = model.weighting_.positive
    options: Values = {"title": title, "data_name": source.name, "model_path": model_path, "links": links}
    if weighting is not None or costs is not None:
        if column is not None or rule.goal is not None:
            given, found = "weighting" if costs is None else "costs", rule.labels[column or 0]
            why = f"this model finds {found}, and its page has a price slider; crcen evaluate takes other prices."
            raise InvalidParameter(f"{given} must be left out: {why}", parameter=given)
        options["costs"] = rule.costs
    rows = judging.labelled(verbose, prevalence, keeps_all=True, recognises=True)
    X, y = rows.inputs(model, target, *judging.groups, *judging.roles.values()), model.classes_[rows.y]
    audited = rows.audited(rule, confidence)
    notes = [*rows.notes, *rows.scored.notes, *(audited.notes if audited else ())]
    options |= rows.options | ({"recall_lows": audited.recall_lows} if audited else {})
    parted = {name: inputs.group_values(rows.scored.labelled(name)) for name in judging.groups}
    with busy("writing the report", visible=bool(verbose)):
        options["others"], seen = _compared_models(others, judging, rows)
        written = crcen.write_report(rows.model, X, y, out, sample_weight=rows.weights, groups=parted, **options)
    judged = None
    if column is not None and rule.review is not None:
        judged = rule.review.meet(rows.p[:, column], model.weighting_.cost_ratio, rows.y == column, rows.weights)
    checked = Path(model_path).name if model_path else "the first model"
    notes += [f"the checks are of {checked}; the page compares metrics of all models"] if others else []
    notes += [*seen, *share_notes(rows, rule, written.findings)]
    return TableReport(Path(out), len(y), written.findings, tuple(notes), judged, rows.shares, audited)


def _compared_models(
    others: Sequence[FittedModel | str | Path], judging: Judging, rows: LabelledRows
) -> tuple[dict[str, Array], list[str]]:
    """Probabilities of the same rows by other models, each with its own name, and notes that the first one lacks."""
    found: dict[str, Array] = {}
    notes: list[str] = []
    for number, other in enumerate(others, 2):
        name = Path(other).name if isinstance(other, str | Path) else f"model {number}"
        name = name if name not in found else f"{name} ({number})"
        fitted = inputs.model_of(other)
        first, own = ((one.classes_.tolist(), one.weighting_.positive) for one in (judging.model, fitted))
        which = f"{', '.join(map(str, own[0]))} {'with' if own[1] is not None else 'without'} a positive one"
        inputs.require_input(first == own, f"models to compare must have the same classes: {name} has {which}.")
        scored = replace(judging, model=fitted).score(recognises=True, name=name)
        found[name], known = scored.p[scored.is_labelled], scored.comparison.recognition(None, scored.is_labelled)
        if rows.shares is not None:  # an estimated share is that of the first model
            counts = fitted.weighting_.counts
            found[name] = replace(rows.shares, trained=counts / counts.sum()).moved(found[name])
        own_notes = [*scored.comparison.notes, *(known.notes if known else ())]
        notes += [f"{name}: {note}" for note in own_notes if note not in rows.scored.notes]
    return found, notes

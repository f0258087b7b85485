"""HTML pages that need nothing else: what all of them share, certificates, and the report on a model."""

import base64
import hashlib
import json
import math
import os
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.extras import installed_versions
from crcen._support.files import check_writable, write_atomic
from crcen._support.text import Values, json_value, page_in_frame
from crcen._version import __version__
from crcen.report.checks import Finding, examine
from crcen.report.evidence import Evidence, column_effects, evidence_of, gather, kept_by, permutation_importance
from crcen.report.quality import PARTS, compare, measure, quality_of
from crcen.theory.checks import check_whole_number
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import CostRatio, Labels
from crcen.theory.rows import Estimator, Rows, short
from crcen.theory.selective import LabelSelection

Jinja: TypeAlias = Any  # no type checker sees jinja2


def asset(name: str) -> str:
    """The text of a template, a style or a script of this package."""
    return resources.files("crcen.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Jinja:
    """Jinja2 with everything escaped that a template does not mark as safe."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(count=count, digits=digits, logit=_logit, percent=percent, shortened=partial(short, most=80))
    made.globals.update(scale=scale, round_ticks=round_ticks)
    return made


def rendered(template: str, parts: Mapping[str, object], style: str, script: str = "") -> str:
    """A page whose content security policy allows its style and script alone; all other values are escaped.

    ``parts`` may replace style and script by marks that a script fills in later.
    """

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = digest(script) if script else "'none'"
    policy = f"default-src 'none'; style-src {digest(style)}; script-src {allowed}; img-src data:"
    values = {"style": style, "script": script, **parts, "policy": policy}
    return str(_environment().get_template(template).render(**values))


def page_names(title: str | None, data_name: object, model_path: object, end: str) -> dict[str, str | None]:
    """What the page calls itself, its rows and its model, and the command that it shows."""
    data, model = _last_part(data_name), _last_part(model_path)
    return {
        "title": title or (f"Report on {data}" if data else "Report on a rare-event model"),
        "data": data,
        "model": model,
        "command": f"crcen predict {shlex.quote(model or 'model.crcen')} new.csv {end}",
    }


def embedded(data: Mapping[str, object]) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def count(value: float | None) -> str:
    """A count: whole where it is whole, one digit where weights make it a sum."""
    return "–" if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def digits(value: float | None, places: int = 3) -> str:
    """A number to a few significant digits, without an exponent."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10**places:
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.0f}"  # years have no comma
    if abs(value) >= 1e-4:
        return f"{value:.{places}g}"
    return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}" if abs(value) >= 1e-7 else "0"


def percent(value: float | None) -> str:
    """A share as a percentage, with more digits near both ends."""
    if value is None:
        return "–"
    scaled = 100.0 * value
    if 0.0 < scaled < 1.0 or 99.0 < scaled < 100.0:
        return f"{scaled:.2f}\u00a0%"
    return f"{scaled:.3g}\u00a0%" if scaled < 10.0 else f"{scaled:.0f}\u00a0%"


def scale(low: float, high: float, start: float, end: float, digits: int = 1) -> Callable[[float], float]:
    """From values to positions."""
    span = high - low if high > low else 1.0
    return lambda value: round(start + (end - start) * (value - low) / span, digits)


def round_ticks(low: float, high: float, wanted: int = 3) -> list[float]:
    """About this number of round numbers between two ends, 1, 2 or 5 times a power of ten apart; zero if inside."""
    span = high - low
    if not span > 0.0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(one * unit for one in (1.0, 2.0, 5.0, 10.0) if one * unit >= 0.999 * span / wanted)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{number * step:.6g}") for number in numbers]


def _logit(p: float, low: float = -math.inf, high: float = math.inf) -> float:
    """The log-odds between two ends, which are finite for 0 and 1."""
    p = min(max(p, 1e-5), 1.0 - 1e-5)
    return min(max(math.log(p / (1.0 - p)), low), high)


def _last_part(name: object) -> str | None:
    return re.split(r"[\\/]", str(name).rstrip("\\/"))[-1] if name else None


def certificate_schema() -> Values:
    """The JSON Schema of certificates."""
    return dict(json.loads(asset("certificate.schema.json")))


def certificate_page(content: Values) -> str:
    """The content of a certificate as one HTML page without scripts; the same content gives the same bytes."""
    return rendered("certificate.html.j2", {"content": content}, asset("certificate.css"))


# Classes with a page of their own.
MOST_PICKS = 12
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
        ``key_equation_``, ``oof_key_equation_`` and ``oof_proba_`` are used if it has them.
    X : DataFrame or array of shape (n, columns)
        Rows that were not used in training.
    y : array of shape (n,)
        Their labels, of at least two classes.
    path : str or path
        File to write; an existing file is replaced atomically.
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
    random_state = check_whole_number(random_state, "random_state", 0)
    arrays = {"recall_lows": recall_lows, "clusters": clusters}
    more: Values = {name: None if given is None else np.asarray(given) for name, given in arrays.items()}
    more |= {"selection": selection, "is_audited": is_audited, "is_stratified": is_stratified}
    more |= {"groups": groups, "costs": costs, "random_state": random_state}
    evidence = gather(model, X, y, sample_weight, out_of_fold, **more)
    findings = examine(evidence)
    end = "--budget" if evidence.has_positive else "--costs costs.csv --out scored.csv"
    names = page_names(title, data_name, model_path, end)
    models = compare(evidence, others or {}, names["model"] or "this model")
    picked = [] if evidence.has_positive else _picked(evidence)
    pages = [{"label": evidence.names[k], "html": _one_page(evidence, k, len(picked))} for k in picked]
    importances = evidence.of(permutation_importance)
    shared: Values = {
        "findings": findings,
        "names": names,
        "links": list(links),
        "facts": _facts(evidence.model),
        "importance": json_value(asdict(importances)),
        "effects": column_effects(evidence) if evidence.has_positive else (),
        "picks": [evidence.names[k] for k in picked],
        "groups": [
            {"about": one, "rows": [{**group.to_dict(), "equations": group.equation_sentence} for group in one.groups]}
            for one in evidence.groups
        ],
    }
    content = _render(evidence, {"command": names["command"], "pages": pages}, shared, models).encode("utf-8")
    write_atomic(place, content)
    return Report(place, len(content), findings)


def _render(evidence: Evidence, script_values: Values, parts: Values, models: Sequence[Values] = ()) -> str:
    """The page; its script gets the numbers that it draws, and further values."""
    measured = {**measure(evidence), "models": json_value(models, shorten=True)}
    drawn = {name: one for name, one in measured.items() if name == "models" or PARTS[name].is_drawn}
    values = {
        "evidence": evidence,
        "has_positive": evidence.has_positive,
        "measured": measured,
        "data": embedded({**drawn, **script_values}),
        "is_part": False,
        **parts,
    }
    return rendered("page.html.j2", values, asset("report.css"), asset("report.js"))


def _picked(evidence: Evidence) -> list[int]:
    """Classes with a page of their own: those that cost most, if they and others have rows."""
    cost, there = evidence.of(quality_of).cost_by_class, (evidence.counts > 0) & (evidence.counts < evidence.n_rows)
    return sorted(sorted(np.flatnonzero(there).tolist(), key=lambda k: -float(cost[k]))[:MOST_PICKS])


def one_against_rest(evidence: Evidence, k: int, most_points: int) -> Evidence:
    """The evidence about one class as the positive one, at the cost of a miss in false alarms."""
    costs, counts, p = evidence.cost_matrix.costs, evidence.trained_counts, evidence.proba[:, k]
    others = np.flatnonzero(np.arange(len(costs)) != k)
    miss = float((costs[k, others] - costs[k, k]).mean())
    alarm = float((costs[others, k] - costs[others, others]) @ counts[others] / counts[others].sum())
    ratio = float(np.clip(miss / alarm if alarm > 0.0 else _MOST_PRICE, _LEAST_PRICE, _MOST_PRICE))
    classes = np.empty(2, dtype=object)
    classes[:] = [f"not {evidence.names[k]}", evidence.names[k]]
    price = Labels(classes, classes[1]).resolve(CostRatio(ratio), [counts.sum() - counts[k], counts[k]])
    model = SimpleNamespace(classes_=classes, pos_label_=classes[1], weighting_=price)
    weights = evidence.weights if evidence.is_weighted else None
    how: Values = {"is_out_of_fold": evidence.is_out_of_fold, "most_points": most_points}
    return evidence_of(model, (evidence.y == k).astype(np.int64), np.column_stack([1.0 - p, p]), weights, **how)


def _one_page(evidence: Evidence, k: int, n_picked: int) -> str:
    """Explorer and curves of one class against the rest; the page puts in its own style and script."""
    one = one_against_rest(evidence, k, max(300, min(evidence.most_points, _POINTS_OF_ALL // n_picked)))
    label, target = evidence.names[k], getattr(evidence.model, "target_name_", None) or "y"
    command = f"crcen fit train.csv --target {shlex.quote(target)} --positive {shlex.quote(label)} --budget"
    shown = {"names": {"title": label}, "is_part": True, "style": _STYLE, "script": _SCRIPT}
    return _render(one, {"command": command, "command_end": "--out one.crcen"}, shown)


def _facts(model: Estimator) -> Values:
    """The model and its environment, without paths of the machine."""
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

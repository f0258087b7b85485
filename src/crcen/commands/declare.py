"""declare: acceptance criteria of a model in a file, and their tests on a stream of labelled rows."""

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter, ReadOptions, __version__
from crcen._support.extras import installed_versions
from crcen._support.files import check_writable, write_atomic
from crcen._support.progress import logged
from crcen._support.text import closest, listed
from crcen._support.values import Values, json_value
from crcen.commands import inputs
from crcen.commands.inputs import Data, FittedModel, Source, check, is_share, require_input
from crcen.commands.prices import own_costs
from crcen.commands.results import Sequences, file_digest, note_lines
from crcen.commands.scoring import Judging, RowWatch
from crcen.tables.fingerprint import Recognition, RowDigest
from crcen.theory.criteria import TESTS, Criterion, ScoredClasses, labels_needed, parse_criteria
from crcen.theory.limits import fitted_model_noise
from crcen.theory.rows import Array, Index, ShownInOneLine
from crcen.theory.sequential import ConfidenceSequence

FORMAT, VERSION = "crcen declaration", 1
# Descriptive fields, shown as empty if nobody states them.
FIELDS = ("purpose", "population", "sampling", "oversight", "limitations", "responsible")
_FIRST_LINE = re.compile(rb'digest = "sha256:([0-9a-f]{64})"')
_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "torch", "pandas", "pyarrow")
_ANY_ROWS = "the rows were not stated in advance: any rows are accepted"
_ALL, _OTHERS, _MOST_GROUPS = "all rows", "all others", 20


@dataclass(frozen=True, eq=False, repr=False)
class Declaration(ShownInOneLine):
    """What was declared; prints itself."""

    path: Path
    digest: str  # SHA-256 of the content
    content: Values
    criteria: tuple[Criterion, ...]  # in the order in which they were stated

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return {"path": str(self.path), "digest": self.digest, **self.content}

    def __str__(self) -> str:
        rows = self.content["rows"]
        declared = "1 criterion" if len(self.criteria) == 1 else f"{len(self.criteria)} criteria"
        lines = [f"{declared} declared for {self.content['model']['file']}: {self.path}"]
        for one in self.content["criteria"]:
            needed = f"{one['labels_needed']:,} labels" if "labels_needed" in one else "no number"
            lines.append(f"  {one['criterion']:<28} {needed} ({one['plan']})")
        fixed = f"{rows['number']:,} rows of {rows['file']}" if rows["are_declared"] else "any rows are accepted"
        groups = f"groups: {listed(self.content['groups'])}; " if self.content["groups"] else ""
        lines += [f"{groups}confidence {self.content['confidence']:g}; {fixed}", *note_lines(rows["notes"])]
        empty = [name for name in FIELDS if not self.content["description"][name]]
        lines += [f"Empty fields: {listed(empty)}."] if empty else []
        return "\n".join([*lines, f"Digest sha256:{self.digest}"])


def check_confidence(confidence: float) -> None:
    """Reject a confidence outside [0.5, 1)."""
    check("confidence", confidence, confidence == 0.5 or is_share(confidence, 0.5), "be at least 0.5 and below 1")


def versions() -> dict[str, str]:
    """Versions of crcen and of the packages that results depend on."""
    return {"crcen": __version__, **installed_versions(_PACKAGES)}


def new_to_model(watch: RowWatch, need: str) -> Recognition | None:
    """The comparison of rows with the training rows of a model; an error if they are training rows."""
    found = watch.recognition()
    if found is not None and found.status == "seen":
        raise InvalidInput(f"{need}: {found.measured}.")
    return found


class ScoredRows(NamedTuple):
    """Rows of a table as a model scores them, their comparison with training rows, and their digest."""

    scored: ScoredClasses
    watch: RowWatch
    recognition: Recognition | None
    digest: RowDigest
    n_labels: int
    notes: list[str]


def input_columns(model: FittedModel, source: Source, target: str) -> list[str]:
    """The columns that a model decides by."""
    columns = getattr(model, "columns_", None)
    names = getattr(model, "feature_names_in_", None) if columns is None else [column.name for column in columns]
    return [name for name in source.columns if name != target] if names is None else [str(name) for name in names]


def score_rows(judging: Judging, *, labelled: bool) -> ScoredRows:
    """Score new rows; if ``labelled``, every row must have a label, otherwise labels are only counted."""
    model, target, groups = judging.model, judging.target, judging.groups
    columns = input_columns(model, judging.source, str(target))
    digest = RowDigest(list(dict.fromkeys([*columns, *groups])), target if labelled else None)
    found = judging.score(reads_labels=labelled, recognises=True, digest=digest)
    what = "certificate" if labelled else "declaration"
    recognition = new_to_model(found.watch, f"a {what} needs rows that are new to the model")
    known = found.is_labelled if labelled else found.frame[target].notna() if target else np.zeros(0)
    n_labels, n_rows = int(known.sum()), len(found.y)
    every = f"a certificate needs the label of every row: {n_rows - n_labels:,} rows of {judging.source.name}"
    is_right = not labelled or n_labels == n_rows
    require_input(is_right, f"{every} have no value of {target}.")
    costs, price = own_costs(model), model.weighting_
    if price.positive is None:
        price = replace(price, costs=costs)
    scored = ScoredClasses(
        labels=model.classes_.tolist(),
        p=found.p,
        actions=np.asarray(price.decide(found.p), dtype=np.int64),
        costs=np.asarray(costs.costs, dtype=np.float64),
        price=price,
        trained=model.weighting_,
        y=found.y,
        groups={name: inputs.group_values(found.frame[name]) for name in groups},
        error=getattr(model, "training_error_", None),
        noise=fitted_model_noise(np.ones(len(found.p)), price, getattr(model, "profile_", None)),
    )
    return ScoredRows(scored, found.watch, recognition, digest, n_labels, found.dependent_rows("give one row of each"))


@logged
def declare(
    model: str | Path,
    require: Sequence[str],
    *,
    out: str | Path,
    groups: str | Sequence[str] = (),
    confidence: float = 0.95,
    rows: Data = None,
    target: str | None = None,
    description: Mapping[str, str] | str | Path | None = None,
    read: ReadOptions | None = None,
) -> Declaration:
    """Write acceptance criteria of a model to a file: what `crcen declare` does.

    Parameters
    ----------
    model : str or Path
        File of the model.
    require : sequence of str
        Criteria, such as ``"recall >= 0.8"``, ``"precision[worn] >= 0.5"``, ``"cost per 1000 <= 400"``,
        ``"key equation"``, ``"drift"`` and ``"groups"``.
    out : str or Path
        The TOML file to write.
    groups : str or sequence of str, optional
        Columns whose values are groups: criteria must also hold in each group.
    confidence : float, default=0.95
        One minus the probability of any wrong pass, and of any wrong fail.
    rows : data frame, str or Path, optional
        The rows on which the criteria will be tested; labels are not used. Without them any rows are accepted.
    target : str, optional
        Column that will hold the labels; by default that of training.
    description : dict, str or Path, optional
        Descriptive fields (`FIELDS`), or a TOML or JSON file of them.
    read : ReadOptions, optional
        How the table is read.
    """
    saved = "model must be the file of a saved model, whose digest is declared; use crcen.save."
    inputs.require(isinstance(model, str | Path), saved)
    check_confidence(confidence)
    fitted, model_sha = inputs.model_of(model), file_digest(model)
    target = target or getattr(fitted, "target_name_", None)
    if target is None:
        raise InvalidParameter("this model does not know its target column; name it with target=.", parameter="target")
    classes, price = fitted.classes_.tolist(), fitted.weighting_
    texts = [require] if isinstance(require, str) else list(require)
    criteria = parse_criteria(texts, classes, price.positive)
    names = [groups] if isinstance(groups, str) else [str(name) for name in groups]
    needs_groups = any(one.metric == "groups" for one in criteria)
    inputs.require(names or not needs_groups, "the criterion 'groups' needs groups=, the columns to compare.", "groups")
    fields = _description(description)
    check_writable(out, model, rows, description)
    scored, rows_content = None, {"are_declared": False, "sha256": "", "file": "", "number": 0, "notes": [_ANY_ROWS]}
    if rows is not None:
        source = inputs.source_of(rows, read, fitted)
        judging = Judging.of(fitted, source, read, target=target if target in source.columns else None, groups=names)
        found = score_rows(judging, labelled=False)
        note = f"the file contained {found.n_labels:,} values of {target}, so that labels were available at this time"
        scored = found.scored
        rows_content = {
            "are_declared": True,
            "sha256": found.digest.rows,
            "file": Path(source.name).name,
            "number": found.digest.n_rows,
            "notes": [note] if found.n_labels else [],
            "columns": found.digest.by_column,
        }
    pairs = (f"{label} {weight:.6g}" for label, weight in zip(classes, price.weights.tolist(), strict=True))
    price_text = f"weights of mistakes: {', '.join(pairs)}"
    if price.positive is not None:
        price_text = f"a miss costs {price.cost_ratio:.6g} false alarms"
    elif getattr(fitted, "costs_", None) is not None:
        price_text = str(own_costs(fitted))
    content = {
        "format": FORMAT,
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "confidence": float(confidence),
        "groups": names,
        "target": target,
        "classes": json_value(classes),
        "positive": "" if price.positive is None else json_value(classes[price.positive]),
        "model": {"file": Path(model).name, "sha256": model_sha, "price": price_text},
        "rows": rows_content,
        "criteria": [_criterion_content(one, scored, criteria, float(confidence)) for one in criteria],
        "description": fields,
        "versions": versions(),
    }
    text = "\n".join(_toml(content)) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_atomic(out, f'digest = "sha256:{digest}"\n{text}')
    return Declaration(Path(out), digest, content, criteria)


def _criterion_content(
    one: Criterion, scored: ScoredClasses | None, criteria: Sequence[Criterion], confidence: float
) -> Values:
    content: Values = {"criterion": one.text, "test": TESTS[one.metric]}
    if scored is None:
        return {**content, "plan": "labels needed: known only with the rows"}
    parts = scored.parts()
    n_tests = sum(other.has_threshold for other in criteria) * (1 + len(parts))
    level = 1.0 - (1.0 - confidence) / max(n_tests, 1) if one.has_threshold else confidence
    needed, why = labels_needed(one, scored, level)
    if one.has_threshold:  # a group needs as many rows of its own
        for column, name, part in parts:
            own, reason = labels_needed(one, scored.of(part), level)
            if own / part.mean() > needed:
                needed, why = own / part.mean(), f"{reason}, in {column} = {name}"
    return {**content, **({"labels_needed": math.ceil(needed)} if math.isfinite(needed) else {}), "plan": why}


def _description(given: Mapping[str, str] | str | Path | None) -> dict[str, str]:
    """All descriptive fields, empty if they are not stated."""
    where = "description"
    if isinstance(given, str | Path):
        where = str(given)
        try:
            text = Path(given).read_text(encoding="utf-8")
            given = json.loads(text) if Path(given).suffix.lower() == ".json" else tomllib.loads(text)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{where} must be a TOML or JSON file of text fields: {error}.") from error
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(f"{where} must hold fields, such as {listed(FIELDS)}.")
    found = dict.fromkeys(FIELDS, "")
    for name, value in (given or {}).items():
        close = closest(str(name), FIELDS)
        meant = f"did you mean {close}?" if close else f"it may have {listed(FIELDS)}."
        require_input(name in found, f"{where} has the field {name!r}, which is none of a declaration: {meant}")
        require_input(isinstance(value, str), f"{where} must hold text in the field {name}: got {value!r}.")
        found[name] = value.strip()
    return found


def _toml(content: Mapping[str, object], place: str = "") -> list[str]:
    """A mapping as lines of TOML: plain values first, then tables and lists of tables."""
    lines, tables = [], []
    for name, one in content.items():
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_value(name)
        if isinstance(one, Mapping):
            tables += ["", f"[{place}{key}]", *_toml(one, f"{place}{key}.")]
        elif isinstance(one, list) and one and isinstance(one[0], Mapping):
            tables += [line for part in one for line in ("", f"[[{place}{key}]]", *_toml(part, f"{place}{key}."))]
        else:
            lines.append(f"{key} = {_toml_value(one)}")
    return lines + tables


def _toml_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # which TOML does not allow


def read_declaration(path: str | Path) -> Declaration:
    """The declaration in a file; `InvalidInput` if it is none, or was changed after it was written."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error
    first, _, rest = raw.partition(b"\n")
    stated, digest = _FIRST_LINE.fullmatch(first), hashlib.sha256(rest).hexdigest()
    if stated is None:
        raise InvalidInput(f"{path} is not a declaration: its first line must be the digest that crcen declare wrote.")
    both = f"it states the digest {stated[1].decode()[:12]}… and its content has {digest[:12]}…"
    is_same = digest == stated[1].decode()
    require_input(is_same, f"{path} was changed after it was declared: {both}; declare again.")
    try:
        content = tomllib.loads(rest.decode("utf-8"))
        is_known = content["format"] == FORMAT and content["version"] == VERSION
        require_input(is_known, f"{path} is a declaration of version {content['version']}: this crcen reads {VERSION}.")
        classes, positive = content["classes"], content["positive"]
        column = classes.index(positive) if positive != "" else None
        texts = [one["criterion"] for one in content["criteria"]]
        return Declaration(Path(path), digest, content, parse_criteria(texts, classes, column))
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is not a declaration that crcen declare wrote: {error}.") from error


def declaration_of_model(path: str | Path, model: object) -> Declaration:
    """The declaration in a file; an error if it is of another model."""
    declared = read_declaration(path)
    if isinstance(model, str | Path) and file_digest(model) != declared.content["model"]["sha256"]:
        raise InvalidInput(f"{path} declares {declared.content['model']['file']}, which is another model than {model}.")
    return declared


@dataclass
class DeclaredWatch:
    """Running tests of declared thresholds by criterion and group, and sentences on those that are ``broken``.

    α = (1 − confidence) / criteria with a threshold, over the whole stream; with groups, half of it for all rows and
    1/(2j(j + 1)) for the j-th group.
    """

    declared: Declaration
    costs: Array
    tests: dict[str, Sequences] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def from_state(cls, declared: Declaration, costs: Array, state: Values | None) -> "DeclaredWatch":
        """With the tests of earlier calls, if there are any."""
        if state is None:
            return cls(declared, costs)
        other = "this watch was begun with another declaration: begin a new one."
        require_input(state["digest"] == declared.digest, other)
        tests = {text: Sequences.from_state(groups) for text, groups in state["tests"].items()}
        return cls(declared, costs, tests, state["broken"])

    def state(self) -> Values:
        """Plain values that `from_state` takes."""
        tests = {text: groups.state() for text, groups in self.tests.items()}
        return {"digest": self.declared.digest, "tests": tests, "broken": self.broken}

    def add(self, y: Index, actions: Index, groups: Mapping[str, NDArray[np.object_]]) -> None:
        """Add labelled rows with their decisions and groups."""
        for one in self.declared.criteria:
            if not one.has_threshold:
                continue
            ends, values, among = (0.0, 1.0), (y == actions).astype(np.float64), np.ones(len(y), dtype=np.bool_)
            if one.metric == "cost":
                ends, values = (float(self.costs.min()), float(self.costs.max())), self.costs[y, actions]
            else:
                among = (y if one.metric == "recall" else actions) == one.column
            tests = self.tests.setdefault(one.text, Sequences())
            tests.put(_ALL, values[among], *ends)
            for column, names in groups.items():
                for name in dict.fromkeys(names):
                    key = f"{column} = {name}"
                    if key not in tests and sum(other.startswith(f"{column} = ") for other in tests) >= _MOST_GROUPS:
                        key = f"{column} = {_OTHERS}"
                    tests.put(key, values[among & (names == name)], *ends)
            self._judge(one, tests)

    def _judge(self, one: Criterion, tests: Mapping[str, ConfidenceSequence]) -> None:
        stated = self.declared.content
        alpha = (1.0 - stated["confidence"]) / sum(other.has_threshold for other in self.declared.criteria)
        alpha *= 0.5 if stated["groups"] else 1.0
        for number, (key, test) in enumerate(tests.items()):
            level = alpha / (number * (number + 1) or 1)
            mean = min(max(one.threshold, test.low), test.high)
            side = 1 if one.metric == "cost" else -1
            start = f"{one.text} no longer holds in {key}: "
            is_known = any(text.startswith(start) for text in self.broken)
            if not is_known and test.n_values and test.log_capital(mean, side) >= math.log(1.0 / level):
                self.broken.append(f"{start}{test.mean * one.per:.4g} on {test.n_values:,} rows that count")

    def results(self, n_differences: int, n_drifts: int) -> list[Values]:
        """Each declared criterion with its state; the key equation and drift are those of the watch itself."""
        found = []
        for one in self.declared.criteria:
            test = self.tests.get(one.text, Sequences()).get(_ALL)
            alarms = [text for text in self.broken if text.startswith(f"{one.text} no longer")]
            own = {"key equation": n_drifts, "drift": n_differences}.get(one.metric, len(alarms))
            verdict = "not watched" if one.metric == "groups" else "no longer holds" if own else "no alarm"
            estimate, rows = (None, 0) if test is None else (json_value(test.mean * one.per), test.n_values)
            found.append(
                {"criterion": one.text, "verdict": verdict, "estimate": estimate, "rows": rows, "alarms": alarms}
            )
        return found

"""declare: acceptance criteria of a model in a file, before the labels of the test rows are used."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter, __version__
from crcen._support.extras import installed_versions
from crcen._support.files import check_writable, write_atomic
from crcen._support.progress import logged
from crcen._support.text import closest, listed
from crcen._support.values import json_value
from crcen.commands.group_columns import group_columns, group_values
from crcen.commands.inputs import Source, check_column, labels_as, model_of, source_of
from crcen.commands.prices import own_costs
from crcen.commands.scoring import RowWatch, scored_chunks
from crcen.tables.options import ReadOptions
from crcen.tables.row_digest import RowDigest
from crcen.theory.criteria import TESTS, Criterion, ScoredClasses, labels_needed, parse_criteria
from crcen.theory.limits import fitted_model_noise

__all__ = ["FIELDS", "Declaration", "declare", "file_digest", "read_declaration", "score_rows"]

FORMAT, VERSION = "crcen declaration", 1
# Descriptive fields, shown as empty if nobody states them.
FIELDS = ("purpose", "population", "sampling", "oversight", "limitations", "responsible")
_FIRST_LINE = re.compile(rb'digest = "sha256:([0-9a-f]{64})"')
_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "torch", "pandas", "pyarrow")
_ANY_ROWS = "the rows were not stated in advance: any rows are accepted"


@dataclass(frozen=True, eq=False)
class Declaration:
    """What was declared; prints itself.

    Parameters
    ----------
    path : Path
        The file.
    digest : str
        SHA-256 of its content.
    content : dict
        Its fields.
    criteria : tuple of Criterion
        The criteria in the order in which they were stated.
    """

    path: Path
    digest: str
    content: dict[str, Any]
    criteria: tuple[Criterion, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"path": str(self.path), "digest": self.digest, **self.content}

    def __repr__(self) -> str:
        return f"<Declaration {self.path}: {len(self.criteria)} criteria, sha256:{self.digest[:12]}>"

    def __str__(self) -> str:
        rows = self.content["rows"]
        lines = [f"{len(self.criteria)} criteria declared for {self.content['model']['file']}: {self.path}"]
        for one in self.content["criteria"]:
            needed = f"{one['labels_needed']:,} labels" if "labels_needed" in one else "no number"
            lines.append(f"  {one['criterion']:<28} {needed} ({one['plan']})")
        fixed = (
            f"{rows['number']:,} rows of {rows['file']}" if rows["are_declared"] else "rows: none stated, any accepted"
        )
        groups = f"groups: {listed(self.content['groups'])}; " if self.content["groups"] else ""
        lines.append(f"{groups}confidence {self.content['confidence']:g}; {fixed}")
        lines += [f"Note: {note}." for note in rows["notes"]]
        empty = [name for name in FIELDS if not self.content["description"][name]]
        lines += [f"Empty fields: {listed(empty)}."] if empty else []
        return "\n".join([*lines, f"Digest sha256:{self.digest}"])


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


@dataclass(frozen=True, eq=False)
class RowsOfModel:
    """The rows of a table as a model scores them.

    Parameters
    ----------
    scored : ScoredClasses
        Probabilities, decisions, and labels if the target was read.
    watch : RowWatch
        What was odd, and the comparison with training rows.
    digest : RowDigest
        Of the inputs and groups, and of these with the labels.
    n_labels : int
        Rows with a value of the target.
    """

    scored: ScoredClasses
    watch: RowWatch
    digest: RowDigest
    n_labels: int


def input_columns(model: Any, source: Source, target: str) -> list[str]:
    """The columns that a model decides by."""
    columns = getattr(model, "columns_", None)
    names = getattr(model, "feature_names_in_", None) if columns is None else [column.name for column in columns]
    return [name for name in source.columns if name != target] if names is None else [str(name) for name in names]


def score_rows(model: Any, source: Source, target: str, groups: Any = (), *, labelled: bool = True) -> RowsOfModel:
    """Score a table in chunks, with digests of its rows.

    Parameters
    ----------
    model : fitted classifier
        Of K ≥ 2 classes.
    source : Source
        The table.
    target : str
        Column with the labels.
    groups : sequence of str
        Columns of groups.
    labelled : bool
        Whether labels are read; every row must then have one.
    """
    names = group_columns(groups, source, target)
    has_target = target in source.columns
    columns = input_columns(model, source, target)
    for name in columns:
        check_column(name, source.columns, "the input", source.name)
    columns += [name for name in names if name not in columns]
    digest = RowDigest(columns, target if labelled else None)
    watch, n_labels = RowWatch(model, recognises=True), 0
    scores: list[NDArray[np.float64]] = []
    labels: list[NDArray[np.int64]] = []
    kept: dict[str, list[Any]] = {name: [] for name in names}
    for chunk, p in scored_chunks(model, source, watch, {target, *names}):
        known = chunk[target].notna() if has_target else None
        n_labels += 0 if known is None else int(known.sum())
        if labelled and (known is None or not known.all()):
            n_missing = len(chunk) if known is None else int((~known).sum())
            raise InvalidInput(
                f"a certificate needs the label of every row: {n_missing:,} or more rows of {source.name} have no "
                f"value of {target}."
            )
        digest.add(chunk)
        if labelled:
            labels.append(labels_as(chunk[target], model.classes_, target))
        scores.append(p)
        for name in names:
            kept[name].append(chunk[name])
    p, price = np.concatenate(scores), model.weighting_
    costs = own_costs(model)
    if price.positive is None:
        price = replace(price, costs=costs)
    scored = ScoredClasses(
        labels=model.classes_.tolist(),
        p=p,
        actions=np.asarray(price.decide(p), dtype=np.int64),
        costs=np.asarray(costs.costs, dtype=np.float64),
        price=price,
        trained=model.weighting_,
        y=np.concatenate(labels) if labels else np.empty(0, np.int64),
        groups={name: group_values(kept[name]) for name in names},
        error=getattr(model, "training_error_", None),
        noise=fitted_model_noise(np.ones(len(p)), price, getattr(model, "profile_", None)),
    )
    return RowsOfModel(scored, watch, digest, n_labels)


@logged
def declare(
    model: str | Path,
    require: Sequence[str],
    *,
    out: str | Path,
    groups: Any = (),
    confidence: float = 0.95,
    rows: Any = None,
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

    Returns
    -------
    Declaration
        With the number of labels that each criterion needs.
    """
    if not isinstance(model, str | Path):
        raise InvalidParameter("model must be the file of a saved model, whose digest is declared; use crcen.save.")
    if not (isinstance(confidence, float | int) and 0.5 <= confidence < 1.0):
        raise InvalidParameter(
            f"confidence must be at least 0.5 and below 1: got {confidence!r}.", parameter="confidence"
        )
    fitted, model_sha = model_of(model), file_digest(model)
    target = target or getattr(fitted, "target_name_", None)
    if target is None:
        raise InvalidParameter("this model does not know its target column; name it with target=.", parameter="target")
    classes, price = fitted.classes_.tolist(), fitted.weighting_
    texts = [require] if isinstance(require, str) else list(require)
    criteria = parse_criteria(texts, classes, price.positive)
    names = [groups] if isinstance(groups, str) else [str(name) for name in groups]
    if any(one.metric == "groups" for one in criteria) and not names:
        raise InvalidParameter("the criterion 'groups' needs groups=, the columns to compare.", parameter="groups")
    fields = _description(description)
    check_writable(out, model, rows, description)
    scored, rows_content = None, {"are_declared": False, "sha256": "", "file": "", "number": 0, "notes": [_ANY_ROWS]}
    if rows is not None:
        source = source_of(rows, read, fitted)
        found = score_rows(fitted, source, target, names, labelled=False)
        recognition = found.watch.recognition()
        if recognition is not None and recognition.status == "seen":
            raise InvalidInput(f"rows of a declaration must be new to the model: {recognition.measured}.")
        scored, rows_content = found.scored, _rows_content(found, source, target)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "confidence": float(confidence),
        "groups": names,
        "target": target,
        "classes": json_value(classes),
        "positive": "" if price.positive is None else json_value(classes[price.positive]),
        "model": {"file": Path(model).name, "sha256": model_sha, "price": _price_text(fitted)},
        "rows": rows_content,
        "criteria": [_criterion_content(one, scored, criteria, float(confidence)) for one in criteria],
        "description": fields,
        "versions": {"crcen": __version__, **installed_versions(_PACKAGES)},
    }
    text = _toml(content)
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_atomic(out, f'digest = "sha256:{digest}"\n{text}')
    return Declaration(Path(out), digest, content, criteria)


def _rows_content(found: RowsOfModel, source: Source, target: str) -> dict[str, Any]:
    notes = []
    if found.n_labels:
        notes.append(
            f"the file contained {found.n_labels:,} values of {target}, so that labels were available at this time"
        )
    return {
        "are_declared": True,
        "sha256": found.digest.rows,
        "file": Path(source.name).name,
        "number": found.digest.n_rows,
        "notes": notes,
        "columns": found.digest.by_column,
    }


def _price_text(model: Any) -> str:
    price = model.weighting_
    if price.positive is not None:
        return f"a miss costs {price.cost_ratio:.6g} false alarms"
    return str(own_costs(model)) if getattr(model, "costs_", None) is not None else str(price)


def _criterion_content(
    one: Criterion, scored: ScoredClasses | None, criteria: Sequence[Criterion], confidence: float
) -> dict[str, Any]:
    content: dict[str, Any] = {"criterion": one.text, "test": TESTS[one.metric]}
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
        except FileNotFoundError as error:
            raise InvalidInput(f"there is no file {where} with descriptive fields.") from error
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise InvalidInput(f"{where} must be a TOML or JSON file of text fields: {error}.") from error
    found = dict.fromkeys(FIELDS, "")
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(f"{where} must hold fields, such as {listed(FIELDS)}.")
    for name, value in (given or {}).items():
        if name not in found:
            close = closest(str(name), FIELDS)
            meant = f"did you mean {close}?" if close else f"it may have {listed(FIELDS)}."
            raise InvalidInput(f"{where} has the field {name!r}, which is none of a declaration: {meant}")
        if not isinstance(value, str):
            raise InvalidInput(f"{where} must hold text in the field {name}: got {value!r}.")
        found[name] = value.strip()
    return found


def _toml(content: Mapping[str, Any]) -> str:
    """A mapping as TOML: plain values first, then tables."""
    lines = [f"{name} = {_toml_value(value)}" for name, value in content.items() if not _is_table(value)]
    for name, value in content.items():
        if isinstance(value, Mapping):
            lines += ["", *_toml_table(f"[{name}]", value, name)]
        elif _is_table(value):
            for one in value:
                lines += ["", *_toml_table(f"[[{name}]]", one, name)]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _toml_table(head: str, table: Mapping[str, Any], name: str) -> list[str]:
    lines = [head, *(f"{_key(key)} = {_toml_value(one)}" for key, one in table.items() if not _is_table(one))]
    for key, one in table.items():
        if isinstance(one, Mapping):
            lines += ["", *_toml_table(f"[{name}.{_key(key)}]", one, key)]
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def read_declaration(path: str | Path) -> Declaration:
    """The declaration in a file, if nothing in it was changed.

    Raises
    ------
    InvalidInput
        If it is no declaration, or was changed after it was written.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error
    first, _, rest = raw.partition(b"\n")
    stated = _FIRST_LINE.fullmatch(first)
    if stated is None:
        raise InvalidInput(f"{path} is not a declaration: its first line must be the digest that crcen declare wrote.")
    digest = hashlib.sha256(rest).hexdigest()
    if digest != stated[1].decode():
        raise InvalidInput(
            f"{path} was changed after it was declared: it states the digest {stated[1].decode()[:12]}… and its "
            f"content has {digest[:12]}…; declare again."
        )
    try:
        content = tomllib.loads(rest.decode("utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise InvalidInput(f"{path} is a declaration of version {content['version']}: this crcen reads {VERSION}.")
        classes, positive = content["classes"], content["positive"]
        column = classes.index(positive) if positive != "" else None
        texts = [one["criterion"] for one in content["criteria"]]
        return Declaration(Path(path), digest, content, parse_criteria(texts, classes, column))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} is not a declaration that crcen declare wrote: {error}.") from error

"""declare, certify and verify: criteria of a model in a file, their tests on labelled rows, the signed certificate."""

import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np

from crcen import InvalidInput, InvalidParameter, ReadOptions, __version__
from crcen._support.extras import installed_versions, need
from crcen._support.files import check_writable, exclusive_lock, write_atomic
from crcen._support.progress import logged
from crcen._support.text import Values, closest, json_value, listed
from crcen.commands import inputs
from crcen.commands.inputs import Data, Source, check, require_input
from crcen.commands.results import Result, file_digest, json_text, note_lines, read_bytes, read_json
from crcen.commands.rules import own_costs
from crcen.commands.scoring import Judging, ScoredTable
from crcen.report.page import certificate_page
from crcen.tables.fingerprint import RowDigest
from crcen.theory.criteria import TESTS, Criterion, ScoredClasses, judge_criteria, labels_needed, parse_criteria
from crcen.theory.intervals import share_interval
from crcen.theory.limits import fitted_model_noise
from crcen.theory.rows import ShownInOneLine

Key: TypeAlias = Any  # objects of cryptography, which is optional

DECLARATION, CERTIFICATE = ("crcen declaration", 1), ("crcen certificate", 1)  # format and version
_RECORD_FORMAT = "crcen certifications"
# Descriptive fields, shown as empty if nobody states them.
FIELDS = ("purpose", "population", "sampling", "oversight", "limitations", "responsible")
_FIRST_LINE = re.compile(rb'digest = "sha256:([0-9a-f]{64})"')
_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "torch", "pandas", "pyarrow")
_ANY_ROWS = "the rows were not stated in advance: any rows are accepted"
_NO_TABLE = "how a table is read must go with {}=, the table: got none."
_BINS = 8
_NOT_SAID = (
    "other populations, other places and later times: the result holds for rows drawn like these",
    "fairness, beyond the groups and criteria that are listed",
    "whether the labels are right, and whether the rows are a random sample of those that the model will decide on",
    "whether the declaration was made before anyone saw the labels: the dates are those of the computers used",
)


@dataclass(frozen=True, eq=False, repr=False)
class Declaration(ShownInOneLine):
    """What was declared; prints itself."""

    path: Path
    digest: str  # SHA-256 of the content
    content: Values
    criteria: tuple[Criterion, ...]  # in the order in which they were stated

    @property
    def clusters(self) -> str | None:
        """Column of rows that belong together, if one was declared."""
        return self.content["clusters"] or None

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return {"path": str(self.path), "digest": self.digest, **self.content}

    def __str__(self) -> str:
        rows = self.content["rows"]
        declared = "1 criterion" if len(self.criteria) == 1 else f"{len(self.criteria)} criteria"
        lines = [f"{declared} declared for {self.content['model']['file']}: {self.path}"]
        for one in self.content["criteria"]:
            needed = f"{one['labels_needed']:,} labels ({one['plan']})" if "labels_needed" in one else one["plan"]
            lines.append(f"  {one['criterion']:<28} {needed}")
        fixed = f"{rows['number']:,} rows of {rows['file']}" if rows["are_declared"] else "any rows are accepted"
        groups = f"groups: {listed(self.content['groups'])}; " if self.content["groups"] else ""
        groups += f"clusters: {self.clusters}; " if self.clusters else ""
        lines += [f"{groups}confidence {self.content['confidence']:g}; {fixed}", *note_lines(rows["notes"])]
        empty = [name for name in FIELDS if not self.content["description"][name]]
        lines += [f"Empty fields: {listed(empty)}."] if empty else []
        return "\n".join([*lines, f"Digest sha256:{self.digest}"])


def _score(judging: Judging, *, labelled: bool) -> tuple[ScoredTable, RowDigest]:
    """Rows of a table that are new to the model, and their digest; labels are read only if ``labelled``."""
    columns = inputs.input_columns(judging.model) or [one for one in judging.source.columns if one != judging.target]
    named = dict.fromkeys([*columns, *judging.groups, *judging.roles.values()])
    digest = RowDigest(list(named), judging.target if labelled else None)
    found = judging.score(reads_labels=labelled, recognises=True, digest=digest)
    what = "certificate" if labelled else "declaration"
    found.comparison.reject_training_rows(f"a {what} needs rows that are new to the model")
    return found, digest


def _scored_classes(judging: Judging, found: ScoredTable) -> ScoredClasses:
    model, costs, price = judging.model, own_costs(judging.model), judging.model.weighting_
    if price.positive is None:
        price = replace(price, costs=costs)
    name = judging.roles.get("clusters")
    return ScoredClasses(
        labels=model.classes_.tolist(),
        p=found.p,
        actions=np.asarray(price.decide(found.p), dtype=np.int64),
        costs=np.asarray(costs.costs, dtype=np.float64),
        price=price,
        trained=model.weighting_,
        y=found.y,
        groups={name: inputs.group_values(found.frame[name]) for name in judging.groups},
        clusters=None if name is None else inputs.cluster_numbers(found.frame[name]),
        error=getattr(model, "training_error_", None),
        noise=fitted_model_noise(np.ones(len(found.p)), price, getattr(model, "profile_", None)),
    )


@logged
def declare(
    model: str | Path,
    require: Sequence[str],
    *,
    out: str | Path,
    groups: str | Sequence[str] = (),
    clusters: str | None = None,
    confidence: float = 0.95,
    rows: Data = None,
    target: str | None = None,
    description: Mapping[str, str] | str | Path | None = None,
    read: ReadOptions | None = None,
) -> Declaration:
    """Write acceptance criteria of a model to a file, as `crcen declare` does.

    Parameters
    ----------
    model : str or Path
        File of the model.
    require : sequence of str
        Criteria, such as ``"recall >= 0.8"``, ``"precision[worn] >= 0.5"``, ``"cost per 1000 <= 400"``,
        ``"key equation"``, ``"unlike"`` and ``"groups"``.
    out : str or Path
        The TOML file to write.
    groups : str or sequence of str, optional
        Columns whose values are groups: criteria must also hold in each group.
    clusters : str, optional
        Column of rows that belong together, such as a patient: the tests account for dependence within it.
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
    check("confidence", confidence, 0.5 <= confidence < 1.0, "be at least 0.5 and below 1")
    inputs.require(read is None or rows is not None, _NO_TABLE.format("rows"), "rows")
    fitted, model_sha = inputs.model_of(model), file_digest(model)
    target = target or getattr(fitted, "target_name_", None)
    if target is None:
        raise InvalidParameter("this model does not know its target column; name it with target=.", parameter="target")
    inputs.require(clusters != target, f"clusters must be another column than the target, {target!r}.", "clusters")
    classes, price = fitted.classes_.tolist(), fitted.weighting_
    criteria = parse_criteria([require] if isinstance(require, str) else list(require), classes, price.positive)
    names = [groups] if isinstance(groups, str) else [str(name) for name in groups]
    needs_groups = any(one.metric == "groups" for one in criteria)
    inputs.require(names or not needs_groups, "the criterion 'groups' needs groups=, the columns to compare.", "groups")
    fields = _description(description)
    check_writable(out, model, rows, description)
    scored, rows_content = None, {"are_declared": False, "sha256": "", "file": "", "number": 0, "notes": [_ANY_ROWS]}
    if rows is not None:
        source = inputs.source_of(rows, read, fitted)
        own: Values = {"target": target if target in source.columns else None, "groups": names}
        judging = Judging.of(fitted, source, read, **own, roles={"clusters": clusters})
        found, digest = _score(judging, labelled=False)
        n_labels = int(found.frame[target].notna().sum()) if judging.target else 0
        note = f"the file contained {n_labels:,} values of {target}, so labels were available at this time"
        scored = _scored_classes(judging, found)
        rows_content = {
            "are_declared": True,
            "sha256": digest.rows,
            "file": Path(source.name).name,
            "number": digest.n_rows,
            "notes": [note] if n_labels else [],
            "columns": digest.by_column,
        }
    pairs = (f"{label} {weight:.6g}" for label, weight in zip(classes, price.weights.tolist(), strict=True))
    price_text = f"weights of mistakes: {', '.join(pairs)}"
    if price.positive is not None:
        price_text = f"a miss costs {price.cost_ratio:.6g} false alarms"
    elif getattr(fitted, "costs_", None) is not None:
        price_text = str(own_costs(fitted))
    content = {
        **dict(zip(("format", "version"), DECLARATION, strict=True)),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "confidence": float(confidence),
        "groups": names,
        "clusters": clusters or "",
        "target": target,
        "classes": json_value(classes),
        "positive": "" if price.positive is None else json_value(classes[price.positive]),
        "model": {"file": Path(model).name, "sha256": model_sha, "price": price_text},
        "rows": rows_content,
        "criteria": [_criterion_content(one, scored, criteria, float(confidence)) for one in criteria],
        "description": fields,
        "versions": {"crcen": __version__, **installed_versions(_PACKAGES)},
    }
    text = "\n".join(_toml(content)) + "\n"
    sha = hashlib.sha256(text.encode()).hexdigest()
    write_atomic(out, f'digest = "sha256:{sha}"\n{text}')
    return Declaration(Path(out), sha, content, criteria)


def _criterion_content(
    one: Criterion, scored: ScoredClasses | None, criteria: Sequence[Criterion], confidence: float
) -> Values:
    unknown = math.inf, "the number of labels needed is unknown without the rows"
    needed, why = unknown if scored is None else labels_needed(one, scored, criteria, confidence)
    planned = {"labels_needed": math.ceil(needed)} if math.isfinite(needed) else {}
    return {"criterion": one.text, "test": TESTS[one.metric], **planned, "plan": why}


def _description(given: Mapping[str, str] | str | Path | None) -> dict[str, str]:
    where = "description"
    if isinstance(given, str | Path):
        where, raw = str(given), read_bytes(given)
        try:
            text = raw.decode()
            given = json.loads(text) if Path(given).suffix.lower() == ".json" else tomllib.loads(text)
        except ValueError as error:
            raise InvalidInput(f"{where} must be a TOML or JSON file of text fields: {error}.") from error
        require_input(isinstance(given, dict), f"{where} must hold fields, such as {listed(FIELDS)}.")
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
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # which TOML does not allow


def read_declaration(path: str | Path) -> Declaration:
    """The declaration in a file; `InvalidInput` if it is none, or was changed after it was written."""
    first, _, rest = read_bytes(path).partition(b"\n")
    stated, digest = _FIRST_LINE.fullmatch(first), hashlib.sha256(rest).hexdigest()
    if stated is None:
        raise InvalidInput(f"{path} is not a declaration: its first line must be the digest that crcen declare wrote.")
    both = f"it states the digest {stated[1].decode()[:12]}… and its content has {digest[:12]}…"
    require_input(digest == stated[1].decode(), f"{path} was changed after it was declared: {both}; declare again.")
    try:
        content = tomllib.loads(rest.decode("utf-8"))
        version = f"{path} is a declaration of version {content['version']}: this crcen reads {DECLARATION[1]}."
        require_input((content["format"], content["version"]) == DECLARATION, version)
        classes, positive = content["classes"], content["positive"]
        column = classes.index(positive) if positive != "" else None
        texts = [one["criterion"] for one in content["criteria"]]
        return Declaration(Path(path), digest, content, parse_criteria(texts, classes, column))
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is not a declaration that crcen declare wrote: {error}.") from error


def declaration_of_model(path: str | Path, model: object, clusters: str | None = None) -> Declaration:
    """The declaration in a file; an error if it is of another model, or has another column of clusters."""
    declared = read_declaration(path)
    is_other = isinstance(model, str | Path) and file_digest(model) != declared.content["model"]["sha256"]
    require_input(not is_other, f"{model} is not the declared model {declared.content['model']['file']} of {path}.")
    column = declared.clusters or "none"
    other = f"clusters must be the declared column, {column}: got {clusters}; declare again to change it."
    inputs.require(clusters in (None, declared.clusters), other, "clusters")
    return declared


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(ShownInOneLine):
    """The outcome of declared criteria, with the fields of the JSON file and the files written; prints itself."""

    content: Values
    paths: tuple[Path, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict: "fail", "undecided" or "pass"."""
        return str(self.content["verdict"])

    def to_dict(self) -> Values:
        """Plain values, ready for JSON: the content of the JSON file."""
        return self.content

    def __str__(self) -> str:
        lines = [self.content["summary"]]
        for one in self.content["criteria"]:
            lines.append(f"  {one['verdict']:<10} {one['criterion']}: {one['statement']}")
            for part in one["groups"]:
                lines.append(f"    {part['verdict']:<10} {part['column']} = {part['group']}: {part['statement']}")
        key = self.content["signed_by"]
        signer = "not signed" if key is None else f"signed by the key {key[:16]}…"
        lines += [*note_lines(self.content["notes"]), f"Digest sha256:{self.content['digest']}, {signer}"]
        return "\n".join([*lines, *(f"Written to {path}" for path in self.paths)])


@logged
def certify(
    declaration: str | Path,
    data: Data,
    *,
    model: str | Path,
    clusters: str | None = None,
    out: str | Path | None = None,
    json_out: str | Path | None = None,
    sign: str | Path | None = None,
    again: bool = False,
    read: ReadOptions | None = None,
) -> Certificate:
    """Test declared criteria on labelled rows, as `crcen certify` does.

    The digests of declaration and rows are recorded in a file next to the declaration.

    Parameters
    ----------
    declaration : str or Path
        File that `declare` wrote, unchanged.
    data : data frame, str or Path
        The declared rows with the label of every row.
    model : str or Path
        File of the declared model.
    clusters : str, optional
        Column of rows that belong together; must be the declared one, which is the default.
    out, json_out : str or Path, optional
        The printable HTML page and the JSON file to write.
    sign : str or Path, optional
        Ed25519 private key (PEM) that signs the certificate; see `generate_key`.
    again : bool, default=False
        Allow a second certification of this declaration on these rows; the certificate states it.
    read : ReadOptions, optional
        How the table is read.
    """
    declared = declaration_of_model(declaration, model, clusters)
    files = {"out": out, "json_out": json_out}
    outputs = inputs.check_outputs(files, declaration, model, data, sign, pages=("out",))
    key = None if sign is None else _private_key(sign)
    named = {name: declared.content[name] for name in ("target", "groups")}
    judging = Judging.of(model, data, read, needs_target=True, **named, roles={"clusters": declared.clusters})
    found, rows = _score(judging, labelled=True)
    n_missing = int((~found.is_labelled).sum())
    lacking = f"{n_missing:,} rows of {judging.source.name} have no value of {judging.target}."
    require_input(not n_missing, f"a certificate needs the label of every row: {lacking}")
    _check_rows(declared, rows, judging.source.name)
    place = Path(os.path.realpath(declaration))
    record = place.with_name(f"{place.stem}.certifications.json")
    with exclusive_lock(record, instead="certify later"):
        everything = _records(record)
        earlier = [one for one in everything if one["declaration"] == declared.digest]
        same = [one["date"] for one in earlier if one["rows"] == rows.rows]
        second = f"on {', '.join(same[-1:])}: a second one needs again=, and the certificate states it."
        require_input(again or not same, f"{declaration} was certified on these rows {second}", "again")
        content = _content(declared, found, rows, judging, same, len(earlier) - len(same))
        content["signed_by"] = None if key is None else key.public_key().public_bytes_raw().hex()
        content = json.loads(json.dumps(content))  # what a file holds
        payload = _payload(content)
        signature = None if key is None else key.sign(payload).hex()
        content |= {"digest": hashlib.sha256(payload).hexdigest(), "signature": signature}
        made = [(out, certificate_page), (json_out, json_text)]
        texts = [(path, make(content)) for path, make in made if path is not None]
        entry = {"date": content["date"], "declaration": declared.digest, "rows": rows.rows}
        entry |= {"verdict": content["verdict"], "certificate": content["digest"]}
        records = {"format": _RECORD_FORMAT, "certifications": [*everything, entry]}
        for path, text in [(record, json_text(records)), *texts]:
            write_atomic(path, text)
    return Certificate(content, tuple(outputs))


def _check_rows(declared: Declaration, digest: RowDigest, name: str) -> None:
    rows = declared.content["rows"]
    if not rows["are_declared"] or rows["sha256"] == digest.rows:
        return
    changed = [column for column, one in rows["columns"].items() if digest.by_column.get(column) != one]
    why = f"values of {listed(changed)} differ" if changed else "the same values are combined into other rows"
    if rows["number"] != digest.n_rows:
        why = f"it has {digest.n_rows:,} rows, declared were {rows['number']:,}"
    raise InvalidInput(f"{name} does not hold the declared rows of {rows['file']}: {why}.")


def _records(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    found: Any = read_json(path, _RECORD_FORMAT, None, "a record of earlier certifications").get("certifications")
    keys = {"date", "declaration", "rows"}
    are_records = isinstance(found, list) and all(isinstance(one, dict) and keys <= {*one} for one in found)
    require_input(are_records, f"{path} is damaged, the record of earlier certifications: restore it.")
    return list(found)


def _content(
    declared: Declaration, found: ScoredTable, digest: RowDigest, judging: Judging, same: list[str], n_other: int
) -> Values:
    """Test the criteria; all fields of a certificate but digest and signature."""
    stated, scored, recognition = declared.content, _scored_classes(judging, found), found.comparison.recognition()
    price, independent, together = scored.price, found.dependent_rows("declare with --clusters"), None
    if scored.clusters is not None:
        together = {"column": declared.clusters, "number": int(scored.clusters.max()) + 1}
        independent = [f"tests allow for dependent rows in {together['number']:,} clusters of {declared.clusters}"]

    def differences(false_alarm_rate: float) -> tuple[str, ...] | None:
        if getattr(judging.model, "profile_", None) is None:
            return None
        n_alarms = None if price.positive is None else int((scored.actions == price.positive).sum())
        return tuple(one.sentence for one in found.comparison.unlike(n_alarms, price, false_alarm_rate))

    outcomes = judge_criteria(declared.criteria, scored, stated["confidence"], differences)
    verdicts = [one.verdict for one in outcomes]
    counted = ((verdicts.count(word), word) for word in ("pass", "fail", "undecided"))
    summary = f"Of {len(verdicts)} declared criteria: {', '.join(f'{n} {word}' for n, word in counted if n)}."
    if len(verdicts) == 1:
        summary = f"The declared criterion{' passes' if verdicts == ['pass'] else f': {verdicts[0]}'}."
    elif {*verdicts} == {"pass"}:
        summary = f"All {len(verdicts)} declared criteria pass."
    actions = [*scored.labels, *own_costs(judging.model).actions]
    counts = np.zeros((len(scored.labels), len(actions)), dtype=np.int64)
    np.add.at(counts, (scored.y, scored.actions), 1)
    sizes = zip(scored.labels, counts.sum(axis=1).tolist(), strict=True)
    notes = [*stated["rows"]["notes"], *judging.source.notes, *found.comparison.notes, *independent]
    notes += inputs.weight_notes(judging.model, None)
    if same:
        notes.append(f"repeated: this declaration was certified on these rows before, on {', '.join(same)}")
    if n_other:
        notes.append(f"this declaration was certified {n_other} times on other rows before")
    if recognition is None or recognition.status == "unknown":
        notes.append("it could not be determined whether the rows are new to the model")
    return {
        **dict(zip(("format", "version"), CERTIFICATE, strict=True)),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": next(word for word in ("fail", "undecided", "pass") if word in verdicts),
        "summary": summary,
        "criteria": [one.to_dict() for one in outcomes],
        "family_wise_error": {
            "rate": round(1.0 - stated["confidence"], 12),
            "method": "Holm",
            "meaning": "probability of any wrong pass of a threshold, and of any wrong fail, over criteria and groups",
        },
        "declaration": {
            "file": declared.path.name,
            "digest": declared.digest,
            **{name: stated[name] for name in ("date", "confidence", "groups")},
            "rows_are_declared": stated["rows"]["are_declared"],
            "notes": stated["rows"]["notes"],
            "labels_needed": [one.get("labels_needed") for one in stated["criteria"]],
        },
        "earlier_certifications": {"on_these_rows": same, "on_other_rows": n_other},
        "model": stated["model"],
        "data": {
            "file": Path(judging.source.name).name,
            "rows": len(scored.y),
            "target": stated["target"],
            "clusters": together,
            "positive": None if price.positive is None else json_value(scored.labels[price.positive]),
            "classes": [{"label": json_value(label), "rows": size} for label, size in sizes],
            "columns": list(digest.columns),
            "sha256": digest.rows,
            "labelled_sha256": digest.labelled,
            "training_rows": None if recognition is None else recognition.to_dict(),
        },
        "decisions": {"actions": json_value(actions), "counts": counts.tolist()},
        "calibration": _calibration(scored),
        "description": {name: stated["description"].get(name, "") for name in FIELDS},
        "notes": notes,
        "not_tested": list(_NOT_SAID),
        "versions": {"crcen": __version__, **installed_versions(_PACKAGES)},
    }


def _calibration(scored: ScoredClasses) -> list[Values]:
    """Predicted and observed shares in parts of equal size, of each class, or of the positive one."""
    positive, found = scored.price.positive, []
    for k in range(len(scored.labels)) if positive is None else [positive]:
        order = np.argsort(scored.p[:, k], kind="stable")
        bins = []
        for part in np.array_split(order, min(_BINS, len(order))):
            related = None if scored.clusters is None else scored.clusters[part]
            share, low, high = share_interval(scored.y[part] == k, clusters=related)
            predicted = float(scored.p[part, k].mean())
            bins.append({"rows": len(part), "predicted": predicted, "observed": share, "low": low, "high": high})
        found.append({"label": json_value(scored.labels[k]), "bins": bins})
    return found


def _payload(content: Values) -> bytes:
    return json_text({name: one for name, one in content.items() if name not in ("digest", "signature")}).encode()


def _ed25519() -> tuple[Key, Key]:
    names, purpose = "cryptography.hazmat.primitives", "signatures need cryptography"
    parts = ("serialization", "asymmetric.ed25519")
    serialization, ed25519 = (need(f"{names}.{part}", "certificate", purpose) for part in parts)
    return serialization, ed25519


def _private_key(path: str | Path) -> Key:
    serialization, ed25519 = _ed25519()
    content = read_bytes(path)
    with suppress(TypeError, ValueError):
        key = serialization.load_pem_private_key(content, password=None)
        if isinstance(key, ed25519.Ed25519PrivateKey):
            return key
    raise InvalidInput(f"{path} must be an unencrypted Ed25519 private key in PEM: make one with crcen keygen.")


@dataclass(frozen=True, repr=False)
class KeyPair(Result):
    """Files of a new key; prints itself."""

    keys = "private public key"
    private: Path
    public: Path
    key: str

    def __str__(self) -> str:
        files = f"Private key {self.private} (keep it secret), public key {self.public} (give it to those who verify)"
        return f"{files}\nPublic key {self.key}"


def generate_key(out: str | Path) -> KeyPair:
    """Write a new Ed25519 key pair: the private key, readable by its owner only, and the public key with ".pub"."""
    serialization, ed25519 = _ed25519()
    private, public = Path(out), Path(f"{out}.pub")
    for path in (private, public):
        check_writable(path)
        require_input(not path.exists(), f"{path} exists, and a key is never overwritten: choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # first: of two calls one has the name
    try:
        with open(descriptor, "wb") as file:
            file.write(secret)
        write_atomic(public, key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    return KeyPair(private, public, key.public_key().public_bytes_raw().hex())


@dataclass(frozen=True)
class Verification:
    """What belongs together and what does not; prints itself."""

    checks: tuple[tuple[str, bool, str], ...]  # what was checked, whether it is valid, and a statement
    verdict: str  # of the certificate

    @property
    def is_valid(self) -> bool:
        """Whether everything that was checked belongs together."""
        return all(is_right for _, is_right, _ in self.checks)

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        checks = [{"check": name, "valid": is_right, "statement": text} for name, is_right, text in self.checks]
        return {"valid": self.is_valid, "verdict": self.verdict, "checks": checks}

    def __str__(self) -> str:
        word = "Valid" if self.is_valid else "Not valid"
        lines = [f"{word}: the certificate, whose verdict is {self.verdict or 'unknown'}."]
        return "\n".join([*lines, *(f"  {'ok' if one[1] else 'WRONG':<6} {one[0]}: {one[2]}." for one in self.checks)])


def verify(
    certificate: str | Path,
    *,
    model: str | Path | None = None,
    data: Data = None,
    declaration: str | Path | None = None,
    page: str | Path | None = None,
    public_key: str | Path | None = None,
    read: ReadOptions | None = None,
) -> Verification:
    """Check that a certificate is unchanged and belongs to the given files, as `crcen verify` does.

    Parameters
    ----------
    certificate : str or Path
        The JSON file that `certify` wrote.
    model, declaration, page : str or Path, optional
        Files that must belong to it: the model, the declaration, the HTML page.
    data : data frame, str or Path, optional
        The labelled rows that must belong to it.
    public_key : str or Path, optional
        File of the public key (PEM) that must have signed it.
    read : ReadOptions, optional
        How the table is read; with ``model`` by default as its training table was.
    """
    inputs.require(read is None or data is not None, _NO_TABLE.format("data"), "data")
    content = read_json(certificate, *CERTIFICATE, "a certificate that crcen certify wrote")
    parts = {"model": {"sha256"}, "declaration": {"digest"}, "data": {"columns", "target", "sha256", "labelled_sha256"}}
    has_parts = all(isinstance(content.get(name), dict) and keys <= {*content[name]} for name, keys in parts.items())
    is_whole = has_parts and {"digest", "signature", "signed_by", "verdict"} <= {*content}
    is_whole = is_whole and isinstance(content["data"]["columns"], list)
    require_input(is_whole, f"{certificate} is not a certificate that crcen certify wrote.")
    is_canonical = json_text(content).encode(errors="surrogatepass") == Path(certificate).read_bytes()
    is_same = is_canonical and hashlib.sha256(_payload(content)).hexdigest() == content["digest"]
    checks = [("content", is_same, "unchanged since it was written" if is_same else "changed after it was written")]
    checks.append(_signature_check(content, public_key))
    if model is not None:
        checks.append(_same("model", file_digest(model), content["model"]["sha256"], Path(model).name))
    if declaration is not None:
        here = read_declaration(declaration).digest
        checks.append(_same("declaration", here, content["declaration"]["digest"], "declaration"))
    if data is not None:
        source = inputs.source_of(data, read, None if model is None else inputs.model_of(model))
        checks.append(_data_check(content["data"], source))
    if page is not None:
        is_page = read_bytes(page) == certificate_page(content).encode() and is_same
        text = "the page of this certificate" if is_page else "not the page that this version of crcen writes"
        checks.append(("page", is_page, text))
    return Verification(tuple(checks), str(content["verdict"]) if is_same else "")


def _same(name: str, here: str, stated: str, file: str) -> tuple[str, bool, str]:
    text = f"{file} is the certified one" if here == stated else f"another {name} than the certified one"
    return name, here == stated, text


def _data_check(stated: Values, source: Source) -> tuple[str, bool, str]:
    absent = [name for name in [*stated["columns"], stated["target"]] if name not in source.columns]
    if absent:
        return "data", False, f"{source.name} lacks {listed(absent)}"
    digest = RowDigest(stated["columns"], stated["target"])
    for chunk in source.chunks():
        digest.add(chunk)
    if digest.rows != stated["sha256"]:
        return "data", False, f"{source.name} holds other rows ({digest.n_rows:,}, certified were {stated['rows']:,})"
    if digest.labelled != stated["labelled_sha256"]:
        return "data", False, f"{source.name} holds the certified rows with other values of {stated['target']}"
    return "data", True, f"{source.name} holds the certified rows and labels"


def _signature_check(content: Values, public_key: str | Path | None) -> tuple[str, bool, str]:
    signed_by, signature = content["signed_by"], content["signature"]
    if signed_by is None and signature is None:
        why = "not signed, so anyone could have written it"
        return "signature", public_key is None, why if public_key is None else "the certificate is not signed"
    serialization, ed25519 = _ed25519()
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed_by))
        key.verify(bytes.fromhex(signature), _payload(content))
        if bytes.fromhex(signature).hex() != signature or bytes.fromhex(signed_by).hex() != signed_by:
            raise ValueError("hexadecimal digits in another form")
    except Exception:  # cryptography's InvalidSignature derives from Exception alone
        return "signature", False, "the signature does not belong to this content"
    if public_key is None:
        return "signature", True, f"right for the key {signed_by[:16]}…; pass the public key to check its owner"
    content_of_key = read_bytes(public_key)
    try:
        is_known = serialization.load_pem_public_key(content_of_key).public_bytes_raw().hex() == signed_by
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"{public_key} must be an Ed25519 public key in PEM.") from error
    whose = "the key" if is_known else "another key than that"
    return "signature", is_known, f"by {whose} of {Path(public_key).name}"


def evidence_links(
    page: str | Path, model: str | None, declaration: str | Path | None, certificate: str | Path | None
) -> list[tuple[str, str]]:
    """Text and address, relative to a page, of a declaration and a certificate, which must be of the model."""
    links = []
    folder = Path(os.path.realpath(page)).parent
    if declaration is not None:
        links.append((f"declaration of {declaration_of_model(declaration, model).content['date'][:10]}", declaration))
    if certificate is not None:
        found = verify(certificate, model=model, declaration=declaration)
        wrong = "; ".join(text for _, is_right, text in found.checks if not is_right)
        require_input(found.is_valid, f"the certificate {certificate} cannot be linked to: {wrong}.")
        links.append((f"certificate: {found.verdict}", certificate))
    return [(text, quote(os.path.relpath(os.path.realpath(path), folder).replace(os.sep, "/"))) for text, path in links]

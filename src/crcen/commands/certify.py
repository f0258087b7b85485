"""certify and verify: declared criteria tested on labelled rows, the certificate, its signature and its check."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np

from crcen import InvalidInput, ReadOptions
from crcen._support.extras import need
from crcen._support.files import check_writable, exclusive_lock, write_atomic
from crcen._support.progress import logged
from crcen._support.text import listed
from crcen._support.values import Values, json_value
from crcen.commands import declare
from crcen.commands.inputs import Data, Source, model_of, require, require_input, source_of
from crcen.commands.prices import own_costs
from crcen.commands.results import Result, file_digest, json_text, note_lines, read_json
from crcen.commands.scoring import Judging
from crcen.report.page import certificate_page
from crcen.tables.fingerprint import RowDigest
from crcen.theory.criteria import ScoredClasses, judge_criteria
from crcen.theory.intervals import wilson
from crcen.theory.rows import ShownInOneLine

Key: TypeAlias = Any  # objects of cryptography, which is optional

FORMAT, VERSION = "crcen certificate", 1
_RECORD_FORMAT = "crcen certifications"
_BINS = 8
_NOT_SAID = (
    "other populations, other places and later times: the result holds for rows drawn like these",
    "fairness, beyond the groups and criteria that are listed",
    "whether the labels are right, and whether the rows are a random sample of those that the model will decide on",
    "whether the declaration was made before anyone saw the labels: the dates are those of the computers used",
)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(ShownInOneLine):
    """The outcome of declared criteria, with the fields of the JSON file and the files written; prints itself."""

    content: Values
    paths: tuple[Path, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict: "fail", "undecided" or "pass"."""
        return str(self.content["verdict"])

    @property
    def criteria(self) -> list[Values]:
        """The criteria in the declared order."""
        return list(self.content["criteria"])

    def to_dict(self) -> Values:
        """Plain values, ready for JSON: the content of the JSON file."""
        return self.content

    def __str__(self) -> str:
        lines = [self.content["summary"]]
        for one in self.criteria:
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
    out: str | Path | None = None,
    json_out: str | Path | None = None,
    sign: str | Path | None = None,
    again: bool = False,
    read: ReadOptions | None = None,
) -> Certificate:
    """Test declared criteria on labelled rows: what `crcen certify` does.

    The digests of declaration and rows are recorded in a file next to the declaration.

    Parameters
    ----------
    declaration : str or Path
        File that `declare` wrote, unchanged.
    data : data frame, str or Path
        The declared rows with the label of every row.
    model : str or Path
        File of the declared model.
    out, json_out : str or Path, optional
        The printable HTML page and the JSON file to write.
    sign : str or Path, optional
        Ed25519 private key (PEM) that signs the certificate; see `generate_key`.
    again : bool, default=False
        Allow a further certification of this declaration on these rows; the certificate states it.
    read : ReadOptions, optional
        How the table is read.
    """
    declared = declare.read_declaration(declaration)
    files = (declaration, model, data, sign)
    outputs = [check_writable(path, *files) for path in (out, json_out) if path is not None]
    are_two = len({os.path.realpath(path) for path in outputs}) == len(outputs)
    require(are_two, f"out and json_out must be two files: got {out} twice.")
    key = None if sign is None else _private_key(sign)
    digest, stated = file_digest(model), declared.content["model"]
    both = f"its digest is {digest[:12]}…, declared was {stated['sha256'][:12]}…."
    is_declared = digest == stated["sha256"]
    require_input(is_declared, f"{model} is not the declared model {stated['file']}: {both}")
    named = {name: declared.content[name] for name in ("target", "groups")}
    judging = Judging.of(model, data, read, needs_target=True, **named)
    found = declare.score_rows(judging, labelled=True)
    _check_rows(declared, found.digest, judging.source.name)
    place = Path(os.path.realpath(declaration))
    record = place.with_name(f"{place.stem}.certifications.json")
    with exclusive_lock(record, instead="certify later"):
        everything = _records(record)
        earlier = [one for one in everything if one["declaration"] == declared.digest]
        same = [one["date"] for one in earlier if one["rows"] == found.digest.rows]
        second = f"on {', '.join(same[-1:])}: a second one needs again=, and the certificate states it."
        require_input(again or not same, f"{declaration} was certified on these rows {second}", "again")
        content = _content(declared, found, judging, same, len(earlier) - len(same))
        content["signed_by"] = None if key is None else _hex(key)
        content = json.loads(json.dumps(content))  # what a file holds
        payload = _payload(content)
        signature = None if key is None else key.sign(payload).hex()
        content |= {"digest": hashlib.sha256(payload).hexdigest(), "signature": signature}
        made = [(out, certificate_page), (json_out, json_text)]
        texts = [(path, make(content)) for path, make in made if path is not None]
        entry = {"date": content["date"], "declaration": declared.digest, "rows": found.digest.rows}
        entry |= {"verdict": content["verdict"], "certificate": content["digest"]}
        records = {"format": _RECORD_FORMAT, "certifications": [*everything, entry]}
        for path, text in [(record, json_text(records)), *texts]:
            write_atomic(path, text)
    return Certificate(content, tuple(outputs))


def _check_rows(declared: declare.Declaration, digest: RowDigest, name: str) -> None:
    """Reject rows other than the declared ones, naming the difference."""
    rows = declared.content["rows"]
    if not rows["are_declared"] or rows["sha256"] == digest.rows:
        return
    changed = [column for column, one in rows["columns"].items() if digest.by_column.get(column) != one]
    if rows["number"] != digest.n_rows:
        why = f"it has {digest.n_rows:,} rows, declared were {rows['number']:,}"
    elif changed:
        why = f"values of {listed(changed)} differ"
    else:
        why = "the same values are combined to other rows"
    raise InvalidInput(f"{name} does not hold the declared rows of {rows['file']}: {why}.")


def _records(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    try:
        found = read_json(path, _RECORD_FORMAT, None, "the record of earlier certifications")["certifications"]
        if not all({"date", "declaration", "rows"} <= set(one) for one in found):
            raise KeyError("date")
        return list(found)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is damaged, the record of earlier certifications: restore it.") from error


def _content(
    declared: declare.Declaration, found: declare.ScoredRows, judging: Judging, same: list[str], n_other: int
) -> Values:
    """Test the criteria; all fields of a certificate but digest and signature."""
    stated, scored, price, recognition = declared.content, found.scored, found.scored.price, found.recognition

    def differences(error_rate: float) -> tuple[str, ...] | None:
        if getattr(judging.model, "profile_", None) is None:
            return None
        n_alarms = None if price.positive is None else int((scored.actions == price.positive).sum())
        return tuple(one.sentence for one in found.watch.unlike(n_alarms, price, error_rate))

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
    notes = [*stated["rows"]["notes"], *judging.source.notes, *found.watch.notes, *found.notes]
    if same:
        notes.append(f"repeated: this declaration was certified on these rows before, on {', '.join(same)}")
    if n_other:
        notes.append(f"this declaration was certified {n_other} times on other rows before")
    if recognition is None or recognition.status == "unknown":
        notes.append("whether the rows are new to the model could not be determined from them")
    return {
        "format": FORMAT,
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": next(word for word in ("fail", "undecided", "pass") if word in verdicts),
        "summary": summary,
        "criteria": [one.to_dict() for one in outcomes],
        "family_wise_error": {
            "rate": round(1.0 - stated["confidence"], 12),
            "method": "Holm",
            "meaning": "probability of any wrong pass of a threshold, and of any wrong fail, over all "
            "criteria and groups",
        },
        "declaration": {
            "file": declared.path.name,
            "digest": declared.digest,
            "date": stated["date"],
            "confidence": stated["confidence"],
            "groups": stated["groups"],
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
            "positive": None if price.positive is None else json_value(scored.labels[price.positive]),
            "classes": [
                {"label": json_value(label), "rows": int(row.sum())}
                for label, row in zip(scored.labels, counts, strict=True)
            ],
            "columns": list(found.digest.columns),
            "sha256": found.digest.rows,
            "labelled_sha256": found.digest.labelled,
            "training_rows": None if recognition is None else recognition.to_dict(),
        },
        "decisions": {"actions": json_value(actions), "counts": counts.tolist()},
        "calibration": _calibration(scored),
        "description": {name: stated["description"].get(name, "") for name in declare.FIELDS},
        "notes": notes,
        "not_tested": list(_NOT_SAID),
        "versions": declare.versions(),
    }


def _calibration(scored: ScoredClasses) -> list[Values]:
    """Predicted and observed shares in parts of equal size, of each class, or of the positive one."""
    positive, found = scored.price.positive, []
    for k in range(len(scored.labels)) if positive is None else [positive]:
        order = np.argsort(scored.p[:, k], kind="stable")
        bins = []
        for part in np.array_split(order, min(_BINS, len(order))):
            share = float((scored.y[part] == k).mean())
            low, high = map(float, wilson(share, len(part)))
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


def _hex(private: Key) -> str:
    """The public key of a private one, in hexadecimal digits."""
    return str(private.public_key().public_bytes_raw().hex())


def _private_key(path: str | Path) -> Key:
    serialization, ed25519 = _ed25519()
    try:
        key = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
        if isinstance(key, ed25519.Ed25519PrivateKey):
            return key
    except OSError as error:
        raise InvalidInput(f"the key {path} cannot be read: {error.strerror}.") from error
    except (TypeError, ValueError):
        pass
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
        if path.exists():
            raise InvalidInput(f"{path} exists, and a key is never overwritten: choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secret)
        known = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        write_atomic(public, known)
    except BaseException:
        with suppress(OSError):
            private.unlink()
        raise
    return KeyPair(private, public, _hex(key))


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
    """Check that a certificate is unchanged and belongs to files: what `crcen verify` does.

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
    content = read_json(certificate, FORMAT, VERSION, "a certificate that crcen certify wrote")
    keys = {"digest", "signature", "signed_by", "model", "data", "declaration", "verdict"}
    require_input(keys <= {*content}, f"{certificate} is not a certificate that crcen certify wrote.")
    is_canonical = json_text(content).encode(errors="surrogatepass") == Path(certificate).read_bytes()
    is_same = is_canonical and hashlib.sha256(_payload(content)).hexdigest() == content["digest"]
    checks = [("content", is_same, "unchanged since it was written" if is_same else "changed after it was written")]
    checks.append(_signature_check(content, public_key))
    if model is not None:
        checks.append(_same("model", file_digest(model), content["model"]["sha256"], Path(model).name))
    if declaration is not None:
        here = declare.read_declaration(declaration).digest
        checks.append(_same("declaration", here, content["declaration"]["digest"], "declaration"))
    if data is not None:
        checks.append(_data_check(content["data"], source_of(data, read, None if model is None else model_of(model))))
    if page is not None:
        is_page = file_digest(page) == hashlib.sha256(certificate_page(content).encode()).hexdigest()
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
    inputs = RowDigest(stated["columns"], stated["target"])
    for chunk in source.chunks():
        inputs.add(chunk)
    if inputs.rows != stated["sha256"]:
        return "data", False, f"{source.name} holds other rows ({inputs.n_rows:,}, certified were {stated['rows']:,})"
    if inputs.labelled != stated["labelled_sha256"]:
        return "data", False, f"{source.name} holds the certified rows with other values of {stated['target']}"
    return "data", True, f"{source.name} holds the certified rows and labels"


def _signature_check(content: Values, public_key: str | Path | None) -> tuple[str, bool, str]:
    signed_by, signature = content["signed_by"], content["signature"]
    if signed_by is None and signature is None:
        why = "not signed, so that anyone could have written it"
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
        return "signature", True, f"right for the key {signed_by[:16]}…; state the public key to check whose it is"
    file_digest(public_key)  # an error if it cannot be read
    try:
        known = serialization.load_pem_public_key(Path(public_key).read_bytes())
        is_known = known.public_bytes_raw().hex() == signed_by
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
        stated = declare.declaration_of_model(declaration, model)
        links.append((f"declaration of {stated.content['date'][:10]}", declaration))
    if certificate is not None:
        found = verify(certificate, model=model, declaration=declaration)
        wrong = "; ".join(text for _, is_right, text in found.checks if not is_right)
        require_input(found.is_valid, f"the certificate {certificate} cannot be linked to: {wrong}.")
        links.append((f"certificate: {found.verdict}", certificate))
    return [(text, quote(os.path.relpath(os.path.realpath(path), folder).replace(os.sep, "/"))) for text, path in links]

"""Declarations, certificates, signatures and their check, against independent references."""

import hashlib
import json
import re
import tomllib
from dataclasses import replace
from unittest.mock import Mock

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import crcen
from crcen._support.files import exclusive_lock
from crcen.commands import certify
from crcen.commands.certify import generate_key, read_declaration
from crcen.commands.monitor import DeclaredMonitor
from crcen.report.page import certificate_schema
from crcen.theory.criteria import ScoredClasses, judge_criteria, parse_criteria
from crcen.theory.price import Price

REQUIRE = ("recall >= 0.3", "cost per 1000 <= 900", "precision >= 0.95", "key equation", "unlike")


@pytest.fixture(scope="module")
def files(mixed_table, model_file, tmp_path_factory):
    """Labelled and unlabelled rows that the model has not seen, and a key."""
    folder = tmp_path_factory.mktemp("evidence")
    rows = mixed_table(900, 7)
    rows.to_csv(folder / "test.csv", index=False)
    rows.drop(columns="bad").to_csv(folder / "rows.csv", index=False)
    generate_key(folder / "key.pem")
    return folder


@pytest.fixture
def declared(files, model_file, tmp_path):
    path = tmp_path / "declaration.toml"
    crcen.declare(model_file, REQUIRE, out=path, groups="country", rows=files / "rows.csv")
    return path


def certified(declared, files, model_file, **options):
    folder = declared.parent
    out = {"out": folder / "certificate.html", "json_out": folder / "certificate.json"}
    return crcen.certify(declared, files / "test.csv", model=model_file, **{**out, **options})


def test_a_declaration_is_toml_with_model_rows_plan_and_empty_fields(declared, files, model_file):
    raw = declared.read_bytes()
    content = tomllib.loads(raw.decode())
    assert content["digest"] == "sha256:" + hashlib.sha256(raw.partition(b"\n")[2]).hexdigest()
    assert content["model"]["sha256"] == hashlib.sha256(model_file.read_bytes()).hexdigest()
    assert [one["criterion"] for one in content["criteria"]] == list(REQUIRE)
    assert content["criteria"][0]["labels_needed"] > 10
    assert "labels_needed" not in content["criteria"][2]
    assert "not above the threshold" in content["criteria"][2]["plan"]
    n_tests = 4 * (1 + 3) + 1  # in three countries; Holm tests each at 0.05 / 17 at least
    planned = crcen.plan_table(model_file, files / "rows.csv", level=0.05 / n_tests).n_labels
    assert content["criteria"][3].get("labels_needed", np.inf) == planned
    width = crcen.plan_table(model_file, files / "rows.csv", cost_width=90.0)
    assert "a 95 % interval of the cost per 1,000 rows that is 90 wide on average: " in str(width)
    assert re.search(r"labelled rows, drawn at random, give it$", str(width))
    assert set(content["description"].values()) == {""}
    assert (content["rows"]["are_declared"], content["rows"]["number"]) == (True, 900)


@pytest.mark.parametrize("place", [0.0, 0.02, 0.3, 0.6, 0.999])
def test_any_changed_byte_of_a_declaration_is_detected(declared, place):
    raw = bytearray(declared.read_bytes())
    raw[int(place * len(raw))] ^= 1
    declared.write_bytes(raw)
    with pytest.raises(crcen.InvalidInput, match=r"was changed|not a declaration"):
        read_declaration(declared)


def test_a_certificate_has_exact_bounds_and_verdicts_in_the_declared_order(declared, files, model_file):
    found = certified(declared, files, model_file)
    content = json.loads((declared.parent / "certificate.json").read_text())
    assert content == found.to_dict()
    jsonschema.validate(content, certificate_schema())
    assert [one["criterion"] for one in content["criteria"]] == list(REQUIRE)
    assert [one["verdict"] for one in content["criteria"]][2] == "fail"
    rows = pd.read_csv(files / "test.csv")
    alarms = crcen.load(model_file).predict(rows.drop(columns="bad")) == "yes"
    hits, size = int((alarms & (rows.bad == "yes")).sum()), int((rows.bad == "yes").sum())
    recall = content["criteria"][0]
    assert (recall["right"], recall["rows"]) == (hits, size)
    one_sided = binomtest(hits, size, alternative="greater").proportion_ci(0.95, "exact")
    assert recall["bound"] == pytest.approx(one_sided.low, rel=1e-9)
    two_sided = binomtest(hits, size).proportion_ci(0.95, "exact")
    assert (recall["interval"]["low"], recall["interval"]["high"]) == pytest.approx((two_sided.low, two_sided.high))
    cost = content["criteria"][1]
    wrong = np.where(rows.bad == "yes", 5.0 * ~alarms, alarms)
    assert cost["estimate"] == pytest.approx(1000 * wrong.mean())
    assert cost["estimate"] < cost["bound"] < cost["interval"]["high"]
    by_group = {part["group"]: part for part in recall["groups"]}
    assert set(by_group) == {"NL", "NO", "DE"}
    for name, part in by_group.items():
        own = (rows.country == name) & (rows.bad == "yes")
        assert (part["right"], part["rows"]) == (int((own & alarms).sum()), int(own.sum()))


def test_certify_refuses_other_models_rows_and_training_rows(declared, files, model_file, mixed_table, tmp_path):
    rows = pd.read_csv(files / "test.csv")
    before = sorted(path.name for path in declared.parent.iterdir())
    with pytest.raises(crcen.InvalidInput, match="is not the declared model"):
        certified(declared, files, files / "rows.csv")
    with pytest.raises(crcen.InvalidParameter, match=r"an HTML page: got c\.json; json_out="):
        certified(declared, files, model_file, out="c.json")

    def refused(frame, why, path=declared):
        with pytest.raises(crcen.InvalidInput, match=why):
            crcen.certify(path, frame, model=model_file, out=tmp_path / "c.html")

    refused(rows.iloc[:-1], r"899 rows, declared were 900")
    refused(rows.assign(amount=rows.amount + 1e-9), "values of amount differ")
    refused(rows.assign(country=rows.country.sample(frac=1.0, random_state=0).to_numpy()), "combined into other rows")
    refused(rows.assign(bad=rows.bad.where(rows.index > 3)), "needs the label of every row")
    assert sorted(path.name for path in declared.parent.iterdir()) == before
    crcen.declare(model_file, ["recall >= 0.3"], out=tmp_path / "any.toml")
    assert "not stated in advance" in tomllib.loads((tmp_path / "any.toml").read_text())["rows"]["notes"][0]
    refused(mixed_table(), "training rows", tmp_path / "any.toml")
    found = crcen.certify(tmp_path / "any.toml", rows, model=model_file)
    assert found.content["declaration"]["rows_are_declared"] is False


def test_order_and_format_of_the_rows_do_not_matter(declared, files, model_file, tmp_path):
    rows = pd.read_csv(files / "test.csv").sample(frac=1.0, random_state=1)
    rows.to_parquet(tmp_path / "test.parquet", index=False)
    found = crcen.certify(declared, tmp_path / "test.parquet", model=model_file)
    assert found.content["data"]["sha256"] == tomllib.loads(declared.read_text())["rows"]["sha256"]


def test_a_second_certification_needs_again_and_states_it(declared, files, model_file):
    first = certified(declared, files, model_file)
    page = (declared.parent / "certificate.html").read_text()
    with pytest.raises(crcen.InvalidInput, match="was certified on these rows"):
        certified(declared, files, model_file)
    assert (declared.parent / "certificate.html").read_text() == page
    second = certified(declared, files, model_file, again=True)
    assert second.content["earlier_certifications"]["on_these_rows"] == [first.content["date"]]
    assert "This certification is repeated" in (declared.parent / "certificate.html").read_text()
    record = json.loads((declared.parent / "declaration.certifications.json").read_text())["certifications"]
    assert [one["certificate"] for one in record] == [first.content["digest"], second.content["digest"]]
    record_file = declared.parent / "declaration.certifications.json"
    with exclusive_lock(record_file), pytest.raises(crcen.CrcenError, match="in use"):
        certified(declared, files, model_file, again=True)
    (declared.parent / "declaration.certifications.json").write_text("{}")
    with pytest.raises(crcen.InvalidInput, match="is not a record of earlier certifications"):
        certified(declared, files, model_file, again=True)
    record_file.write_text('{"format": "crcen certifications", "certifications": [1]}')
    with pytest.raises(crcen.InvalidInput, match="is damaged"):
        certified(declared, files, model_file, again=True)


def test_verify_accepts_what_belongs_together_and_finds_every_changed_byte(declared, files, model_file, tmp_path):
    certified(declared, files, model_file, sign=files / "key.pem")
    path = declared.parent / "certificate.json"
    whole = {"model": model_file, "data": files / "test.csv", "public_key": files / "key.pem.pub"}
    page = declared.parent / "certificate.html"
    found = crcen.verify(path, declaration=declared, page=page, **whole)
    assert (found.is_valid, found.verdict) == (True, "fail")
    page.write_text(page.read_text().replace("0", "1", 1))
    assert not crcen.verify(path, page=page).is_valid
    raw, rng = path.read_bytes(), np.random.default_rng(0)
    for place in [0, len(raw) - 1, *rng.integers(0, len(raw), 60)]:
        changed = bytearray(raw)
        changed[place] ^= int(rng.choice([1, 2, 4, 32]))
        (tmp_path / "changed.json").write_bytes(changed)
        try:
            assert not crcen.verify(tmp_path / "changed.json").is_valid, place
        except crcen.InvalidInput as error:
            assert "not a certificate" in str(error)  # noqa: PT017
    for part in ("model", "data", "declaration"):
        (tmp_path / "changed.json").write_text(json.dumps({**json.loads(raw), part: [3]}))
        with pytest.raises(crcen.InvalidInput, match="is not a certificate"):
            crcen.verify(tmp_path / "changed.json", **whole)
    (tmp_path / "spaced.json").write_bytes(raw + b" ")
    assert not crcen.verify(tmp_path / "spaced.json").is_valid
    rows = pd.read_csv(files / "test.csv")
    flipped = rows.assign(bad=rows.bad.where(rows.index > 0, "maybe"))
    for data, why in ((flipped, "other values of bad"), (rows.iloc[1:], "other rows"), (rows[["bad"]], "lacks amount")):
        checks = crcen.verify(path, data=data).to_dict()["checks"]
        assert [why in one["statement"] for one in checks if not one["valid"]] == [True]
    assert not crcen.verify(path, model=files / "key.pem").is_valid
    with pytest.raises(crcen.InvalidInput, match=r"none\.json cannot be read: No such file"):
        crcen.verify(tmp_path / "none.json")
    generate_key(tmp_path / "other.pem")
    assert not crcen.verify(path, public_key=tmp_path / "other.pem.pub").is_valid


def test_a_removed_or_replaced_signature_is_detected(declared, files, model_file, tmp_path):
    certified(declared, files, model_file, sign=files / "key.pem")
    content = json.loads((declared.parent / "certificate.json").read_text())

    def checked(**changes):
        changed = {**content, **changes}
        payload = {name: one for name, one in changed.items() if name not in ("digest", "signature")}
        text = json.dumps(payload, indent=1, ensure_ascii=False) + "\n"
        changed["digest"] = hashlib.sha256(text.encode()).hexdigest()
        (tmp_path / "changed.json").write_text(json.dumps(changed, indent=1, ensure_ascii=False) + "\n")
        return crcen.verify(tmp_path / "changed.json", public_key=files / "key.pem.pub").is_valid

    assert checked()
    assert not checked(verdict="pass")
    assert not checked(signature=None)
    assert not checked(signature=None, signed_by=None)
    assert not checked(signature="0" * 128)


def test_keys_are_private_and_never_overwritten(files, declared, model_file, tmp_path, monkeypatch):
    assert (files / "key.pem").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(certify, "write_atomic", Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        generate_key(tmp_path / "lost.pem")
    monkeypatch.undo()
    assert not [*tmp_path.glob("lost*")]
    with pytest.raises(crcen.InvalidInput, match="never overwritten"):
        generate_key(files / "key.pem")
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(crcen.InvalidInput, match="crcen keygen"):
        certified(declared, files, model_file, sign=tmp_path / "junk.pem")
    assert not (declared.parent / "certificate.json").exists()


def test_the_page_is_printable_and_escapes(files, model_file, tmp_path):
    text = {"purpose": "<script>alert(1)</script>"}
    crcen.declare(model_file, ["recall >= 0.3"], out=tmp_path / "d.toml", description=text)
    crcen.certify(tmp_path / "d.toml", files / "test.csv", model=model_file, out=tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for part in ("@media print", "What was not tested", "(empty)", "other populations", "<svg", "sha256:"):
        assert part in page
    assert page.index("The declared criterion") < page.index("<table>")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("accuracy >= 0.9", "that has a test"),
        ("recall >= 1.2", "between 0 and 1"),
        ("recall >= 80", r"did you mean 0\.8"),
        ("recall <= 0.5", "that has a test"),
        ("recall[maybe] >= 0.5", "must name a class"),
        ("cost per 1000 <= -3", "above 0"),
        ("cost per 1000 <= many", "that has a test"),
        ("groups", "needs groups="),
    ],
)
def test_criteria_without_a_test_are_refused_and_nothing_is_written(model_file, tmp_path, text, why):
    with pytest.raises(crcen.InvalidParameter, match=why):
        crcen.declare(model_file, [text], out=tmp_path / "d.toml")
    assert not list(tmp_path.iterdir())
    numbers = parse_criteria(["recall >= +8E-1", "precision >= 70 %", "cost per row <= .5"], ["no", "yes"], 1)
    assert [one.threshold for one in numbers] == [0.8, 0.7, 0.5]
    (tmp_path / "list.json").write_text("[3]")
    with pytest.raises(crcen.InvalidInput, match="must hold fields, such as purpose"):
        crcen.declare(model_file, ["unlike"], out=tmp_path / "d.toml", description=tmp_path / "list.json")


def scored(rng, n, shares, groups=None):
    """Rows of three classes whose decisions are right with these probabilities."""
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    actions = np.where(rng.random(n) < np.asarray(shares)[y], y, (y + 1) % 3)
    p = np.tile([0.6, 0.3, 0.1], (n, 1))
    price = Price(np.ones(3), np.array([600.0, 300.0, 100.0]))
    return ScoredClasses(["a", "b", "c"], p, actions, 1.0 - np.eye(3), price, price, y, groups or {})


def test_a_wrong_pass_of_any_threshold_is_as_rare_as_declared():
    criteria = parse_criteria(["recall[a] >= 0.8", "recall[b] >= 0.7", "recall[c] >= 0.5"], ["a", "b", "c"], None)
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(600):
        rows = scored(rng, 400, (0.8 - 1e-9, 0.7 - 1e-9, 0.5 - 1e-9))
        wrong += any(one.verdict == "pass" for one in judge_criteria(criteria, rows, 0.9, lambda rate: ()))
    assert wrong <= 600 * 0.1 + 3 * np.sqrt(600 * 0.09)


def test_a_stated_p_value_is_that_of_as_many_tests_as_it_says():
    criteria = parse_criteria(["recall[a] >= 0.8", "key equation", "recall[b] >= 0.6"], ["a", "b", "c"], None)
    rows = scored(np.random.default_rng(3), 400, (0.85, 0.85, 0.85))
    found = judge_criteria(criteria, rows, 0.9, lambda rate: ())
    right = [(rows.actions == rows.y)[rows.y == k] for k in (0, 1)]
    own = [binomtest(int(one.sum()), len(one), at, "greater").pvalue for one, at in zip(right, (0.8, 0.6), strict=True)]
    assert found[2].p_pass == pytest.approx(2 * own[1])  # the smaller one of two: a key equation is never shown
    assert [f"(of {n} tests, adjusted" in one.statement for n, one in zip((2, 3, 2), found, strict=True)] == [True] * 3


def drifting(rng, n, drift=0.0):
    """Rows of two classes, 6.6 % positives, with true probabilities but for the drift."""
    logits = -3.5 + 1.5 * rng.standard_normal(n)
    p, y = 1 / (1 + np.exp(-logits)), (rng.random(n) < 1 / (1 + np.exp(-logits - drift))).astype(np.int64)
    price = Price(np.array([1.0, 10.0]), np.array([374_000.0, 26_000.0]), positive=1)
    p, actions, costs = np.column_stack([1 - p, p]), (p > 1 / 11).astype(np.int64), np.array([[0.0, 1.0], [10.0, 0.0]])
    return ScoredClasses([0, 1], p, actions, costs, price, price, y, noise=1.0)


def test_planned_labels_reach_their_power_with_all_tests_adjusted():
    """For the cost, and for a drift of either sign; the certificate states the drift for which they were planned."""
    criteria = parse_criteria(["cost per 1000 <= 470", "recall >= 0.5", "key equation"], [0, 1], 1)
    plan, rng = drifting(np.random.default_rng(0), 50_000), np.random.default_rng(1)

    def judged(k, n, drift):
        return judge_criteria(criteria, drifting(rng, n, drift), 0.95, lambda rate: ())[k]

    for k, drift in ((0, 0.0), (2, -0.3), (2, 0.3)):
        needed = int(np.ceil(certify.labels_needed(criteria[k], plan, criteria, 0.95)[0]))
        expected = "fail" if drift else "pass"
        assert np.mean([judged(k, needed, drift).verdict == expected for _ in range(120)]) >= 0.8 - 2.6 * 0.0365
    said = r"a drift of 0\.(29|3|31) in the log-odds of 1 would be found"
    assert re.search(said, judged(2, needed, 0.0).statement)
    few = judge_criteria(criteria[2:], drifting(np.random.default_rng(3), 400), 0.95, lambda rate: ())[0].statement
    assert "not contradicted by these rows: no drift in the log-odds of 1 would be found" in few


def test_a_bound_that_is_not_adjusted_says_so():
    """Of two tests, a bound above the threshold can go with an adjusted p-value that does not show it."""
    y, is_right = np.repeat([0, 1], 500), np.arange(1000) % 500 < np.repeat([319, 300], 500)
    rows = replace(scored(np.random.default_rng(0), 1000, (1, 1, 1)), y=y, actions=np.where(is_right, y, 2))
    criteria = parse_criteria(["recall[a] >= 0.6", "recall[b] >= 0.6"], ["a", "b", "c"], None)
    both, alone = (judge_criteria(some, rows, 0.95, lambda rate: ())[0] for some in (criteria, criteria[:1]))
    assert (both.verdict, alone.verdict) == ("undecided", "pass")
    assert re.search(r"lower bound 0\.60\d+ before adjustment for 2 tests, .* \(of 2 tests, adjusted", both.statement)
    assert "adjust" not in alone.statement


def test_a_plan_for_clusters_states_its_assumption():
    rows = drifting(np.random.default_rng(0), 4000)
    criteria = parse_criteria(["recall >= 0.5", "cost per 1000 <= 500", "key equation"], [0, 1], 1)
    for one in criteria:
        alone, _ = certify.labels_needed(one, rows, criteria, 0.95)
        together, why = certify.labels_needed(one, replace(rows, clusters=np.arange(4000) // 4), criteria, 0.95)
        assert (together, why[-21:]) == (pytest.approx(4 * alone), "alike, without labels")


def test_a_group_that_fails_makes_its_criterion_fail():
    rng = np.random.default_rng(2)
    rows = scored(rng, 3000, (0.9, 0.9, 0.9))
    group = np.where(rng.random(3000) < 0.2, "small", "large").astype(object)
    actions = np.where((group == "small") & (rows.y == 0) & (rng.random(3000) < 0.6), 1, rows.actions)
    rows = replace(rows, p=0.1 + 0.7 * np.eye(3)[actions], actions=actions, groups={"size": group})
    criteria = parse_criteria(["recall[a] >= 0.6", "groups", "cost per row <= 0.5"], ["a", "b", "c"], None)
    recall, groups, cost = judge_criteria(criteria, rows, 0.95, lambda rate: ())
    assert ([part.verdict for part in recall.groups], recall.verdict) == (["pass", "fail"], "fail")
    assert re.search("fails in size = small", recall.statement)
    assert (groups.verdict, cost.groups[0].verdict) == ("fail", "pass")


def test_drift_fails_on_moved_columns_only(files, model_file, tmp_path):
    rows = pd.read_csv(files / "test.csv")
    for name, frame, verdict in (("same", rows, "pass"), ("moved", rows.assign(amount=rows.amount + 2), "fail")):
        crcen.declare(model_file, ["unlike"], out=tmp_path / f"{name}.toml")
        found = crcen.certify(tmp_path / f"{name}.toml", frame, model=model_file)
        assert found.verdict == verdict


def test_a_report_links_to_evidence_that_belongs_to_the_model(declared, files, model_file, tmp_path):
    certified(declared, files, model_file)
    certificate = declared.parent / "certificate.json"
    (tmp_path / "pages").mkdir()
    links = {"declaration": declared, "certificate": certificate}
    crcen.report_table(model_file, files / "test.csv", out=tmp_path / "pages" / "report.html", **links)
    page = (tmp_path / "pages" / "report.html").read_text()
    assert re.findall(r'href="(\.\./[^"]+)"', page) == ["../declaration.toml", "../certificate.json"]
    assert "certificate: fail" in page
    certificate.write_text(certificate.read_text().replace('"fail"', '"pass"'))
    with pytest.raises(crcen.InvalidInput, match="changed after it was written"):
        crcen.report_table(model_file, files / "test.csv", out=tmp_path / "r.html", certificate=certificate)
    assert not (tmp_path / "r.html").exists()


def test_a_monitor_raises_an_alarm_when_a_declared_criterion_no_longer_holds(mixed_table, model_file, tmp_path):
    declaration, state = tmp_path / "d.toml", tmp_path / "watch.json"
    require = ["precision >= 0.1", "cost per 1000 <= 900", "key equation"]
    crcen.declare(model_file, require, out=declaration, groups="country")
    verdicts = []
    for call in range(4):
        rows = mixed_table(600, 20 + call)
        if call > 0:  # from now on nine in ten positives are gone
            rows.loc[np.random.default_rng(call).random(600) < 0.9, "bad"] = "no"
        found = crcen.monitor_table(model_file, rows, state=state, declaration=declaration)
        verdicts.append([one["verdict"] for one in found.to_dict()["declared"]])
    assert (verdicts[0][:2], verdicts[-1]) == (["no alarm", "no alarm"], ["no longer holds"] * 3)
    assert found.is_alarm
    assert "precision >= 0.1 no longer holds in all rows" in str(found)
    assert "add at most one minus the declared confidence" in str(found)
    crcen.declare(model_file, ["recall >= 0.5"], out=tmp_path / "other.toml")
    rows["id"] = np.where(np.arange(600) % 9, "a", None)
    plan = str(crcen.plan_table(model_file, rows.assign(amount="x")))
    assert "\nNote: cells written otherwise than in training were treated as missing: amount 600 rows" in plan
    assert "Note" not in str(crcen.plan_table(model_file, rows))
    with pytest.raises(crcen.InvalidInput, match="clusters must be known for every labelled row: id is missing in 67"):
        crcen.plan_table(model_file, rows, clusters="id")
    with pytest.raises(crcen.InvalidParameter, match="clusters must be another column than the target"):
        crcen.declare(model_file, ["recall >= 0.5"], clusters="bad", out=tmp_path / "third.toml")
    with pytest.raises(crcen.InvalidInput, match="another declaration"):
        crcen.monitor_table(model_file, mixed_table(300, 30), state=state, declaration=tmp_path / "other.toml")
    with pytest.raises(crcen.InvalidParameter, match="must be the declared column, none"):
        crcen.monitor_table(model_file, mixed_table(300, 30), declaration=declaration, clusters="id")
    with pytest.raises(crcen.InvalidInput, match="is not the declared model"):
        crcen.monitor_table(tmp_path / "d.toml", mixed_table(300, 30), declaration=declaration)


def test_criteria_that_hold_rarely_raise_an_alarm_on_a_stream(model_file, tmp_path):
    crcen.declare(model_file, ["recall >= 0.6", "cost per 1000 <= 500"], out=tmp_path / "d.toml")
    declared = read_declaration(tmp_path / "d.toml")
    rng, wrong = np.random.default_rng(0), 0
    costs = np.array([[0.0, 1.0], [5.0, 0.0]])
    for _ in range(200):
        watch = DeclaredMonitor(declared, costs)
        for _ in range(8):
            y = (rng.random(250) < 0.1).astype(np.int64)
            # At the limit of both: recall .6, and .3 false alarms of the negatives cost .9 · .3 + .1 · .4 · 5 = .47.
            actions = np.where(y == 1, rng.random(250) < 0.6, rng.random(250) < 0.3).astype(np.int64)
            watch = DeclaredMonitor.from_state(declared, costs, watch.state())
            watch.add(y, actions, {})
        wrong += bool(watch.broken)
    assert wrong <= 200 * 0.05

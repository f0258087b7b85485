"""`crcen report` on CSVs: every check, for two and three classes, warns if its problem is planted; refusals and memory.

On rows like those of training no check warns.
"""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import crcen
from crcen.report.checks import CHECKS, examine
from crcen.report.evidence import gather

LABELS = {2: np.array(["no", "yes"]), 3: np.array(["fine", "worn", "broken"])}


def draw(k, n, seed, moved=0.0, wrong_site=0.0):
    """Rows of a softmax; the log-odds of the second class may have moved, everywhere or at one site."""
    rng = np.random.default_rng(seed)
    x, z, site = rng.normal(size=n), rng.normal(size=n), rng.choice(["Åre", "Oslo", "Lund"], n, p=[0.5, 0.3, 0.2])
    logits = np.column_stack([np.full(n, 1.8), x + moved + wrong_site * (site == "Lund"), z - 0.3 + x])[:, :k]
    state = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return pd.DataFrame({"x": x.round(4), "z": z.round(4), "site": site, "state": LABELS[k][state]})


def leaky(k, n, seed):
    """The same with a column that is written because of the state, and separates all classes."""
    rows, rng = draw(k, n, seed), np.random.default_rng(seed + 1000)
    place = rows["state"].map({label: 4.5 * i for i, label in enumerate(LABELS[k])})
    return rows.assign(closed=(place + rng.normal(size=n)).round(3))


def flagged(k, n, seed):
    """Four flags that are 1 for some rows of the last class only, and a column that is filled in for it only."""
    rows, rng = draw(k, n, seed), np.random.default_rng(seed + 2000)
    own = (rows["state"] == LABELS[k][-1]).to_numpy()
    flags = {f"flag{i}": (own & (rng.random(n) < 0.3)).astype(int) for i in range(4)}
    bill = np.where(own & (rng.random(n) < 0.6), rng.normal(size=n).round(3), np.nan)
    return rows.assign(**flags, bill=bill)


def fit(rows, path, **options):
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-4, max_epochs=15, encoding="standard", n_members=1)
    price = {"weighting": crcen.Budget(5), "positive": "yes"} if "yes" in set(rows["state"]) else {}
    crcen.save(crcen.fit_table(rows, target="state", drop=["site"], estimator=search, **price, **options).model, path)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Models of honest rows, of leaks, and of rows that were oversampled before the split."""
    folder = tmp_path_factory.mktemp("codes")
    for k in (2, 3):
        fit(draw(k, 3000, 0), folder / f"honest{k}.crcen")
        fit(leaky(k, 2000, 0), folder / f"leaky{k}.crcen")
        fit(flagged(k, 2000, 0), folder / f"flagged{k}.crcen")
        oversampled(k)[0].pipe(fit, folder / f"copied{k}.crcen")
    return folder


def oversampled(k):
    """Rows of the last class three times before the split, in training and test rows."""
    rows = draw(k, 3000, 9)
    last = rows[rows["state"] == LABELS[k][-1]]
    rows = pd.concat([rows, last, last]).sample(frac=1.0, random_state=0)
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


@pytest.fixture
def findings(crcen_command, home, tmp_path):
    """A function that writes rows as CSV, runs the command and returns its findings by code."""

    def run(model, rows, *options):
        path = tmp_path / "rows.csv"
        rows.to_csv(path, index=False)
        asked = ("report", home / f"{model}.crcen", path, "--out", tmp_path / "report.html", *options)
        code, out, err = crcen_command(*asked, "--json")
        assert (code, err) == (0, "")
        answer = json.loads(out)
        found = {one["code"]: one for one in answer["findings"]}
        assert answer["warnings"] == [name for name, one in found.items() if one["status"] == "warning"]
        assert all("nan" not in one["sentence"] for one in found.values())
        return found

    return run


@pytest.mark.parametrize("k", [2, 3])
def test_no_check_warns_on_rows_like_those_of_training(findings, crcen_command, home, tmp_path, k):
    found = findings(f"honest{k}", draw(k, 2500, 4), "--groups", "site")
    assert {code: one["status"] for code, one in found.items()} == dict.fromkeys(sorted(CHECKS), "passed")
    for one in found.values():
        assert set(one) == {"code", "status", "title", "sentence", "measured", "limit", "advice", "tested"}
        assert one["sentence"].lower().startswith(one["tested"].lower())  # a passed check states what was tested
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "No warnings. Tested: number of rows of each class (CRC001)" in page
    assert "nan" not in page.split("<script", 1)[0].lower().replace("finance", "")
    asked = ("report", home / f"honest{k}.crcen", tmp_path / "rows.csv", "--out", tmp_path / "r.html")
    text = crcen_command(*asked, "--groups", "site")[1]
    assert text.startswith("2,500 rows: no warnings; tested without a warning: CRC001, CRC002")
    assert all(f"{one['code']}  {one['status']}" in text and one["measured"] in text for one in found.values())


def parted(k, n):
    """Rows of the last class, and the others."""
    rows = draw(k, n, 4)
    last = rows["state"] == LABELS[k][-1]
    return rows[last], rows[~last]


def few(k):
    last, others = parted(k, 2500)
    return pd.concat([others, last.head(30)])


def other_share(k):
    """As many rows of the last class, and a fifth of the others."""
    last, others = parted(k, 5000)
    return pd.concat([last, others.sample(frac=0.2, random_state=0)])


def selected(k):
    """Every row with a high x, and so a high score, has a label; of the others one in five."""
    rows = draw(k, 2500, 4)
    return rows.assign(state=rows["state"].where((rows["x"] > 0.5) | (np.arange(2500) % 5 == 0)))


WORN = "rows of worn found over expected"
PLANTED = {
    "CRC001": ("honest", few, ("30 rows of class yes here", "30 rows of class broken here")),
    "CRC002": ("honest", lambda k: draw(k, 2500, 5, moved=1.5), ("a catch cost", "where the weight of worn rises")),
    "CRC003": ("honest", lambda k: draw(k, 2500, 5, moved=1.5), ("rows of class yes were", "rows of class worn were")),
    "CRC004": ("honest", other_share, ("only the prevalence differs", "only the prevalence differs")),
    "CRC005": ("leaky", lambda k: leaky(k, 2500, 6), ("area under the ROC curve", "area under the ROC curve")),
    "CRC006": ("leaky", lambda k: leaky(k, 2500, 6), ("“closed”", "“closed” for")),
    "CRC007": ("honest", lambda k: draw(k, 2500, 5, moved=1.5), ("p-value", "most off is worn")),
    "CRC008": ("copied", lambda k: oversampled(k)[1], ("depending on their label", "depending on their label")),
    "CRC009": ("leaky", lambda k: leaky(k, 2500, 6), ("“closed” has", "“closed” has")),
    "CRC010": ("honest", lambda k: draw(k, 2500, 7, wrong_site=2.0), ("groups of site differ", WORN)),
    "CRC011": ("honest", selected, ("depending on the score", "depending on the score")),
}


def test_a_problem_is_planted_for_every_code():
    assert list(PLANTED) == sorted(CHECKS)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_problem_is_found(findings, crcen_command, home, tmp_path, code, k):
    model, rows, words = PLANTED[code]
    found = findings(f"{model}{k}", rows(k), "--groups", "site")[code]
    assert found["status"] == "warning"
    assert words[k - 2] in found["measured"]
    assert found["advice"] in found["sentence"]
    assert code in (tmp_path / "report.html").read_text(encoding="utf-8")
    asked = ("evaluate", home / f"{model}{k}.crcen", tmp_path / "rows.csv", "--fail-on", code, "--groups", "site")
    ended, out, _ = crcen_command(*asked, "--json")
    assert ended == 3
    assert any(one.startswith(f"{code} warns") for one in json.loads(out)["failures"])


@pytest.mark.parametrize("k", [2, 3])
def test_cells_of_one_class_only_are_leaks(findings, k):
    """Flags with an area of .65 each, and a column that is filled in for one class only."""
    found = findings(f"flagged{k}", flagged(k, 2500, 3))["CRC006"]
    assert found["status"] == "warning"
    assert all(f"flag{i} is 1 only in rows of class {LABELS[k][-1]}" in found["measured"] for i in range(4))
    assert f"bill is filled in only in rows of class {LABELS[k][-1]}" in found["measured"]
    assert "x is" not in found["measured"]


@pytest.mark.parametrize("k", [2, 3])
def test_a_few_columns_that_carry_everything_are_named(findings, home, k):
    """Flags that together give the outcome away, while each is far from it."""

    def rows(n, seed):
        found, rng = draw(k, n, seed), np.random.default_rng(seed + 5)
        own, first = (found["state"] == LABELS[k][-1]).to_numpy(), rng.random(n) < 0.5
        found = found.assign(first=(own & first).astype(int), second=(own & ~first).astype(int))
        if k == 2:
            return found
        noise = {f"noise{i}": rng.normal(size=n).round(3) for i in range(10)}
        return found.assign(third=(found["state"] == LABELS[k][1]).astype(int), **noise)

    fit(rows(2000, 0), home / f"few{k}.crcen")
    found = findings(f"few{k}", rows(2500, 1))["CRC009"]
    assert found["status"] == "warning"
    assert [f"“{name}”" in found["measured"] for name in ("first", "second", "x")] == [True, True, False]


def test_few_rows_repeat_the_warning_of_the_fit(findings, home):
    """With 40 rows no test can find the flag; the model keeps the name of the column that the fit warned about."""
    train, test = (flagged(2, n, seed)[["x", "site", "state", "flag0"]] for n, seed in ((2000, 0), (40, 3)))
    for name, rows, status in (("warned", train, "warning"), ("clean", train.drop(columns="flag0"), "unknown")):
        fit(rows, home / f"{name}.crcen")
        found = findings(name, test)["CRC006"]
        assert found["status"] == status
        assert ("crcen fit warned about “flag0” on the training rows" in found["measured"]) == (name == "warned")


def test_metrics_without_copies_are_shown(findings):
    measured = findings("copied2", oversampled(2)[1])["CRC008"]["measured"]
    assert "rows that were certainly not in training: recall" in measured
    assert measured.count("(all rows 0.") == 3


def test_a_class_that_is_easy_to_separate_is_not_a_leak(findings, home):
    """Two columns separate one of three classes, as in honest tables; the others overlap."""

    def rows(n, seed):
        found, rng = draw(3, n, seed), np.random.default_rng(seed + 7)
        easy = 6.0 * (found["state"] == "broken")
        return found.assign(size=(easy + rng.normal(size=n)).round(3), mass=(easy + rng.normal(size=n)).round(3))

    fit(rows(2000, 0), home / "easy.crcen")
    found = findings("easy", rows(2500, 1))
    assert {code: one["status"] for code, one in found.items() if one["status"] != "passed"} == {}


@pytest.mark.parametrize("k", [2, 3])
def test_swapped_labels_and_other_scores_are_drift(findings, crcen_command, home, tmp_path, k):
    first, second = LABELS[k][:2]
    rows = draw(k, 2500, 4)
    some = rows["state"].where(np.arange(2500) % 5 > 2, rows["state"].replace({first: second, second: first}))
    found = findings(f"honest{k}", rows.assign(state=some))["CRC004"]  # in three of five rows
    assert (found["status"], f"labels of {first} and {second} fit" in found["measured"]) == ("warning", True)
    out = crcen_command("evaluate", home / f"honest{k}.crcen", tmp_path / "rows.csv")[1]
    assert ["are the labels swapped?" in said for said in (found["measured"], out)] == [True, True]
    moved = draw(k, 2500, 7).pipe(lambda frame: frame.assign(x=frame["x"] + 2.0))  # labels as before, scores not
    found = findings(f"honest{k}", moved)["CRC004"]
    assert (found["status"], "from those of training rows" in found["measured"]) == ("warning", True)
    model = crcen.load(home / f"honest{k}.crcen")  # less sure out of fold than the whole model is on its training rows
    model.oof_proba_ = softmax(0.5 * np.log(model.estimator_.oof_proba_), axis=1)
    (whole, *_) = model.profile_.scores
    for scores, status in (([whole], "passed"), ([whole + 2.0], "warning"), ([], "warning")):
        model.profile_ = replace(model.profile_, scores=scores)
        (found,) = examine(gather(model, rows, rows["state"]), ["CRC004"])
        assert found.status == status


def test_labels_of_alarms_only_leave_recall_unknown(findings, home):
    model = crcen.load(home / "honest2.crcen")
    rows = draw(2, 2500, 4)
    rows.loc[model.predict(rows) == "no", "state"] = None
    found = findings("honest2", rows)["CRC011"]
    assert "only alarms have labels: recall cannot be estimated from these rows" in found["sentence"]
    at_random = draw(2, 2500, 4)
    at_random.loc[np.random.default_rng(0).random(2500) < 0.5, "state"] = None
    assert findings("honest2", at_random)["CRC011"]["status"] == "passed"


def test_a_model_that_never_alarms_is_described_in_plain_words(crcen_command, findings, home, tmp_path):
    """No precision, no expense: no figure that is not a number reaches a person."""
    quiet = draw(2, 400, 8).assign(x=-9.0, z=-9.0)
    quiet.to_csv(tmp_path / "quiet.csv", index=False)
    for options in ((), ("--json",), ("--resamples", 0)):
        code, out, _ = crcen_command("evaluate", home / "honest2.crcen", tmp_path / "quiet.csv", *options)
        assert code == 0
        assert "nan" not in out.lower()
    findings("honest2", quiet)
    page = (tmp_path / "report.html").read_text().split("<script", 1)[0]
    assert "nan" not in page.lower().replace("finance", "")
    assert "raises no alarm on these rows" in page


def test_groups_in_words(crcen_command, home, tmp_path):
    draw(3, 1500, 7, wrong_site=2.0).to_csv(tmp_path / "rows.csv", index=False)
    asked = ("evaluate", home / "honest3.crcen", tmp_path / "rows.csv")
    code, out, _ = crcen_command(*asked, "--groups", "site")
    assert (code, "Warning CRC010: groups of site differ" in out) == (0, True)
    code, _, err = crcen_command(*asked, "--groups", "state")
    assert (code, err) == (2, "crcen: --groups must not be the target: got state.\n")


def notes(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    words = [f"call {i} {rng.choice(['late', 'early', 'lost'])}" for i in range(n)]
    bad = rng.random(n) < 1 / (1 + np.exp(2.0 - x))
    return pd.DataFrame({"x": x.round(4), "note": words, "bad": np.where(bad, "yes", "no")})


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A model of a number and a text column, and rows for it."""
    folder = tmp_path_factory.mktemp("report")
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-2, max_epochs=3, encoding="standard", n_members=1)
    fit = crcen.fit_table(notes(600, 0), target="bad", weighting=crcen.Budget(5), estimator=search)
    assert [column.kind for column in fit.model.columns_] == ["number", "text"]
    crcen.save(fit.model, folder / "model.crcen")
    return folder


def test_one_long_cell_does_not_cost_its_length_for_every_row(texts, tmp_path):
    """5,000 rows and one cell of 20,000 characters: as an array of fixed width that is 400 MB."""
    rows = notes(5000, 1)
    rows.loc[7, "note"] = "x" * 20_000
    rows.to_csv(tmp_path / "rows.csv", index=False)
    model = crcen.load(texts / "model.crcen")
    crcen.report_table(model, tmp_path / "rows.csv", out=tmp_path / "warm.html")
    tracemalloc.start()
    done = crcen.report_table(model, tmp_path / "rows.csv", out=tmp_path / "report.html")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert done.n_rows == 5000
    assert peak < 100e6


def sentence(outcome):
    code, out, err = outcome
    assert (code in (1, 2), out, err.count("\n")) == (True, "", 1)
    assert err.startswith("crcen: ")
    return err


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_what_cannot_be_judged_is_refused_in_one_sentence(crcen_command, texts, tmp_path, command):
    rows, path = notes(200, 2), tmp_path / "rows.csv"

    def refusal(frame):
        frame.to_csv(path, index=False)
        out = ("--out", tmp_path / "report.html") if command == "report" else ()
        return sentence(crcen_command(command, texts / "model.crcen", path, *out))

    lacks = refusal(rows.drop(columns="x"))
    assert "lacks 1 of the 2 columns that the model needs: x" in lacks
    assert "needs rows of both classes" in refusal(rows[rows["bad"] == "no"])
    assert "must hold the labels of training, no, yes: got maybe" in refusal(rows.assign(bad="maybe"))
    assert "rows.csv has no row with a value of bad" in refusal(rows.assign(bad=None))
    assert "no row" in refusal(rows.iloc[:0])
    assert "the target must be a column of rows.csv: got 'bad'" in refusal(rows.drop(columns="bad"))
    assert not (tmp_path / "report.html").exists()


def test_an_input_of_the_model_is_no_target_and_cells_that_are_no_numbers_are_missing(crcen_command, texts, tmp_path):
    notes(200, 2).assign(x=lambda rows: rows["bad"]).to_csv(tmp_path / "rows.csv", index=False)
    asked = ("evaluate", texts / "model.crcen", tmp_path / "rows.csv", "--target", "x")
    assert "an input of the model: got x; that of training was bad" in sentence(crcen_command(*asked))
    rows = notes(200, 3).astype({"x": object})
    rows.loc[:9, "x"] = "n.n."
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = ("report", texts / "model.crcen", tmp_path / "rows.csv", "--out", tmp_path / "r.html")
    code, out, err = crcen_command(*asked, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["rows"] == 200


@pytest.mark.parametrize("n_positive", [1, 9])
def test_a_handful_of_rows_is_never_accused(crcen_command, texts, tmp_path, n_positive):
    """Positives with the lowest scores of all, so that every figure is as bad as it gets."""
    rows = pd.DataFrame({"x": -3.0, "note": "call", "bad": ["yes"] * n_positive + ["no"]})
    rows.loc[n_positive, "x"] = 0.0
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = (texts / "model.crcen", tmp_path / "rows.csv")
    code, out, _ = crcen_command("report", *asked, "--out", tmp_path / "r.html", "--json")
    found = {one["code"]: one["status"] for one in json.loads(out)["findings"]}
    assert (code, {found[f"CRC00{number}"] for number in (5, 6, 7, 9)}) == (0, {"unknown"})
    assert found["CRC001"] == "warning"
    if n_positive == 1:
        assert {found["CRC003"], found["CRC004"]} <= {"passed"}
    judged = json.loads(crcen_command("evaluate", *asked, "--json")[1])
    assert judged["key_equation"]["verdict"] == "not tested"


def test_a_model_of_numbers_takes_numbers_written_as_text(crcen_command, tmp_path):
    rows = notes(400, 4)
    model = crcen.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0).fit(rows[["x"]], rows["bad"])
    crcen.save(model, tmp_path / "model.crcen")
    notes(400, 5)[["bad", "x"]].to_csv(tmp_path / "rows.csv", index=False)
    asked = ("report", tmp_path / "model.crcen", tmp_path / "rows.csv", "--target", "bad", "--out", tmp_path / "r.html")
    code, out, err = crcen_command(*asked, "--json")
    assert (code, err) == (0, "")
    assert {one["code"]: one["status"] for one in json.loads(out)["findings"]}["CRC006"] == "passed"
    notes(400, 5).assign(x="high").to_csv(tmp_path / "rows.csv", index=False)
    assert "the model takes numbers: column x holds other values" in sentence(crcen_command(*asked))

"""Every check through `crcen report --json` on a CSV: it warns where its fault is planted and passes elsewhere."""

import json

import numpy as np
import pandas as pd
import pytest

import crcen
import papers_training

CODES = [f"CRC00{number}" for number in range(1, 10)]


def draw(n, seed, shift=0.0, is_sure=False):
    """Rows of a logistic model, ``shift`` higher in log-odds; with ``is_sure`` the outcome follows from x."""
    rng = np.random.default_rng(seed)
    x, z, kind = rng.normal(size=n), rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    logit = -2.2 + shift + 1.2 * x + 0.8 * z + (kind == "c")
    bad = x > 1.2 if is_sure else rng.random(n) < 1 / (1 + np.exp(-logit))
    return pd.DataFrame({"x": x.round(4), "z": z.round(4), "kind": kind, "bad": np.where(bad, "yes", "no")})


def leaky(n, seed):
    """The same with a column that is written because of the event."""
    rows, rng = draw(n, seed), np.random.default_rng(seed + 1000)
    bad = rows["bad"] == "yes"
    return rows.assign(closed=np.where(bad, 5.0 + rng.normal(size=n), rng.normal(size=n)).round(4))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Models of honest and of leaky rows as the command makes them, and one balanced on its training rows."""
    folder = tmp_path_factory.mktemp("codes")
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-4, max_epochs=30, encoding="standard", n_members=1)
    for name, rows in (("honest", draw(4000, 0)), ("leaky", leaky(4000, 0))):
        fit = crcen.fit_table(rows, target="bad", weighting=crcen.Budget(5), estimator=search)
        crcen.save(fit.model, folder / f"{name}.crcen")
    train = draw(500, 3)[["x", "z", "bad"]]
    own = papers_training.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0)
    own.fit(train[["x", "z"]], train["bad"])
    crcen.save(own, folder / "balanced.crcen")
    return folder


@pytest.fixture
def findings(crcen_command, tmp_path):
    """A function that writes rows as CSV, runs the command and returns its findings by code."""

    def run(model, rows):
        path = tmp_path / "rows.csv"
        rows.to_csv(path, index=False)
        asked = ("report", model, path, "--target", "bad", "--out", tmp_path / "report.html")
        code, out, err = crcen_command(*asked, "--json")
        assert (code, err) == (0, "")
        answer = json.loads(out)
        found = {one["code"]: one for one in answer["findings"]}
        assert answer["warnings"] == [name for name, one in found.items() if one["status"] == "warning"]
        text = crcen_command(*asked)[1]
        for one in found.values():
            assert set(one) == {"code", "status", "title", "sentence", "measured", "limit", "advice", "tested"}
            assert f"{one['code']}  {one['status']}" in text
            assert one["measured"] in text
            assert "nan" not in one["sentence"]
        return found

    return run


def test_every_check_passes_on_new_rows_like_those_of_training(findings, home):
    found = findings(home / "honest.crcen", draw(2500, 4))
    assert list(found)[: len(CODES)] == CODES
    assert {code: found[code]["status"] for code in CODES} == dict.fromkeys(CODES, "passed")


def _few_positives():
    rows = draw(2500, 4)
    return pd.concat([rows[rows["bad"] == "no"], rows[rows["bad"] == "yes"].head(30)])


def _other_share():
    rows = draw(2500, 4)
    return pd.concat([rows[rows["bad"] == "yes"], rows[rows["bad"] == "no"].head(600)])


PLANTED = {
    "CRC001": ("honest", _few_positives, "30 rows of yes here"),
    "CRC002": ("honest", lambda: draw(2500, 5, shift=1.5), "standard deviations outside"),
    "CRC003": ("honest", lambda: draw(2500, 5, shift=1.5), "rows of yes were found"),
    "CRC004": ("honest", _other_share, "in training"),
    "CRC005": ("leaky", lambda: leaky(2500, 6), "area under the ROC curve"),
    "CRC006": ("leaky", lambda: leaky(2500, 6), "“closed”"),
    "CRC007": ("honest", lambda: draw(2500, 5, shift=1.5), "p-value"),
    "CRC008": ("balanced", lambda: draw(500, 3)[["x", "z", "bad"]], "residual"),
    "CRC009": ("leaky", lambda: leaky(2500, 6), "“closed” has"),
}


def test_a_fault_is_planted_for_every_code():
    assert list(PLANTED) == CODES


@pytest.mark.parametrize("code", CODES)
def test_a_planted_fault_is_found(findings, home, code):
    model, rows, words = PLANTED[code]
    found = findings(home / f"{model}.crcen", rows())[code]
    assert found["status"] == "warning"
    assert words in found["sentence"]
    assert found["advice"] in found["sentence"]


def test_other_scores_than_out_of_fold_are_drift_where_the_share_is_the_same(findings, home):
    """Every x is 2 higher, and labels are drawn as before: the share of positives stays, the scores do not."""
    rows = draw(2500, 7)
    found = findings(home / "honest.crcen", rows.assign(x=rows["x"] + 2.0))["CRC004"]
    assert found["status"] == "warning"
    assert "scores are" in found["measured"]


def test_what_cannot_be_judged_is_unknown(findings, home):
    """No test of an equation that was solved on these rows."""
    found = findings(home / "balanced.crcen", draw(500, 3)[["x", "z", "bad"]])
    assert found["CRC007"]["status"] == "unknown"
    assert "balanced" in found["CRC007"]["sentence"]


def test_a_model_that_never_alarms_is_told_in_plain_words(crcen_command, findings, home, tmp_path):
    """No precision, no expense: no figure that is not a number reaches a person."""
    draw(400, 8).assign(x=-9.0, z=-9.0, kind="a").to_csv(tmp_path / "quiet.csv", index=False)
    for options in ((), ("--json",), ("--resamples", 0)):
        code, out, _ = crcen_command("evaluate", home / "honest.crcen", tmp_path / "quiet.csv", *options)
        assert code == 0
        assert "nan" not in out.lower()
        assert "FN" not in out
    counts = json.loads(crcen_command("evaluate", home / "honest.crcen", tmp_path / "quiet.csv", "--json")[1])["counts"]
    assert (counts["alarms"], counts["found"]) == (0, 0)
    findings(home / "honest.crcen", draw(400, 8).assign(x=-9.0, z=-9.0, kind="a"))
    page = (tmp_path / "report.html").read_text()
    assert "nan" not in page.split("<script", 1)[0].lower().replace("finance", "")

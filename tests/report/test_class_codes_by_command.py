"""Checks of several classes through the command on CSVs: each warns where its fault is planted and passes elsewhere."""

import json

import numpy as np
import pandas as pd
import pytest

import crcen

CODES = [f"CRC00{number}" for number in range(1, 10)]
LABELS = np.array(["fine", "worn", "broken"])


def draw(n, seed, moved=0.0, wrong_site=0.0):
    """Rows of a softmax; the log-odds of worn may have moved, everywhere or at one site."""
    rng = np.random.default_rng(seed)
    x, z, site = rng.normal(size=n), rng.normal(size=n), rng.choice(["Åre", "Oslo", "Lund"], n, p=[0.5, 0.3, 0.2])
    logits = np.column_stack([np.full(n, 1.0), x + moved + wrong_site * (site == "Lund"), z - 0.8 + x])
    kind = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return pd.DataFrame({"x": x.round(4), "z": z.round(4), "site": site, "state": LABELS[kind]})


def leaky(n, seed):
    """The same with a column that is written because of the state."""
    rows, rng = draw(n, seed), np.random.default_rng(seed + 1000)
    place = rows["state"].map(dict(zip(LABELS, (0, 4, 8), strict=True)))
    return rows.assign(bill=(place + rng.normal(size=n)).round(3))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-4, max_epochs=12, encoding="standard", n_members=1)
    for name, rows in (("honest", draw(2500, 0)), ("leaky", leaky(2500, 0))):
        fit = crcen.fit_table(rows, target="state", drop=["site"], estimator=search)
        crcen.save(fit.model, folder / f"{name}.crcen")
    return folder


@pytest.fixture
def run(crcen_command, home, tmp_path):
    """A function that writes rows as CSV, runs a command and returns its findings by code, exit code and answer."""

    def findings(command, model, rows, *options):
        rows.to_csv(tmp_path / "rows.csv", index=False)
        out = ("--out", tmp_path / "report.html") if command == "report" else ()
        code, text, err = crcen_command(
            command, home / f"{model}.crcen", tmp_path / "rows.csv", *out, *options, "--json"
        )
        assert err == ""
        return {one["code"]: one for one in json.loads(text)["findings"]}, code, json.loads(text)

    return findings


def test_every_check_passes_on_rows_like_those_of_training(run, tmp_path):
    found, _, _ = run("report", "honest", draw(2500, 4), "--groups", "site")
    assert {code: one["status"] for code, one in found.items()} == dict.fromkeys([*CODES, "CRC010"], "passed")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Which columns matter" in page
    assert "No difference between groups of site beyond chance" in page
    assert "nan" not in page.split("<script", 1)[0].lower()


PLANTED = {
    "CRC002": ("honest", draw(2500, 5, moved=1.5), "where the weight of worn rises"),
    "CRC009": ("leaky", leaky(2500, 6), "“bill” has"),
    "CRC010": ("honest", draw(2500, 7, wrong_site=2.0), "rows of worn found over expected"),
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_fault_is_found(run, code):
    model, rows, words = PLANTED[code]
    found, _, _ = run("report", model, rows, "--groups", "site")
    assert found[code]["status"] == "warning"
    assert words in found[code]["measured"]
    assert found[code]["advice"] in found[code]["sentence"]
    _, ended, said = run("evaluate", model, rows, "--fail-on", code, "--groups", "site")
    assert ended == 3
    assert len(said["failures"]) == 1
    assert said["failures"][0].startswith(f"{code} warns")
    assert words in said["failures"][0]


def test_groups_in_words(crcen_command, home, tmp_path):
    draw(1500, 7, wrong_site=2.0).to_csv(tmp_path / "rows.csv", index=False)
    asked = ("evaluate", home / "honest.crcen", tmp_path / "rows.csv")
    code, out, _ = crcen_command(*asked, "--groups", "site")
    assert code == 0
    assert "Groups of site" in out
    assert "Warning CRC010: groups of site differ" in out
    assert "(Lund)" in out
    code, _, err = crcen_command(*asked, "--fail-on", "CRC010")
    assert (code, err) == (1, "crcen: --fail-on CRC010 compares groups: name their columns with --groups.\n")
    code, _, err = crcen_command(*asked, "--groups", "state")
    assert (code, err) == (1, "crcen: --groups must not be the target: got state.\n")

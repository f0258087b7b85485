"""A column that gives the outcome away is found whatever file the rows come in: from the command down."""

import json

import numpy as np
import pandas as pd
import pytest


def leaky(n, seed):
    """Rows in which ``settled`` separates the classes; each of its values occurs once, so as text it says nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    bad = rng.random(n) < 1 / (1 + np.exp(2.0 - x))
    return pd.DataFrame(
        {
            "x": x.round(6),
            "kind": rng.choice(["a", "b"], n),
            "settled": np.where(bad, 100.0 + rng.random(n), rng.random(n)).round(6),
            "bad": np.where(bad, "yes", "no"),
        }
    )


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".tsv":
        frame.to_csv(path, sep="\t", decimal=",", index=False)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def outcomes():
    """The finding of each kind of file, for the comparison of all of them."""
    return {}


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_leak_is_found_in_every_kind_of_file(crcen_command, tmp_path, outcomes, ending):
    train, test = (write(leaky(600, seed), tmp_path / f"{seed}.{ending}") for seed in (0, 1))
    model, page = tmp_path / "model.crcen", tmp_path / "report.html"
    assert crcen_command("fit", train, "--target", "bad", "--budget", 5, "--quick", "--out", model)[0] == 0
    code, out, err = crcen_command("report", model, test, "--out", page, "--json")
    assert (code, err) == (0, "")
    finding = next(one for one in json.loads(out)["findings"] if one["code"] == "CRC006")
    assert finding["status"] == "warning"
    assert "“settled” (1.0000)" in finding["sentence"]
    assert "“x”" not in finding["sentence"]
    outcomes[ending] = finding
    assert all(one == finding for one in outcomes.values())


def test_few_rows_repeat_the_warning_of_the_fit(crcen_command, tmp_path):
    """With 40 rows no test can find the flag; the model keeps the name of the column that the fit warned about."""
    train, test = leaky(600, 2).drop(columns="settled"), leaky(40, 3).drop(columns="settled")
    rng = np.random.default_rng(0)
    for rows in (train, test):
        rows["flag"] = ((rows["bad"] == "yes") & (rng.random(len(rows)) < 0.5)).astype(int)
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.csv", index=False)
    found = {}
    for name, dropped in (("leaky", ()), ("clean", ("--drop", "flag"))):
        model = tmp_path / f"{name}.crcen"
        options = ("--target", "bad", "--budget", 5, "--quick", *dropped, "--out", model)
        assert crcen_command("fit", tmp_path / "train.csv", *options)[0] == 0
        out = crcen_command("report", model, tmp_path / "test.csv", "--out", tmp_path / "page.html", "--json")[1]
        found[name] = next(one for one in json.loads(out)["findings"] if one["code"] == "CRC006")
    assert found["leaky"]["status"] == "warning"
    assert "crcen fit warned about “flag” on the training rows" in found["leaky"]["measured"]
    assert found["clean"]["status"] != "warning"

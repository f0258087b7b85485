"""Refusals speak of the command's options, never of parameters of the library."""

import re

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.cli.app import in_options

# What a person at the command line has never heard of.
PYTHON = re.compile(
    r"(?<!-)\b\w+=|(?<!--)\b(n_splits|random_state|pos_label|weighting|categorical|sample_weight|standardize|learning_rate|scoring|"
    r"n_resamples|\bAlpha\b|\bCostRatio\b|\bBudget\b|\bLam\b|None\b|True\b|False\b)"
)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A table, one of nothing but ids, a model that knows its target, and one that does not."""
    home = tmp_path_factory.mktemp("wording")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80).round(3), "kind": rng.choice(list("ab"), 80), "one": 1})
    frame["bad"] = np.where(rng.random(80) < 0.3, "yes", "no")
    frame.to_csv(home / "a.csv", index=False)
    frame[["one", "bad"]].to_csv(home / "empty.csv", index=False)
    frame.drop(columns="x").to_csv(home / "lacks.csv", index=False)
    quick = crcen.CRCENClassifierCV(hidden=(2,), l2=1e-2, max_epochs=2, encoding="standard", n_members=1)
    crcen.fit_table(home / "a.csv", target="bad", estimator=quick, out=home / "m.crcen")
    network = crcen.CRCENClassifier(hidden=(), max_epochs=2).fit(frame[["x"]], frame["bad"].to_numpy())
    crcen.save(network, home / "n.crcen")
    return home


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("fit a.csv --target Bad", "did you mean bad"),
        ("fit a.csv --target bad --positive maybe", "--positive must be"),
        ("fit a.csv --target bad --drop nothing", "--drop names"),
        ("fit a.csv --target bad --keep nothing", "--keep names"),
        ("fit a.csv --target bad --categorical nothing", "--categorical names"),
        ("fit a.csv --target bad --clusters nothing", "--clusters must be"),
        ("fit a.csv --target bad --clusters one --time x", "--clusters and --time are two ways to validate"),
        ("split a.csv --target bad --clusters one --time x", "--clusters and --time are two ways to split"),
        ("fit a.csv --target bad --time kind", "--time must name"),
        ("fit a.csv --target bad --clusters one", "--clusters must have"),
        ("fit a.csv --target bad --clusters bad", "--clusters must be another column"),
        ("fit a.csv --target bad --time bad", "--time must be another column"),
        ("fit empty.csv --target bad", "--keep uses"),
        ("fit a.csv --target bad --lam 3", "--alpha 3 or --cost-ratio 3"),
        ("fit a.csv --target bad --lam 1", "--balanced"),
        ("fit a.csv --target bad --lam 0", "--lam 0.5"),
        ("fit a.csv --target bad --budget -5", "--budget must be a finite number above 0, got -5: did you mean 5"),
        ("fit a.csv --target bad --cost-ratio nan", "--cost-ratio must be a finite number"),
        ("fit a.csv --target bad --alpha 0", "--alpha must be a finite number above 0, got 0: did you mean a small"),
        ("split a.csv --target bad --test 2", "--test must be"),
        ("split a.csv --target bad --folder nowhere", "--folder must be"),
        ("split a.csv --target bad --clusters bad", "--clusters must be another"),
        ("predict m.crcen a.csv --out {home}/s.csv --id nothing", "--id must be"),
        ("predict m.crcen lacks.csv --out {home}/s.csv", "lacks"),
        ("predict m.crcen a.csv --out {home}/s.ods", ".csv, .tsv, .parquet or .xlsx"),
        ("evaluate n.crcen a.csv", "--target"),
        ("plan m.crcen a.csv --drift 0", "--drift must be above 0: got 0."),
        ("plan m.crcen a.csv --drift -1", "--drift must be above 0: got -1."),
        ("plan m.crcen a.csv --cost-width 0", "--cost-width must be above 0: got 0."),
        ("report n.crcen a.csv --out {home}/r.html", "--target"),
        ("evaluate m.crcen a.csv --target kind", "that of training was bad"),
    ],
)
def test_refusals_name_options(refusal, places, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(places)
    words = [word.format(home=tmp_path) for word in arguments.split()]
    err = refusal(*words, *(["--out", tmp_path / "m.crcen"] if words[0] == "fit" else []))
    assert said in err
    assert not PYTHON.search(err), err


@pytest.mark.parametrize(
    ("sentence", "names", "said"),
    [
        ("this model does not know its target column; name it with target=.", "target", "with --target."),
        ("use workers=3, or fewer", "workers", "use --workers 3, or fewer"),
        ("effort='quick' has no search", "effort", "--effort 'quick' has no search"),
        ("cohort= and now= need delay=", ("cohort", "now", "delay"), "--cohort and --now need --delay"),
        ("time must name a column", "time", "--time must name a column"),
        ("days/time=3/a.csv is not there; set time=.", "time", "days/time=3/a.csv is not there; set --time."),
        ("a column time=5 that no parameter names", (), "time=5"),
        ("times must be finite", "time", "times must"),
    ],
)
def test_parameters_of_an_error_become_options(sentence, names, said):
    assert said in in_options(crcen.InvalidParameter(sentence, parameter=names))


def test_what_an_analyst_needs_comes_first(crcen_command):
    code, out, _ = crcen_command("--help")
    assert code == 0
    first, research = out.split("Research: the paper")
    for command in ("split", "fit", "predict", "evaluate", "report", "export", "info", "demo"):
        assert f" {command} " in first
    for command in ("datasets", "methods", "reproduce"):
        assert f" {command} " in research
        assert f" {command} " not in first

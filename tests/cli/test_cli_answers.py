"""What the command prints and how it exits, in the test's own process."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.cli.app import in_options

COMMANDS = "look split fit predict evaluate report plan monitor declare certify verify keygen compare export info demo "
COMMANDS += "datasets methods reproduce"


@pytest.mark.parametrize("command", COMMANDS.split())
def test_every_command_has_help_with_an_example(printed, command):
    out = printed(command, "--help")
    assert f"crcen {command}" in out.split("Example")[1]
    assert "--json" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("reproduce table4", "table4"),
        ("reproduce table1 --nothing", "--nothing"),
        ("methods more", "more"),
        ("fit a.csv", "--target"),
        ("fit a.csv --target y --budget 5 --alpha 1", "--budget and --alpha both state the price"),
        ("fit a.csv --target y --budget five", "'--budget': must be a number: got 'five'."),
        ("fit a.csv --target y --effort better", "'--effort': must be one of quick, standard, best: got 'better'."),
        ("reproduce table9", "must be one of table1, table2, table3, figure1, all: got 'table9'."),
        ("fit a.csv --target y --seed -1", "'--seed': must be a whole number from 0 to 4294967295: got '-1'."),
        ("fit a.csv --target y --seed 1.5", "whole number from 0 to 4294967295: got '1.5'."),
        ("fit a.csv --target y --details --json", "leave out --details"),
        ("predict m.crcen a.csv", "--out"),
        ("evaluate m.crcen", "data"),
        ("evaluate m.crcen a.csv --resamples 1000000000", "--resamples must be a whole number from 0 to 1000000"),
        ("evaluate m.crcen a.csv --resamples 39", "--resamples must be 0 or at least 40, for 95 % intervals: got 39"),
        ("evaluate m.crcen a.csv --resamples -1", "'--resamples': must be a whole number of at least 0: got '-1'."),
        ("export m.crcen", "--onnx"),
        ("fit a.csv --target y --epochs 3", "--epochs is for --engine stream or --engine ray"),
        ("fit a.csv --target y --engine stream --workers 3", "--workers is for --engine ray"),
        ("fit a.csv --target y --engine stream --quick", "--effort is for tables in memory"),
    ],
)
def test_usage_errors_exit_with_2(refusal, arguments, named):
    assert named.lower() in refusal(*arguments.split(), code=2).lower()


def test_methods_are_all_listed_with_their_source(printed, answer):
    lines = printed("methods").splitlines()
    assert [line.split()[0] for line in lines] == [row["name"] for row in answer("methods")] == list(crcen.METHODS)
    for line, method in zip(lines, crcen.METHODS.values(), strict=True):
        assert method.summary in line
        assert line.endswith(f"[{method.source}]")
        assert ("; at most" in line) == bool(method.budget)
    bagging = next(line for line in lines if "BalancedBagging" in line)
    assert "changes rows, vote; probabilities by a known factor" in bagging
    assert "changes nothing; probabilities natural" in lines[0]
    assert "; at most 1,000 rows" in next(line for line in lines if line.startswith("eusboost"))


def test_datasets_are_all_listed(printed, answer, data_home):
    assert printed("datasets", "--data-home", data_home).splitlines()[1].endswith("data_home")
    head, *lines = printed("datasets").splitlines()
    assert head.split()[0] == "name"
    known = [row.name for row in crcen.list_datasets()]
    assert [line.split()[0] for line in lines] == [row["name"] for row in answer("datasets")] == known
    assert len(lines) == 27
    by_name = {line.split()[0]: line.split() for line in lines}
    assert by_name["abalone"][-1] == by_name["satimage"][-1] == "bundled"
    assert (by_name["us_crime"][-2:], by_name["abalone"][1:4]) == (["UScrime", "download"], ["4177", "10", "391"])


def test_choices_reach_the_run(crcen_command, tmp_path, monkeypatch):
    given = {}

    def record(artefact, **options):
        given.update(options, artefact=artefact)
        raise crcen.InvalidParameter("enough\nseen.")

    monkeypatch.setattr("crcen.paper.reproduce.reproduce", record)
    options = ["--quick", "--out", tmp_path, "--data-home", tmp_path, "--selection", "per_split", "--scoring", "f1"]
    options += ["--engine", "ray", "--methods", "crcen,mlp", "--reading", "2019"]
    code, _, err = crcen_command("reproduce", "figure1", *options)
    assert (code, err) == (2, "crcen: enough seen.\n")
    choices = {"selection": "per_split", "scoring": "f1", "engine": "ray", "methods": "crcen,mlp", "reading": "2019"}
    places = {"out": tmp_path, "data_home": tmp_path, "config": None}
    assert given == {"artefact": "figure1", "quick": True, **places, **choices}


def test_the_commands_choices_are_the_functions(crcen_command):
    from crcen.paper import reproduce
    from crcen.training.engines import ENGINES

    out = crcen_command("reproduce", "--help")[1]
    for choices in ([*reproduce.ARTEFACTS, "all"], *reproduce._CHOICES.values(), ENGINES):
        assert "|".join(choices) in out


def test_a_set_that_is_nowhere_is_named(crcen_command, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there: offline at once
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty").mkdir()
    code, _, err = crcen_command("reproduce", "table2", "--data-home", tmp_path / "empty", "--out", tmp_path / "run")
    said = [line for line in err.splitlines() if not re.match(r"(table|figure) \d:", line)]  # after progress
    assert (code, len(said), said[0].startswith("crcen: ")) == (1, 1, True)
    assert "coil_2000" in said[0]
    assert f"--data-home {tmp_path / 'empty'}" in said[0]


def test_runs_as_json(printed, answer, monkeypatch, tmp_path):
    found = SimpleNamespace(folder=tmp_path, texts=["one table", "another"])
    monkeypatch.setattr("crcen.paper.reproduce.reproduce", lambda *_, **__: found)
    assert printed("reproduce") == f"one table\nanother\nWritten to {tmp_path}\n"
    assert answer("reproduce") == {"folder": str(tmp_path), "texts": ["one table", "another"]}


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
        ("fit a.csv --target bad --clusters nothing", "--clusters must be"),
        ("fit a.csv --target bad --quick --learner networks", "--quick must go without --learner networks"),
        ("fit a.csv --target bad --clusters one --time x", "--clusters and --time are two ways to validate"),
        ("split a.csv --target bad --clusters one --time x", "--clusters and --time are two ways to split"),
        ("fit a.csv --target bad --time kind", "--time must name"),
        ("fit a.csv --target bad --clusters one", "--clusters must have"),
        ("fit a.csv --target bad --clusters bad", "--clusters must be another column"),
        ("fit empty.csv --target bad", "--keep uses"),
        ("fit a.csv --target bad --lam 3", "--alpha 3 or --cost-ratio 3"),
        ("fit a.csv --target bad --lam 0", "--lam 0.5 or --balanced"),
        ("fit a.csv --target bad --budget -5", "--budget must be a finite number above 0, got -5: did you mean 5"),
        ("split a.csv --target bad --test 2", "--test must be"),
        ("split a.csv --target bad --folder nowhere", "--folder must be"),
        ("predict m.crcen a.csv --out {home}/s.csv --id nothing", "--id must be"),
        ("predict m.crcen lacks.csv --out {home}/s.csv", "lacks"),
        ("evaluate n.crcen a.csv", "--target"),
        ("plan m.crcen a.csv --drift 0", "--drift must be above 0: got 0."),
        ("plan m.crcen a.csv --cost-width 0", "--cost-width must be above 0: got 0."),
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
        ("effort='quick' has no search", "effort", "--effort 'quick' has no search"),
        ("cohort= and now= need delay=", ("cohort", "now", "delay"), "--cohort and --now need --delay"),
        ("days/time=3/a.csv is not there; set time=.", "time", "days/time=3/a.csv is not there; set --time."),
        ("a column time=5 that no parameter names", (), "time=5"),
        ("times must be finite", "time", "times must"),
    ],
)
def test_parameters_of_an_error_become_options(sentence, names, said):
    assert said in in_options(crcen.InvalidParameter(sentence, parameter=names))


def test_what_an_analyst_needs_comes_first(printed, crcen_command):
    out = printed("--help")
    assert {*COMMANDS.split()} <= {*out.split()}
    first, research = out.split("Research: the paper")
    for command in ("split", "fit", "predict", "evaluate", "report", "export", "info", "demo"):
        assert f" {command} " in first
    for command in ("datasets", "methods", "reproduce"):
        assert (f" {command} " in research, f" {command} " in first) == (True, False)
    assert "multiclass target" not in out  # the first paragraph of each command
    assert "reproduce" in printed("-h")
    assert "reproduce" in "".join(crcen_command()[1:])

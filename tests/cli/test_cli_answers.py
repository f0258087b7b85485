"""What the command prints and how it exits, in the test's own process."""

import json
import re
from types import SimpleNamespace

import pytest

import crcen

COMMANDS = "look split fit predict evaluate report plan monitor declare certify verify keygen compare export info demo "
COMMANDS += "datasets methods reproduce"


def sentence(err):
    """The one line that a refusal prints, after the lines of progress."""
    lines = [line for line in err.splitlines() if not re.match(r"(table|figure) \d:", line)]
    assert len(lines) == 1
    assert lines[0].startswith("crcen: ")
    return lines[0]


def test_version(crcen_command):
    assert crcen_command("--version") == (0, f"crcen {crcen.__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(crcen_command, flag):
    code, out, err = crcen_command(flag)
    assert (code, err) == (0, "")
    for command in COMMANDS.split():
        assert command in out


@pytest.mark.parametrize("command", COMMANDS.split())
def test_every_command_has_help_with_an_example(crcen_command, command):
    code, out, err = crcen_command(command, "--help")
    assert (code, err) == (0, "")
    assert f"crcen {command}" in out.split("Example")[1]
    assert "--json" in out


def test_no_arguments_show_the_help(crcen_command):
    code, out, err = crcen_command()
    assert code in (0, 2)  # typer's versions differ
    assert "reproduce" in out + err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("reproduce table4", "table4"),
        ("reproduce table1 --scoring accuracy", "accuracy"),
        ("reproduce table1 --selection never", "never"),
        ("reproduce table1 --nothing", "--nothing"),
        ("predict", "predict"),
        ("methods more", "more"),
        ("fit a.csv", "--target"),
        ("fit a.csv --target y --budget 5 --alpha 1", "names of one number"),
        ("fit a.csv --target y --groups a", "use --clusters a"),
        ("split a.csv --target y --groups a", "use --clusters a"),
        ("fit a.csv --target y --budget five", "--budget"),
        ("fit a.csv --target y --seed -1", "--seed"),
        ("fit a.csv --target y --details --json", "leave out --details"),
        ("predict m.crcen a.csv", "--out"),
        ("evaluate m.crcen", "data"),
        ("evaluate m.crcen a.csv --resamples -1", "resamples"),
        ("monitor m.crcen a.csv --error-rate 0.1", "use --false-alarm-rate 0.1"),
        ("export m.crcen", "--onnx"),
        ("fit a.csv --target y --epochs 3", "--epochs is for --engine stream or --engine ray"),
        ("fit a.csv --target y --workers 3", "--workers is for --engine ray"),
        ("fit a.csv --target y --storage there", "--storage is for --engine stream or --engine ray"),
        ("fit a.csv --target y --engine stream --workers 3", "--workers is for --engine ray"),
        ("fit a.csv --target y --engine stream --quick", "--effort is for tables in memory"),
        ("fit a.csv --target y --engine ray --time x", "--time is for tables in memory"),
    ],
)
def test_usage_errors_exit_with_2(crcen_command, arguments, named):
    code, out, err = crcen_command(*arguments.split())
    assert (code, out) == (2, "")
    assert named.lower() in " ".join(err.replace("│", " ").split()).lower()


def test_methods_are_all_listed_with_their_source(crcen_command):
    code, out, _ = crcen_command("methods")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(crcen.METHODS)
    for line, method in zip(lines, crcen.METHODS.values(), strict=True):
        assert method.summary in line
        assert line.endswith(f"[{method.source}]")
    assert "changes rows, vote; probabilities by a known factor" in next(
        line for line in lines if "BalancedBagging" in line
    )
    assert "changes nothing; probabilities natural" in lines[0]
    assert "; at most 1,000 rows" in next(line for line in lines if line.startswith("eusboost"))
    assert all(("; at most" in line) == bool(crcen.METHODS[line.split()[0]].budget) for line in lines)


def test_datasets_are_all_listed(crcen_command):
    code, out, _ = crcen_command("datasets")
    assert code == 0
    head, *lines = out.splitlines()
    assert head.split()[0] == "name"
    assert [line.split()[0] for line in lines] == [row.name for row in crcen.list_datasets()]
    assert len(lines) == 27
    by_name = {line.split()[0]: line.split() for line in lines}
    assert by_name["abalone"][-1] == by_name["satimage"][-1] == "bundled"
    assert by_name["us_crime"][-2:] == ["UScrime", "download"]
    assert by_name["abalone"][1:4] == ["4177", "10", "391"]


def test_datasets_say_what_a_data_home_has(crcen_command, data_home):
    code, out, _ = crcen_command("datasets", "--data-home", data_home)
    assert code == 0
    assert out.splitlines()[1].endswith("data_home")


def test_table_2_of_the_bundled_sets(crcen_command, tmp_path):
    code, out, _ = crcen_command("reproduce", "table2", "--quick", "--out", tmp_path / "run")
    assert code == 0
    assert out.startswith("## Table 2")
    assert "| abalone | 4177 | 10 | 391 |" in out
    assert out.endswith(f"Written to {tmp_path / 'run'}\n")


def test_choices_reach_the_run(crcen_command, tmp_path, monkeypatch):
    given = {}

    def record(artefact, **options):
        given.update(options, artefact=artefact)
        raise crcen.InvalidParameter("enough\nseen.")

    monkeypatch.setattr("crcen.paper.reproduce.reproduce", record)
    options = ["--quick", "--out", tmp_path, "--data-home", tmp_path, "--selection", "per_split", "--scoring", "f1"]
    options += ["--engine", "ray", "--methods", "crcen,mlp", "--reading", "2019"]
    code, _, err = crcen_command("reproduce", "figure1", *options)
    assert (code, err) == (1, "crcen: enough seen.\n")
    choices = {"selection": "per_split", "scoring": "f1", "engine": "ray", "methods": "crcen,mlp", "reading": "2019"}
    places = {"out": tmp_path, "data_home": tmp_path, "config": None}
    assert given == {"artefact": "figure1", "quick": True, **places, **choices}


def test_the_commands_choices_are_the_functions(crcen_command):
    from crcen.paper import reproduce
    from crcen.training.engines import ENGINES

    _, out, _ = crcen_command("reproduce", "--help")
    for choices in ([*reproduce.ARTEFACTS, "all"], *reproduce._CHOICES.values(), ENGINES):
        assert "|".join(choices) in out


def test_a_set_that_is_nowhere_is_named(crcen_command, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there: offline at once
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty").mkdir()
    code, _, err = crcen_command("reproduce", "table2", "--data-home", tmp_path / "empty", "--out", tmp_path / "run")
    assert code == 1
    assert "coil_2000" in sentence(err)
    assert f"--data-home {tmp_path / 'empty'}" in sentence(err)


@pytest.mark.parametrize("command", ["datasets", "methods"])
def test_listings_as_json(crcen_command, command):
    code, out, _ = crcen_command(command, "--json")
    text = crcen_command(command)[1]
    assert code == 0
    rows = json.loads(out)
    assert all(row["name"] in text for row in rows)
    assert len(rows) == {"datasets": 27, "methods": len(crcen.METHODS)}[command]


def test_runs_as_json(crcen_command, monkeypatch, tmp_path):
    home, command = "crcen.paper.reproduce.reproduce", "reproduce"
    monkeypatch.setattr(home, lambda *_, **__: SimpleNamespace(folder=tmp_path, texts=["one table", "another"]))
    assert crcen_command(command)[1] == f"one table\nanother\nWritten to {tmp_path}\n"
    code, out, _ = crcen_command(command, "--json")
    assert (code, json.loads(out)) == (0, {"folder": str(tmp_path), "texts": ["one table", "another"]})

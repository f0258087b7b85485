"""`crcen benchmark`: options, usage errors, and what Ctrl-C says."""

import pytest
from typer.testing import CliRunner

import crcen
from crcen import cli
from crcen.paper.rivals.run import Benchmark

RUN = "crcen.paper.rivals.run.benchmark"


def call(*arguments):
    return CliRunner().invoke(cli.app, ["benchmark", *map(str, arguments)], env={"TERMINAL_WIDTH": "200"})


def test_help_has_an_example():
    done = call("--help")
    assert done.exit_code == 0
    assert "crcen benchmark --half development" in done.output


def test_options_reach_the_run(monkeypatch, tmp_path):
    given = {}

    def record(peers, **options):
        given.update(options, peers=peers)
        return Benchmark(tmp_path, ["## A table"])

    monkeypatch.setattr(RUN, record)
    done = call(
        "--peers", "crcen,logistic", "--sets", "ecoli,oil", "--half", "development", "--splits", 2, "--settings", 3,
        "--jobs", 1, "--data-home", tmp_path, "--out", tmp_path, "--time-limit", 9, "--redo", "failed",
        "--rows-from", tmp_path, "--tables-only",
    )  # fmt: skip
    assert (done.exit_code, done.output) == (0, f"## A table\nWritten to {tmp_path}\n")
    assert given == {
        "peers": "crcen,logistic", "sets": ["ecoli", "oil"], "half": "development", "splits": 2, "settings": 3,
        "jobs": 1, "data_home": tmp_path, "out": tmp_path, "time_limit": 9.0, "redo": "failed",
        "rows_from": [tmp_path], "tables_only": True,
    }  # fmt: skip


def test_defaults_are_the_packaged_ones(monkeypatch, tmp_path):
    given = {}
    monkeypatch.setattr(RUN, lambda peers, **options: given.update(options) or Benchmark(tmp_path, []))
    assert call().exit_code == 0
    assert {name for name, value in given.items() if value} == {"half"}


@pytest.mark.parametrize(
    "arguments",
    [("--half", "third"), ("--splits", 0), ("--jobs", "many"), ("--time-limit", 0), ("--data-home", "nowhere"), ("x",)],
)
def test_usage_errors_exit_with_2(arguments):
    assert call(*arguments).exit_code == 2


def test_an_unknown_peer_is_refused(tmp_path):
    done = call("--peers", "lightgmb", "--out", tmp_path / "run")
    assert isinstance(done.exception, crcen.InvalidParameter)  # the entry point prints it in one line
    assert not (tmp_path / "run").exists()


def test_ctrl_c_says_how_to_go_on(monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(RUN, interrupt)
    done = call()
    assert done.exit_code == 130
    assert "interrupted; the same command goes on where it stopped" in done.output

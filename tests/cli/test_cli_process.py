"""The command as a process: what it imports, Ctrl-C, and standard output."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

import crcen

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

IMPORTS = """
import contextlib, io, json, sys
from crcen.cli import main
codes = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["crcen", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main()
            codes.append(0)
        except SystemExit as end:
            codes.append(end.code or 0)
packages = "torch sklearn scipy scipy.stats numpy pandas pyarrow skrub imblearn matplotlib ray"
heavy = [name for name in packages.split() if name in sys.modules]
print(json.dumps({"codes": codes, "heavy": heavy}))
"""

SMALL = {
    **{"runs": 3, "runs_at_once": 1, "n_pos": 50, "n_neg": 500, "n_test": 50, "seed": 0, "hidden": [3], "epochs": 2},
    "learning_rate": 0.01,
}
# A run that waits once its first rows are written; a shell may have told its children to ignore Ctrl-C.
WAITING = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from crcen.paper import protocol as run_folder
from crcen.paper import reproduce
reproduce.read_settings = lambda quick, config=None, reading=None: {{"table1": {SMALL}, "protocol": {{"sets": []}}}}
write = run_folder.RunFolder.add
def write_and_wait(self, rows):
    write(self, rows)
    time.sleep(60)
run_folder.RunFolder.add = write_and_wait
from crcen.cli import main
sys.argv[0] = "crcen"
main()
"""

# A shell may have told its children to ignore Ctrl-C. The fit says when it is under way, and never ends by itself.
SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import crcen.training.engine as engine
def endless(*arguments, **options):
    print("under way", flush=True)
    time.sleep(120)
engine.Trainer.__call__ = endless
from crcen.cli import main
sys.argv[0] = "crcen"
main()
"""


def python(*arguments, **options):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def small_run(monkeypatch, crcen_command):
    """The same run here, from beginning to end."""
    from crcen.paper import reproduce

    settings = {"table1": SMALL, "protocol": {"sets": []}}
    monkeypatch.setattr(reproduce, "read_settings", lambda quick, config=None, reading=None: settings)
    return lambda folder: crcen_command("reproduce", "table1", "--out", folder)


@contextmanager
def waiting_run(folder):
    """The same run as a process, when its first rows are there."""
    rows = folder / "table1" / "rows.jsonl"
    command = [sys.executable, "-c", WAITING, "reproduce", "table1", "--out", str(folder)]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not rows.exists() or not rows.stat().st_size:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


def test_the_module_is_the_command(tmp_path):
    done = python("-m", "crcen", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"crcen {crcen.__version__}\n", "")
    done = python("-m", "crcen", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "reproduce" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_help_version_and_mistakes_load_nothing_heavy(tmp_path):
    from crcen.cli import app

    commands = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert {"fit", "predict", "reproduce", "demo"} <= set(commands)
    fine = [["--help"], ["--version"], *([name, "--help"] for name in commands)]
    mistakes = ["reproduce table4", "reproduce --scoring accuracy", "nothing", "fit", "fit a --target y --lam x"]
    mistakes = [one.split() for one in (*mistakes, "fit a.csv --target y --lam 0.5 --balanced")]
    done = python("-c", IMPORTS, json.dumps([*fine, *mistakes]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"codes": [0] * len(fine) + [2] * len(mistakes), "heavy": []}
    done = python("-c", IMPORTS, json.dumps([["datasets"]]))
    assert json.loads(done.stdout) == {"codes": [0], "heavy": ["scipy", "numpy"]}
    (tmp_path / "table.csv").write_text("x,y\n" + "1,a\n2,a\n3,b\n" * 9)
    done = python("-c", IMPORTS, json.dumps([["look", str(tmp_path / "table.csv"), "--target", "y"]]))
    assert json.loads(done.stdout) == {"codes": [0], "heavy": ["sklearn", "scipy", "numpy", "pandas", "pyarrow"]}


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C another way")
def test_ctrl_c_says_one_line_and_the_run_can_be_resumed(small_run, tmp_path):
    rows = tmp_path / "run" / "table1" / "rows.jsonl"
    with waiting_run(tmp_path / "run") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "crcen: interrupted; run the same command again to resume.\n")
    assert not (rows.parent / "DONE").exists()
    first = rows.read_bytes()

    resumed, calm = (small_run(tmp_path / name) for name in ("run", "calm"))
    assert (resumed[0], calm[0]) == (0, 0)
    assert "table 1: 1/5 " in resumed[2]  # one of six pieces was done
    assert "table 1: 1/6 " in calm[2]
    assert rows.read_bytes().startswith(first)
    assert resumed[1].replace(str(tmp_path / "run"), "") == calm[1].replace(str(tmp_path / "calm"), "")


def test_a_second_run_in_the_same_folder_is_refused(small_run, tmp_path):
    rows = tmp_path / "run" / "table1" / "rows.jsonl"
    with waiting_run(tmp_path / "run") as first:
        code, _, words = small_run(tmp_path / "run")
        assert code == 1
        assert f"run is in use by process {first.pid} on " in words
        assert "give another --out" in words
        first.terminate()
        out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (143, "")
    assert "Traceback" not in err
    code, _, words = small_run(tmp_path / "run")
    assert code == 0, words
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len({(row["simulation"], row["run"], row["weighting"]) for row in found}) == len(found) > 0
    assert not list((tmp_path / "run").rglob(".*"))


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("train") / "train.csv"
    frame = pd.DataFrame({"x": rng.normal(size=200), "text": [f"some words {i}" for i in range(200)]})
    frame.assign(y=(frame["x"] > 1).astype(int)).to_csv(path, index=False)
    return path


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C another way")
def test_ctrl_c_in_the_middle_of_a_fit_is_one_line_and_leaves_nothing(train, tmp_path):
    command = [sys.executable, "-c", SLOW, "fit", str(train), "--target", "y", "--out", str(tmp_path / "m.crcen")]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout.readline() == "under way\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "crcen: interrupted; no result was written.\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no /dev/stdout")
def test_standard_output_holds_the_answers_alone(train, tmp_path, crcen_command):
    model, scored = tmp_path / "m.crcen", tmp_path / "scored.csv"
    assert crcen_command("fit", train, "--target", "y", "--drop", "text", "--quick", "--out", model)[0] == 0
    assert crcen_command("predict", model, train, "--out", scored)[0] == 0
    for options, words in (((), "200 rows"), (("--json",), '"rows": 200')):
        command = [sys.executable, "-m", "crcen", "predict", model, train, "--out", "/dev/stdout", *options]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout == scored.read_text()
        assert words in done.stderr

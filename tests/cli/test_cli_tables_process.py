"""Commands on tables as processes: Ctrl-C in the middle."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

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
    assert (process.returncode, out, err) == (130, "", "crcen: interrupted; nothing was written.\n")
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

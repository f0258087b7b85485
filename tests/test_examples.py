"""Every example runs as a reader would run it."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


# Trainers of others, each in the extra interop.
NEEDS = {"torch_skorch": "skorch", "torch_lightning": "pytorch_lightning", "torch_transformers": "transformers"}
assert EXAMPLES


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(path, tmp_path, monkeypatch, capsys):
    package = NEEDS.get(path.stem)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'crcen[interop]'")
    if package == "transformers":  # a folder of tests is called datasets, and is taken for the package of that name
        monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    with torch.random.fork_rng():
        runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 3

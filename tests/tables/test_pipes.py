"""Tables from pipes and standard input."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crcen import CRCENClassifier, TableClassifier, predict_table, save
from crcen.exceptions import DataUnavailable
from crcen.tables.reading import open_table

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"x": RNG.normal(size=300), "c": RNG.choice(["a", "b"], 300)})

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes of this kind")


def content(kind):
    held = io.BytesIO()
    ROWS.to_csv(held, index=False) if kind == "csv" else ROWS.to_parquet(held)
    return held.getvalue()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_named_pipe_is_read_whole_and_leaves_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content(kind)])
    writer.start()
    table = open_table(tmp_path / "pipe")
    writer.join()
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "private").iterdir()] == [0]
    assert table.n_rows == 300
    assert table.read()["x"].astype(float).tolist() == ROWS["x"].tolist()
    assert [len(chunk) for chunk in table.chunks(200)] == [200, 100]
    del table
    assert not list((tmp_path / "private").iterdir())


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_the_command_predicts_from_standard_input(tmp_path, name):
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(ROWS, ROWS["x"] > 1)
    save(model, tmp_path / "m.crcen")
    command = [sys.executable, "-m", "crcen", "predict", tmp_path / "m.crcen", name, "--out", tmp_path / "s.csv"]
    done = subprocess.run(command, input=content("csv"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "a.csv").write_bytes(content("csv"))
    expected = predict_table(model, tmp_path / "a.csv").frame
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "s.csv")["probability"], expected["probability"])


def test_an_empty_pipe_and_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(DataUnavailable, match="standard input is empty"):
        open_table("-")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,2\n1\n")))
    with pytest.raises(ValueError, match="line 3 of standard input has 1 value under 2"):
        open_table("-").read()
    with pytest.raises(DataUnavailable, match="is a device"):
        open_table(Path("/dev/zero"))

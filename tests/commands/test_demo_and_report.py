"""The report of a table, the demonstration, and what is installed."""

import json
import os

import numpy as np
import pytest

import crcen
from crcen import InvalidInput
from crcen.commands.environment import environment_info
from crcen.exceptions import DataUnavailable


def test_a_report_is_one_html_file(model_file, mixed_table, tmp_path):
    rows = mixed_table(200, seed=4)
    rows.loc[:4, "bad"] = None
    rows.to_csv(tmp_path / "test.csv", index=False)
    done = crcen.report_table(model_file, tmp_path / "test.csv", out=tmp_path / "report.html", title="A test")
    page = done.path.read_text()
    assert "<html" in page
    assert "A test" in page
    assert done.n_rows == 195
    assert "5 rows without a value of bad" in str(done)
    assert json.loads(json.dumps(done.to_dict()))["rows"] == 195
    assert sorted(os.listdir(tmp_path)) == ["report.html", "test.csv"]


def test_what_is_installed():
    info = environment_info()
    assert info.packages["numpy"] == np.__version__
    assert (info.crcen, info.to_dict()["crcen"]) == (crcen.__version__, crcen.__version__)
    assert "networks are trained on" in str(info)


def test_a_report_is_refused_early(fitted, mixed_table, tmp_path):
    with pytest.raises(DataUnavailable, match="create it first"):
        crcen.report_table(fitted.model, mixed_table(50), out=tmp_path / "no" / "report.html")
    with pytest.raises(InvalidInput, match="the target must be a column"):
        crcen.report_table(fitted.model, mixed_table(50).drop(columns="bad"), out=tmp_path / "report.html")

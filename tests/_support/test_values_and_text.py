"""Values for JSON, installed versions, and text for terminals."""

import json
from dataclasses import make_dataclass

import numpy as np
import pytest

import crcen
from crcen._support.extras import installed_version, installed_versions, need
from crcen._support.text import printable
from crcen._support.values import json_value
from crcen.exceptions import MissingExtra


def test_every_value_becomes_one_that_json_takes():
    value = {
        1: np.float32(0.5),
        "nan": [float("nan"), -np.inf, np.float64("inf")],
        "array": np.array([[1, 2], [3, 4]]),
        "labels": np.array(["a", None], dtype=object),
        "yes": np.bool_(True),
        "record": make_dataclass("Point", ("x", "y"))(2.0, (np.int64(3), "text")),
    }
    assert json.loads(json.dumps(json_value(value), allow_nan=False)) == {
        "1": 0.5,
        "nan": [None, None, None],
        "array": [[1, 2], [3, 4]],
        "labels": ["a", None],
        "yes": True,
        "record": {"x": 2.0, "y": [3, "text"]},
    }
    # Whole numbers are shortened on request where nothing is lost.
    assert json.dumps(json_value([3.0, 0.5, 1e300], shorten=True)) == "[3, 0.5, 1e+300]"
    assert json.dumps(json_value(3.0)) == "3.0"


def test_what_is_not_installed_has_no_version():
    assert installed_version("numpy") == np.__version__
    assert installed_versions(["crcen", "no-such-package"]) == {"crcen": crcen.__version__}
    with pytest.raises(MissingExtra, match=r"no_such is not installed; get it with: pip install 'crcen\[plots\]'"):
        need("no_such.module", "plots")


def test_what_is_installed_and_cannot_be_imported_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import no_such_dependency")
    (tmp_path / "too_old.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    for module, missing in (("half_there", "no_such_dependency"), ("too_old", "no_such_name")):
        with pytest.raises(MissingExtra, match=f"{module} is installed but cannot be imported .*{missing}"):
            need(module, "tables")


def test_a_terminal_gets_nothing_to_obey():
    assert printable("plain täxt €") == "plain täxt €"
    assert printable("a\x1b[2Jb\x9bc\u202ed\x7f\ttab\nline") == "a?[2Jb?c?d? tab line"

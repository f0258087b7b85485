"""The page about serving: the MLflow example works without MLflow, and the application factory for gunicorn answers."""

import re
import sys
import types
from pathlib import Path

import numpy as np
from serve_tables import ROW, binary_table
from starlette.testclient import TestClient

import crcen
from crcen.serve.server import application

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"


def test_mlflow_example(models, monkeypatch):
    logged = {}
    pyfunc = types.SimpleNamespace(PythonModel=object, log_model=lambda **options: logged.update(options))
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(pyfunc=pyfunc))
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    exec(code, {})
    model = logged["python_model"]
    model.load_context(types.SimpleNamespace(artifacts={"model": models["fraud"]}))
    rows = binary_table(30, seed=2).drop(columns="fraud")
    found, wanted = model.predict(None, rows), crcen.predict_table(models["fraud"], rows).frame
    assert list(found) == ["probability", "decision"]
    np.testing.assert_array_equal(found["probability"], wanted["probability"])


def test_factory_for_other_servers(models):
    assert 'crcen.serve.server:application("fraud.crcen")' in PAGE.read_text(encoding="utf-8")
    client = TestClient(application(str(models["fraud"])), base_url="http://127.0.0.1")
    assert client.post("/predict", json=ROW).status_code == 200

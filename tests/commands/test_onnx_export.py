"""The exported graph answers as the model does, by onnxruntime, and refuses what it cannot carry."""

import json
import os

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

import crcen
from crcen import Budget, CostMatrix, CRCENClassifier, CrcenError, InvalidInput, Search, TableClassifier, export_onnx
from crcen.commands import export as onnx_export
from grouped_settings import grouped

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)) * [1, 20, 0.1]
Y = np.where(X[:, 0] + X[:, 1] / 40 + 0.5 * RNG.normal(size=300) > 1.1, "bad", "good")
NEW = RNG.normal(size=(100, 3)) * [2, 50, 1]


def checked(model, path, feeds, rows, tolerance=1e-9):
    """Probabilities of an exported graph, which must be those of the model, as its decisions must."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    probabilities, decision = session.run(["probabilities", "decision"], feeds)
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=tolerance)
    expected = model.predict(rows)
    expected = expected.astype(int) if expected.dtype == bool else expected
    assert decision.astype(str).tolist() == expected.astype(str).tolist()
    return probabilities


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": ()},
        {"hidden": (4, 3), "n_members": 3, "activation": "tanh"},
        {"activation": "sigmoid", "standardize": False},
        {"activation": "silu", "pos_label": "good"},
        {"encoding": "robust"},
        {"encoding": "piecewise"},
        {"encoding": "tree", "probability": "temperature"},
        {"encoding": "quantile", "probability": "isotonic"},
    ],
    ids=lambda options: "-".join(map(str, options.values())) or "plain",
)
def test_a_classifier_of_numbers(tmp_path, options):
    how = grouped(**{"hidden": (4,), "max_epochs": 3, "random_state": 0, **options})
    model = CRCENClassifier(Budget(4), **how).fit(X, Y)
    done = export_onnx(model, tmp_path / "m.onnx")
    checked(model, done.path, {"X": NEW}, NEW)
    assert done.largest_difference <= 1e-9


@pytest.mark.parametrize("encoding", ["standard", "robust", "quantile", "piecewise", "tree", "steps"])
@pytest.mark.parametrize("lacking", [[0, 2], []], ids=str)
def test_missing_cells(tmp_path, encoding, lacking):
    gaps, new = X.copy(), NEW.copy()
    for column in lacking:
        gaps[column::5, column] = np.nan
    new[RNG.random(new.shape) < 0.3] = np.nan
    how = {"encoding": encoding, "missing": "indicator", "hidden": (4,), "max_epochs": 3, "random_state": 0}
    model = CRCENClassifier(Budget(4), **grouped(**how)).fit(gaps, Y if lacking else Y == "bad")
    checked(model, export_onnx(model, tmp_path / "m.onnx").path, {"X": new}, new, 1e-12)


@pytest.fixture(scope="module")
def table():
    columns = {"x": np.where(RNG.random(300) < 0.1, np.nan, X[:, 0]), "size": X[:, 1], "new": RNG.random(300) < 0.4}
    columns["country"] = RNG.choice(["NL", "NO", "Österreich", None], 300)
    frame = pd.DataFrame(columns).assign(shop=[f"s{i % 3}" if i < 290 else f"rare{i}" for i in range(300)])
    networks = CRCENClassifier(Budget(4), hidden=(4,), n_members=2, max_epochs=3, random_state=0)
    return TableClassifier(estimator=networks).fit(frame, Y), frame


@pytest.mark.filterwarnings("ignore:cells that cannot be read")  # infinite ones
def test_a_table_with_gaps_and_categories(tmp_path, table):
    model, frame = table
    done = export_onnx(crcen.save(model, tmp_path / "m.crcen"), tmp_path / "m.onnx")
    assert done.inputs == {"x": "number", "size": "number", "new": "number", "country": "text", "shop": "text"}
    new = frame.assign(shop=np.where(np.arange(300) % 7 == 0, "never seen", frame["shop"]))
    spaces = zip(new["country"], ["", " ", "\t", "\u00a0"] * 75, ["", "\n ", ""] * 100, strict=True)
    new["country"] = [f"{before}{cell}{after}" if isinstance(cell, str) else cell for cell, before, after in spaces]
    new.loc[:2, "size"] = [1e9, -1e9, np.inf]
    feeds = {name: new[name].to_numpy(dtype=np.float64)[:, None] for name in ("x", "size", "new")}
    feeds |= {name: new[name].astype(object).fillna("").to_numpy(dtype=object)[:, None] for name in ("country", "shop")}
    checked(model, done.path, feeds, new)
    properties = {one.key: one.value for one in onnx.load(done.path).metadata_props}
    assert json.loads(properties["classes"]) == ["bad", "good"]
    assert json.loads(properties["price"])["cost_ratio"] == pytest.approx(4)
    assert "5 inputs" in str(done)
    assert done.to_dict()["checked_rows"] == 512


@pytest.mark.parametrize("lacks", [False, True])
def test_a_table_with_dates(tmp_path, table, lacks):
    _, frame = table
    when = pd.Series(pd.date_range("2023-12-30 22:15", periods=300, freq="7h13min"))
    y = np.where((when.dt.month % 3 == 0) ^ (when.dt.hour > 20), "bad", "good")
    more = frame[["x", "country"]].assign(when=when.mask(np.arange(300) % 9 == 4) if lacks else when)
    network = CRCENClassifier(Budget(4), hidden=(4,), max_epochs=3, random_state=0)
    model = TableClassifier(estimator=network).fit(more, y)
    done = export_onnx(crcen.save(model, tmp_path / "m.crcen"), tmp_path / "m.onnx")
    assert done.inputs == {"x": "number", "country": "text", "when": "seconds"}
    new = more.assign(when=more["when"] + pd.Timedelta("400 days 5 h 31 min 12.25 s"))
    seconds = (new["when"] - pd.Timestamp("1970-01-01")).dt.total_seconds()
    feeds = {"x": new["x"].to_numpy()[:, None], "when": seconds.to_numpy()[:, None]}
    feeds["country"] = new["country"].astype(object).fillna("").to_numpy(dtype=object)[:, None]
    probabilities = checked(model, done.path, feeds, new)
    assert model.predict_proba(new.assign(when=pd.NaT))[0, 0] != pytest.approx(probabilities[0, 0])


def test_texts_are_refused_by_name(tmp_path, table):
    _, frame = table
    more = frame.assign(when=pd.date_range("2024-01-01", periods=300), note=[f"words {i} and more" for i in range(300)])
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(more, Y)
    with pytest.raises(InvalidInput, match=r"cannot carry the text column note: .*fit with --drop note"):
        export_onnx(model, tmp_path / "m.onnx")
    gelu = CRCENClassifier(**grouped(hidden=(2,), activation="gelu", max_epochs=1)).fit(X, Y)
    with pytest.raises(InvalidInput, match="gelu"):
        export_onnx(gelu, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_a_graph_that_answers_otherwise_is_not_written(tmp_path, table, monkeypatch):
    model, _ = table

    def other(given):
        before = model.estimator_.ensemble_
        model.estimator_.ensemble_ = before.shifted(before.labels.columns(1e-6))
        try:
            return build(given)
        finally:
            model.estimator_.ensemble_ = before

    build = onnx_export.build_graph
    monkeypatch.setattr(onnx_export, "build_graph", other)
    with pytest.raises(CrcenError, match="does not reproduce the model"):
        export_onnx(model, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


RNG3 = np.random.default_rng(0)
Y3 = np.concatenate([np.arange(3), RNG3.choice(3, 197, p=[0.7, 0.2, 0.1])])
X3 = RNG3.normal(size=(200, 3)) + Y3[:, None]
TEXT3 = np.array(["low", "middle", "high"])[Y3]
COSTS3 = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
LIGHT3 = {"hidden": (4,), "max_epochs": 3, "n_members": 2, "random_state": 0}


@pytest.mark.parametrize("labels", [TEXT3, Y3], ids=["text", "numbers"])
@pytest.mark.parametrize(
    "model",
    [
        CRCENClassifier(np.array([1.0, 3.0, 10.0]), **grouped(**LIGHT3, balance="oof", probability="temperature")),
        CRCENClassifier(COSTS3, **LIGHT3),
        crcen.CRCENClassifierCV(
            "balanced", l2=[1e-3, 1e-2], search=Search(n_settings=2), encoding="steps", cv=2, **LIGHT3
        ),
    ],
    ids=["weights", "costs", "search"],
)
def test_the_graph_of_several_classes(model, labels, tmp_path):
    fitted = model.fit(X3, labels)
    export = crcen.export_onnx(fitted, tmp_path / "model.onnx")
    checked(fitted, export.path, {"X": X3}, X3)
    properties = {one.key: one.value for one in onnx.load(str(export.path)).metadata_props}
    assert json.loads(properties["classes"]) == np.unique(labels).tolist()
    price = json.loads(properties["price"])
    assert (price["class_weights"] is None) == (price["costs"] is not None) == (fitted.costs_ is not None)

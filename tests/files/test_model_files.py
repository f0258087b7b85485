"""Saved models: the same answers for two and three classes, nothing executed, and one sentence for invalid files."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from forging import mixed_rows
from sklearn import preprocessing
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import crcen
from crcen import Budget, CRCENClassifier, CRCENClassifierCV, PosteriorCorrection, TableClassifier, load, save
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.files import model_file
from crcen.paper.estimators import MovedThresholdClassifier
from grouped_settings import grouped

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=400) > 1.2, "yes", "no")
FRAME = mixed_rows(X[:, 0], X[:, 1] > 1, RNG).assign(empty=None)
SMALL = {"hidden": (3,), "l2": 1e-2, "max_epochs": 2, "random_state": 0}
THREE = np.array(["low", "middle", "high"])[(X[:, 0] > 0).astype(int) + (X[:, 0] > 1.2)]
WEIGHTS = {"low": 1.0, "middle": 3.0, "high": 10.0}
REVIEW = crcen.CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])


def network():
    """A small unfitted classifier."""
    return CRCENClassifier(Budget(5), **SMALL)


@pytest.fixture(scope="module")
def table_model():
    search = CRCENClassifierCV(Budget(5), **SMALL)
    return TableClassifier(estimator=search, random_state=0).fit(FRAME, pd.Series(Y, name="bad"))


@pytest.fixture
def saved(table_model, tmp_path):
    return save(table_model, tmp_path / "model.crcen")


ENCODINGS = {"encoding": ["standard", "quantile"]}
BINARY = [
    CRCENClassifier(Budget(5), **grouped(n_members=2, **SMALL)),
    CRCENClassifier(Budget(5), **SMALL | {"random_state": np.random.RandomState(0)}),
    CRCENClassifier({"yes": 3, "no": 1}, **grouped(encoding="piecewise", probability="isotonic", **SMALL)),
    CRCENClassifierCV([crcen.Alpha(1), crcen.Alpha(2)], **grouped(training_weighting="price", **ENCODINGS, **SMALL)),
    CRCENClassifierCV(crcen.Lam(0.8), **grouped(cv=StratifiedGroupKFold(2), scoring="f1", **SMALL)),
    CRCENClassifierCV(crcen.CostRatio(4), **grouped(cv=crcen.TimeSplit(2), **SMALL)),
    crcen.CSMLPClassifier(None, **grouped(**SMALL)),
    MovedThresholdClassifier(Budget(5), **grouped(**SMALL)),
]
MULTICLASS = [
    CRCENClassifier(WEIGHTS, **SMALL),
    CRCENClassifier(np.array([1.0, 2.0, 3.0]), **grouped(**SMALL, balance="oof", probability="temperature")),
    CRCENClassifier(REVIEW, **SMALL),
    CRCENClassifierCV(WEIGHTS, encoding="standard", cv=2, n_members=1, **SMALL),
    crcen.CSMLPClassifier(**SMALL),
    MovedThresholdClassifier(WEIGHTS, **SMALL),
]


@pytest.mark.parametrize(
    ("model", "labels"),
    [*((model, Y) for model in BINARY), *((model, THREE) for model in MULTICLASS)],
    ids=lambda value: type(value).__name__,
)
def test_loaded_models_equal_the_saved_ones(model, labels, tmp_path):
    has_groups = isinstance(getattr(model, "cv", None), crcen.TimeSplit | StratifiedGroupKFold)
    options = {"groups": np.arange(400) // 4} if has_groups else {}
    model.fit(X, labels, **options)
    found = load(save(model, tmp_path / "m"))
    assert type(found) is type(model)
    for method in ("predict", "predict_proba", "weighted_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(found, method)(X), getattr(model, method)(X))
    assert str(found.weighting_) == str(model.weighting_)
    assert str(found.key_equation_) == str(model.key_equation_)
    ours, theirs = ({name: type(value) for name, value in one.get_params().items()} for one in (found, model))
    assert ours == theirs
    info = crcen.model_info(tmp_path / "m")
    assert (info.classes, info.positive) == (sorted(set(labels)), "yes" if labels is Y else None)
    if labels is THREE and model.weighting is WEIGHTS:
        assert info.weighting["class_weights"] == [10.0, 1.0, 3.0]
        assert info.weighting["class_counts"] == [float((label == THREE).sum()) for label in info.classes]
        assert "weight 10" in str(info)


@pytest.mark.parametrize(("weighting", "labels"), [(Budget(5), Y), (REVIEW, THREE)], ids=["binary", "multiclass"])
def test_prediction_does_not_import_torch(weighting, labels, tmp_path):
    path = save(CRCENClassifier(weighting, **SMALL).fit(X, labels), tmp_path / "m")
    code = (
        f"import sys, crcen, numpy as np; m = crcen.load({str(path)!r}); "
        "m.predict(np.zeros((2, 3))); print(len(m.predict_proba(np.zeros((2, 3)))), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_one_row_of_a_table_needs_neither_pandas_nor_scipy_stats(saved, table_model):
    assert {column.kind for column in table_model.columns_} >= {"number", "category", "date", "text"}
    row = json.loads(FRAME.iloc[3].to_json())
    code = (
        f"import json, sys, crcen; p = crcen.load({str(saved)!r}).predict_proba(json.loads({json.dumps(row)!r})); "
        "names = 'pandas', 'scipy.stats'; "
        "print(p.tolist(), [name for name in names if name in sys.modules], sep=';'); "
        "from sklearn.utils import fixes; import pandas.util; "  # deferred, and still complete
        "assert getattr(fixes, 'pd', pandas).DataFrame is pandas.DataFrame and fixes._mode([1, 1]).mode == 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{table_model.predict_proba(row).tolist()};[]"


MIXED = FRAME[["x", "c"]].assign(z=X[:, 2])


def prepared(last):
    """A pipeline for mixed columns."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    kinds = [("n", numbers, ["x", "z"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["c"])]
    return make_pipeline(ColumnTransformer(kinds), last)


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (PosteriorCorrection(LogisticRegression(class_weight="balanced")), X),
        (PosteriorCorrection(network(), method="isotonic"), X),
        (PosteriorCorrection(prepared(LogisticRegression(class_weight={"yes": 5, "no": 1})), price=Budget(3)), MIXED),
        (PosteriorCorrection(TableClassifier(estimator=network(), random_state=0)), FRAME),
        (prepared(LogisticRegression()), MIXED),
        (prepared(network()), MIXED),
        (make_pipeline(preprocessing.RobustScaler(), preprocessing.MinMaxScaler(), network()), X),
        (make_pipeline(make_pipeline(StandardScaler()), "passthrough", LogisticRegression()), X),
        (make_pipeline(OneHotEncoder(drop="if_binary"), LogisticRegression()), FRAME[["c", "b"]]),
        (make_pipeline(OneHotEncoder(drop="first"), LogisticRegression()), FRAME[["c"]].to_numpy()),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OrdinalEncoder(), LogisticRegression()), MIXED[["c"]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_corrections_and_pipelines_come_back_as_they_were(model, rows, tmp_path):
    model.fit(rows, Y)
    found = load(save(model, tmp_path / "m"))
    for method in ("predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(found, method)(rows), getattr(model, method)(rows))
    info = crcen.model_info(tmp_path / "m")
    assert info.positive == "yes"
    assert "alarm above probability" in str(info)
    again = clone(found).fit(rows, Y)
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))


def test_unknown_parts_are_refused_by_name_with_what_is_allowed(tmp_path):
    for model, name in [
        (make_pipeline(preprocessing.PolynomialFeatures(), LogisticRegression()), "PolynomialFeatures"),
        (make_pipeline(preprocessing.FunctionTransformer(np.log1p), LogisticRegression()), "numpy.ufunc"),
        (PosteriorCorrection(RandomForestClassifier(2), weighting=None, price=None), "RandomForestClassifier"),
    ]:
        model.fit(abs(X), Y)
        with pytest.raises(InvalidParameter, match=f"{name} as .*, which a model file may not; use "):
            save(model, tmp_path / "m")
    for model, why in [
        (make_pipeline(StandardScaler(), memory=str(tmp_path)).fit(X), "two classes"),
        (make_pipeline(StandardScaler(), LogisticRegression(), memory=str(tmp_path)).fit(X, Y), "memory"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "not fitted"),
        (PosteriorCorrection(), "not fitted"),
        (make_pipeline(LogisticRegression()).fit(X, RNG.integers(3, size=400)), "two classes"),
    ]:
        with pytest.raises(InvalidParameter, match=why):
            save(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_table_model_comes_back_whole_and_its_header_without_loading_it(saved, table_model, monkeypatch):
    found = load(saved)
    assert [column.kind for column in found.columns_] == ["number", "category", "boolean", "date", "text"]
    np.testing.assert_array_equal(found.predict_proba(FRAME), table_model.predict_proba(FRAME))
    assert found.dropped_ == table_model.dropped_
    assert found.target_name_ == "bad"
    monkeypatch.setattr(model_file, "unpack", None)
    info = crcen.model_info(saved)
    assert (info.format, info.model, info.target) == (8, "TableClassifier", "bad")
    assert (info.positive, info.classes) == ("yes", ["no", "yes"])
    assert [(one["name"], one["kind"]) for one in info.columns][:2] == [("x", "number"), ("c", "category")]
    assert info.dropped == [{"name": "empty", "reason": "every value is missing"}]
    assert info.weighting["cost_ratio"] == pytest.approx(5)
    assert info.versions["numpy"] == np.__version__
    assert json.loads(json.dumps(info.to_dict()))["model"] == "TableClassifier"
    assert "one miss = 5 false alarms" in str(info)
    title, checksum, manifest, _ = saved.read_bytes().split(b"\n", 3)
    assert title == b"crcen model, format 8"
    assert len(checksum) == 64
    assert json.loads(manifest)["versions"]["crcen"] == crcen.__version__


def test_a_changed_or_truncated_file_is_refused(saved):
    content = saved.read_bytes()
    for at in [0, 15, 22, 60, 90, 200, len(content) // 2, len(content) - 1]:
        for changed in (content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], content[:at]):
            saved.write_bytes(changed)
            with pytest.raises((DataUnavailable, InvalidInput), match=r"altered|no model that crcen saved|has format"):
                load(saved)


def test_another_format_and_other_files_are_refused(saved):
    for number, advice in ((9, "update crcen"), (3, "fit and save the model again")):
        saved.write_bytes(b"crcen model, format %d\nwhatever comes" % number)
        for read in (load, crcen.model_info):
            with pytest.raises(DataUnavailable, match=f"has format {number}, this crcen reads format 8; {advice}"):
                read(saved)
    saved.write_bytes(pickle.dumps({}))
    for path, words in (
        (saved, "is no model that crcen saved"),
        (saved.parent, "Is a directory"),
        ("b", "is not there"),
    ):
        with pytest.raises((InvalidInput, DataUnavailable), match=words):
            load(path)


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    scorer = make_scorer(lambda y, p: 0.0)
    for model, words in (
        (CRCENClassifierCV(Budget(5), **grouped(scoring=scorer, **SMALL)).fit(X, Y), "which a model file may not"),
        (LogisticRegression(), "got LogisticRegression"),
        *((unfitted, "is not fitted yet") for unfitted in (CRCENClassifier(), TableClassifier())),
    ):
        with pytest.raises(InvalidParameter, match=words):
            save(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_model(table_model, saved, small_files):
    before = saved.read_bytes()
    with pytest.raises(DataUnavailable, match="was not written: File too large"):
        save(table_model, saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["model.crcen"]

"""Saved models: the same answers, nothing executed; invalid and forged files are refused in one sentence."""

import json
import os
import pickle
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from forging import MEMORY, bitten, forged, mixed_rows, mutated, parts, places, signed
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
from crcen.exceptions import CrcenError, DataUnavailable, InvalidInput, InvalidParameter
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
    counts = {"n_pos": 112.772897807, "n_neg": 23_456_789.0}  # the first by weight
    many = replace(info, weighting={"lam": 0.5, "alpha": 1.0, "cost_ratio": 1.0, "threshold": 0.5, **counts})
    assert "112.773 positive and 23,456,789 negative rows" in str(many)


@pytest.mark.parametrize(("weighting", "labels"), [(Budget(5), Y), (REVIEW, THREE)], ids=["binary", "multiclass"])
def test_prediction_does_not_import_torch(weighting, labels, tmp_path):
    path = save(CRCENClassifier(weighting, **SMALL).fit(X, labels), tmp_path / "m")
    code = (
        f"import sys, crcen, numpy as np; m = crcen.load({str(path)!r}); "
        "m.predict(np.zeros((2, 3))); print(len(m.predict_proba(np.zeros((2, 3)))), 'torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["2", "False"]


def test_one_row_of_a_table_needs_few_packages(saved, table_model):
    assert {column.kind for column in table_model.columns_} >= {"number", "category", "date", "text"}
    row = json.loads(FRAME.iloc[3].to_json())
    code = (
        f"import json, sys, crcen; p = crcen.load({str(saved)!r}).predict_proba(json.loads({json.dumps(row)!r})); "
        "names = {'asyncio', 'narwhals', 'numpy.f2py', 'numpy.testing', 'pandas', 'scipy.special', 'scipy.stats'}; "
        "print(p.tolist(), [*names & set(sys.modules)], sep=';'); "
        "from sklearn.utils import fixes, validation as v; import numpy as np, pandas.util, narwhals.stable.v2; "
        "assert getattr(fixes, 'pd', pandas).DataFrame is pandas.DataFrame and fixes._mode([1, 1]).mode == 1; "
        "v.check_array(pandas.DataFrame([[1]])); assert type(np.testing) is type(narwhals.stable) is type(sys)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == f"{table_model.predict_proba(row).tolist()};[]\n"


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
    np.testing.assert_array_equal(clone(found).fit(rows, Y).predict_proba(rows), model.predict_proba(rows))


def test_what_could_not_be_loaded_is_not_saved_and_unknown_parts_are_named_with_what_is_allowed(tmp_path):
    correction = PosteriorCorrection(RandomForestClassifier(2), weighting=None, price=None)
    scorer = CRCENClassifierCV(Budget(5), **grouped(scoring=make_scorer(lambda y, p: 0.0), **SMALL))
    for model, words in [
        (make_pipeline(preprocessing.PolynomialFeatures(), LogisticRegression()).fit(X, Y), "PolynomialFeatures as .*"),
        (
            make_pipeline(preprocessing.FunctionTransformer(np.cbrt), LogisticRegression()).fit(X, Y),
            "numpy.ufunc as .*",
        ),
        (correction.fit(X, Y), "RandomForestClassifier as .*"),
        (scorer.fit(X, Y), ""),
    ]:
        with pytest.raises(InvalidParameter, match=f"{words}which a model file may not{'; use ' if words else ''}"):
            save(model, tmp_path / "m")
    for model, why in [
        (make_pipeline(StandardScaler(), memory=str(tmp_path)).fit(X), "two classes"),
        (make_pipeline(StandardScaler(), LogisticRegression(), memory=str(tmp_path)).fit(X, Y), "memory"),
        (make_pipeline(LogisticRegression()).fit(X, RNG.integers(3, size=400)), "two classes"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "not fitted"),
        (LogisticRegression(), "got LogisticRegression"),
        *(
            (unfitted, "is not fitted yet")
            for unfitted in (CRCENClassifier(), TableClassifier(), PosteriorCorrection())
        ),
    ]:
        with pytest.raises(InvalidParameter, match=why):
            save(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_table_model_comes_back_whole_and_its_header_without_loading_it(saved, table_model, monkeypatch):
    found = load(saved)
    assert [column.kind for column in found.columns_] == ["number", "category", "boolean", "date", "text"]
    np.testing.assert_array_equal(found.predict_proba(FRAME), table_model.predict_proba(FRAME))
    assert (found.dropped_, found.target_name_) == (table_model.dropped_, "bad")
    monkeypatch.setattr(model_file, "unpack", None)
    info = crcen.model_info(saved)
    assert (info.format, info.model, info.target) == (9, "TableClassifier", "bad")
    assert (info.positive, info.classes) == ("yes", ["no", "yes"])
    assert [(one["name"], one["kind"]) for one in info.columns][:2] == [("x", "number"), ("c", "category")]
    assert info.dropped == [{"name": "empty", "reason": "every value is missing"}]
    assert (info.weighting["cost_ratio"], info.versions["numpy"]) == (pytest.approx(5), np.__version__)
    assert json.loads(json.dumps(info.to_dict()))["model"] == "TableClassifier"
    assert "one miss = 5 false alarms" in str(info)
    title, checksum, manifest, _ = saved.read_bytes().split(b"\n", 3)
    assert (title, len(checksum)) == (b"crcen model, format 9", 64)
    assert json.loads(manifest)["versions"]["crcen"] == crcen.__version__


def test_a_changed_or_truncated_file_is_refused(saved):
    content = saved.read_bytes()
    for at in [0, 15, 22, 60, 90, 200, len(content) // 2, len(content) - 1]:
        for changed in (content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], content[:at]):
            saved.write_bytes(changed)
            with pytest.raises((DataUnavailable, InvalidInput), match=r"altered|not a model file of crcen|has format"):
                load(saved)


def test_another_format_and_other_files_are_refused(saved):
    for number, advice in ((10, "update crcen"), (3, "fit and save the model again")):
        saved.write_bytes(b"crcen model, format %d\nwhatever comes" % number)
        for read in (load, crcen.model_info):
            with pytest.raises(DataUnavailable, match=f"has format {number}, this crcen reads format 9; {advice}"):
                read(saved)
    saved.write_bytes(pickle.dumps({}))
    for path, words in (
        (saved, "not a model file of crcen"),
        (saved.parent, "Is a directory"),
        ("b", "does not exist"),
    ):
        with pytest.raises((InvalidInput, DataUnavailable), match=words):
            load(path)


def test_a_full_disk_leaves_the_old_model(table_model, saved, small_files):
    before = saved.read_bytes()
    with pytest.raises(DataUnavailable, match="was not written: File too large"):
        save(table_model, saved)
    assert (saved.read_bytes(), os.listdir(saved.parent)) == (before, ["model.crcen"])


N = 300
ROWS = mixed_rows(RNG.normal(size=N), RNG.random(N) < 0.1, RNG)
TARGET = np.where(ROWS["x"].fillna(0) + RNG.normal(size=N) > 1, "yes", "no")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The content of an honest file."""
    network = CRCENClassifier(Budget(5), hidden=(3,), n_members=2, max_epochs=2, random_state=0)
    model = TableClassifier(estimator=network, random_state=0).fit(ROWS, pd.Series(TARGET, name="bad"))
    return save(model, tmp_path_factory.mktemp("whole") / "m").read_bytes()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """The content of an honest file with parts of scikit-learn."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = ColumnTransformer([("n", numbers, ["x"]), ("c", OneHotEncoder(drop="first"), ["c"])], sparse_threshold=1)
    model = PosteriorCorrection(make_pipeline(columns, LogisticRegression(class_weight="balanced"))).fit(ROWS, TARGET)
    return save(model, tmp_path_factory.mktemp("pipeline") / "m").read_bytes()


def read(content, tmp_path, how=load):
    (tmp_path / "m").write_bytes(content)
    return how(tmp_path / "m")


def node_of(tree, name, attribute=""):
    """An object of this type, with this attribute where one has it."""
    nodes = [one[key] for one, key in places([tree]) if isinstance(one[key], dict) and one[key].get("is") == name]
    return max(nodes, key=lambda node: attribute in node["state"])


def test_what_was_taken_apart_can_be_put_together_and_other_objects_are_no_models(whole, tmp_path):
    honest, again = (read(content, tmp_path) for content in (whole, forged(*parts(whole))))
    np.testing.assert_array_equal(again.predict_proba(ROWS), honest.predict_proba(ROWS))
    with pytest.raises(InvalidInput, match="holds a Budget, not a model"):
        read(forged(parts(whole)[0], {"is": "Budget", "state": {"value": 2.0}}, b""), tmp_path)


class Exploding:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_a_pickle_inside_does_nothing(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest, tree, _ = parts(whole)
    for body in (json.dumps(manifest).encode() + b"\n" + pickle.dumps(Exploding()), pickle.dumps(Exploding())):
        with pytest.raises(DataUnavailable, match="its payload cannot be read"):
            read(signed(body), tmp_path)
    with pytest.raises(CrcenError):
        read(forged(manifest, tree, pickle.dumps(Exploding())), tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["Popen", "system", "builtins.eval", "LabelEncoder", "PurePath", "crcen.load"])
def test_unknown_types_are_refused_by_name(whole, tmp_path, name):
    for stranger in ({"is": name, "state": {}}, {"type": name}):
        manifest, tree, data = parts(whole)
        tree["state"]["random_state"] = stranger
        with pytest.raises(InvalidInput, match=f"it holds .*{name}, which no model of crcen needs; it was altered"):
            read(forged(manifest, tree, data), tmp_path)


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("TextColumn", "ngrams", {"tuple": ["abc", "abc"]}),
        ("TextColumn", "ngrams", {"tuple": [1, 2]}),
        ("TextColumn", "encoder", {"tuple": []}),
        ("Fingerprint", "n_buckets", 10**12),
        ("DateColumn", "date_format", "%Y" * 1000),
        ("CategoryColumn", "categories", {"tuple": [1, 2]}),
        ("NumberColumn", "fill", "many"),
        ("NumberColumn", "encode", 1),
        ("TableClassifier", "columns_", []),
        ("TableClassifier", "predict", 1),
        ("TableClassifier", "__class__", {"type": "str"}),
        ("CRCENClassifier", "n_features_in_", 10**12),
        ("CRCENClassifier", "n_features_in_", 3_000_000),
        ("CRCENClassifier", "coefs_", [None]),
        ("CRCENClassifier", "random_state", {"random_state": ["MT19937", [1] * 624, 10**6, 0, 0.0]}),
        ("CRCENClassifier", "unknown_", 1),
        ("TableClassifier", "fingerprints", 1),
        ("Labels", "unknown", 1),
        ("CRCENClassifier", "classes_", {"objects": [[2], ["maybe", "perhaps"]]}),
        ("Price", "positive", 2),
        ("Pipeline", "memory", "a folder"),
        ("Pipeline", "steps", [1]),
        ("OneHotEncoder", "_n_features_outs", [10**6]),
        ("OneHotEncoder", "drop_idx_", {"objects": [[1], [7]]}),
        ("OneHotEncoder", "_infrequent_enabled", True),
        ("OneHotEncoder", "categories_", []),
        ("LogisticRegression", "coef_", 3),
        ("StandardScaler", "scale_", "x"),
        ("PosteriorCorrection", "price_", {"is": "Budget", "state": {"value": 2}}),
        ("ColumnTransformer", "transformers_", [{"tuple": ["n", {"again": 0}, {"slice": [0, "a", None]}]}]),
    ],
)
def test_states_that_no_model_has_are_refused(request, tmp_path, name, attribute, value):
    is_part = name in ("Pipeline", "OneHotEncoder", "LogisticRegression", "StandardScaler", "ColumnTransformer")
    fixture = "pipeline" if is_part or name == "PosteriorCorrection" else "whole"
    manifest, tree, data = parts(request.getfixturevalue(fixture))
    node_of(tree, name, attribute)["state"][attribute] = value
    with pytest.raises((InvalidInput, DataUnavailable), match=r"was not loaded|cannot be read"):
        read(forged(manifest, tree, data), tmp_path)


def test_every_byte_belongs_to_one_array(whole, tmp_path):
    """Offsets cannot be stated: an array takes the bytes after the previous one, and none may be left."""
    for change in (lambda one: [*one, 0], lambda one: [one[0], [1]]):
        manifest, tree, data = parts(whole)
        inside, key = next((one, key) for one, key in places(tree) if key == "array")
        inside[key] = change(inside[key])
        with pytest.raises((InvalidInput, DataUnavailable), match=r"was not loaded|cannot be read"):
            read(forged(manifest, tree, data), tmp_path)
    manifest, tree, data = parts(whole)
    with pytest.raises(InvalidInput, match="bytes that belong to no array"):
        read(forged(manifest, tree, data + b"more"), tmp_path)


@pytest.mark.parametrize(
    "keys",
    [
        [n * (2**61 - 1) for n in range(1, 200_000)],
        list(range(200_000)),
        [{"tuple": [n]} for n in range(10)],
        [{"float": "inf"}, [1]],
    ],
    ids=["equal hashes", "many integers", "tuples", "lists"],
)
def test_keys_that_could_collide_are_rejected_at_once(whole, tmp_path, keys):
    manifest, tree, data = parts(whole)
    tree["state"]["categorical"] = {"dict": [keys, [0] * len(keys)]}
    content = forged(manifest, tree, data)
    start = time.process_time()
    with pytest.raises(InvalidInput, match="keys that are not allowed"):
        read(content, tmp_path)
    assert time.process_time() - start < 2


def bombs(whole):
    """Files that say little and want much."""
    manifest, tree, data = parts(whole)
    shared = {"is": "Budget", "state": {"value": 2.0}}
    for number in range(60):  # each holds the one before it twice
        shared = [shared, {"tuple": [{"again": 0}, {"again": number % 2}]}]
    deep = b"[" * 100_000 + b"]" * 100_000
    zeros = zlib.compress(bytes(300 << 20))
    yield "array", forged(manifest, {"array": ["<f8", [40 << 20]]}, b"", {"data": 320 << 20}, packed=zeros)
    yield "said array", forged(manifest, {"array": ["<f8", [10**12]]}, data)
    yield "overflow", forged(manifest, {"array": ["<f8", [2**32, 2**32]]}, data)
    yield "negative", forged(manifest, {"array": ["<f8", [-1, -8]]}, data)
    yield "empty but wide", forged(manifest, {"array": ["<f8", [0, 10**18]]}, data)
    yield "wide letters", forged(manifest, {"array": ["<U999999999", [1]]}, data)
    yield "objects", forged(manifest, {"array": ["|O", [1]]}, data)
    yield "records", forged(manifest, {"array": ["V8", [1]]}, data)
    yield "python", forged(manifest, {"array": ["O8,i4", [1]]}, data)
    yield "many lists", forged(manifest, b"[" + b"[]," * 30_000_000 + b"[]]", b"")
    yield "many texts", forged(manifest, b"[" + b'"ab",' * 30_000_000 + b'"a"]', b"")
    yield "deep", forged(manifest, deep, b"")
    yield "deep tuples", forged(manifest, b'{"tuple":[' * 50_000 + b"]}" * 50_000, b"")
    yield "shared", forged(manifest, shared, b"")
    yield "circle", forged(manifest, {"tuple": [{"again": 0}]}, b"")
    yield "long number", forged(manifest, b"9" * 1_000_000, b"")
    yield "no number", forged(manifest, b"NaN", b"")
    yield "sizes that lie", forged(manifest, tree, data, {"tree": 10, "data": len(data)})
    yield "sizes below 0", forged(manifest, tree, data, {"data": -1})
    yield "sizes of no kind", forged(manifest, tree, data, {"data": 1.5})
    yield "size true", forged(manifest, tree, data, {"data": True})
    yield "no sizes", signed(b"{}\n{}\n")
    yield "more behind", forged(manifest, tree, data, packed=zlib.compress(json.dumps(tree).encode() + data) + b"more")
    yield "not packed", forged(manifest, tree, data, {"is_compressed": False})
    yield "half packed", forged(manifest, tree, data, packed=zlib.compress(json.dumps(tree).encode() + data)[:-40])
    yield "zip", forged(manifest, tree, data, packed=b"PK\x03\x04" + bytes(100))
    yield "manifest of nothing", forged(b"null", tree, data)
    yield "deep manifest", forged(deep, tree, data)
    yield "wide manifest", forged(manifest | {"columns": [{}] * 1000}, tree, data)
    for name in manifest:
        yield f"manifest without {name}", forged({k: v for k, v in manifest.items() if k != name}, tree, data)
        yield f"manifest with an odd {name}", forged(manifest | {name: [["\x1b[2J"]]}, tree, data)
    yield "half letters", forged(manifest | {"model": "\ud800"}, tree, data)


def test_several_hundred_forged_files_under_limits(whole, pipeline, tmp_path):
    """In another process with little memory and time: right models, or one sentence."""
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "whole.crcen").write_bytes(whole)
    manifest, tree, data = parts(whole)
    rng = np.random.default_rng(7)
    for number in range(30):
        (tmp_path / f"data {number}.crcen").write_bytes(forged(manifest, tree, bitten(data, rng)))
    for number in range(110):
        (tmp_path / f"tree {number}.crcen").write_bytes(forged(manifest, mutated(tree, rng), data))
    manifest, tree, data = parts(pipeline)
    for number in range(60):
        changed = forged(manifest, mutated(tree, rng), bitten(data, rng) if number % 2 else data)
        (tmp_path / f"pipeline {number}.crcen").write_bytes(changed)
    for number in range(12):
        (tmp_path / f"bitten {number}.crcen").write_bytes(bitten(whole, rng))
        body = whole.split(b"\n", 2)[2]
        (tmp_path / f"signed {number}.crcen").write_bytes(signed(bitten(body, rng)))
    for name, content in bombs(whole):
        (tmp_path / f"bomb {name}.crcen").write_bytes(content)
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("forging.py"), tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(list(tmp_path.glob("*.crcen"))) > 230
    assert MEMORY <= 400 << 20
    for name, loaded, about, seconds in found:
        assert loaded == "fine" or loaded.startswith("refused: "), (name, loaded)
        assert about == "fine" or about.startswith("refused: "), (name, about)
        assert seconds < 5, name
    outcomes = {name: loaded for name, loaded, _, _ in found}
    assert outcomes["whole.crcen"] == "fine"
    fine = [name for name, outcome in outcomes.items() if outcome == "fine" and "manifest" not in name]
    assert [name for name in fine if name.startswith(("bitten", "bomb"))] in ([], ["bomb half letters.crcen"])


def test_a_header_cannot_write_to_the_terminal(whole, tmp_path, crcen_command):
    manifest, tree, data = parts(whole)
    manifest["model"] = "\x1b]0;owned\x07\x9b2J\u202etxt"
    manifest["columns"][0]["name"] = "line\nbreak\x1b[31m"
    (tmp_path / "m").write_bytes(forged(manifest, tree, data))
    for options in ([], ["--json"]):
        code, out, _ = crcen_command("info", tmp_path / "m", *options)
        assert code == 0
        assert all(letter.isprintable() or letter == "\n" for letter in out)
    assert json.loads(out)["columns"][0]["name"] == "line\nbreak\x1b[31m"
    manifest["weighting"] = {}
    (tmp_path / "m").write_bytes(forged(manifest, tree, data))
    with pytest.raises(DataUnavailable, match="its manifest cannot be read"):
        crcen.model_info(tmp_path / "m")

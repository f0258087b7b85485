"""Contract of the public names: each runs for two and for three classes, with every parameter of its signature.

Values are stated by parameter, since a parameter has one meaning everywhere; `others` has the exceptions.
"""

import inspect
from contextlib import nullcontext
from operator import attrgetter

import numpy as np
import pandas as pd
import pytest
import torch
import typer

import crcen
import crcen.torch
from crcen import cli
from crcen.cli.app import option_name
from crcen.theory.selective import label_selection

N, ONLY_TWO, SMOOTHED = 240, "two classes|binary", "torch_networks/test_torch_stationarity.py::test_label_smoothing"
BY_COMMAND = "cli/test_contract_judge.py::test_every_option_of_compare_declare_certify_and_verify"
ON_RAY = "scale/test_ray_cluster.py::test_three_classes_are_fitted_by_two_workers_of_which_one_runs_out_of_memory"
# Names that another test proves for two and three classes; the first two are no functions.
PROVED = {"__version__ METHODS": "test_public_api.py::test_every_name_resolves", "fit_ray": ON_RAY}
PROVED |= {"declare certify verify": BY_COMMAND, "torch.Cause torch.Stationarity": SMOOTHED}
FOR_TWO = ["Alpha", "Budget", "CostRatio", "Lam", "Capacity", "RecallAtLeast", "PrecisionAtLeast", "Review"]
GROUPS = {"Calibration": "calibration", "Inputs": "encoding", "Schedule": "schedule", "Search": "search"}
CURVES = ["ExpenseCurve.from_predictions", "ExpenseCurve.from_estimator", "ExpenseCurve.from_cv"]
# Commands whose options the contract of commands uses: here their functions get the parameters that are no options.
COMMANDS = {"inspect_table": "look", "fit_files": "fit", "compare_models": "compare", "export_onnx": "export"}
COMMANDS |= {f"{name}_table": name for name in ["split", "fit", "predict", "evaluate", "report", "monitor", "plan"]}


@pytest.fixture(scope="module", params=[2, 3], ids=["K=2", "K=3"])
def values(request, tmp_path_factory):
    """Values of parameters for rows of K classes with known probabilities: (N,) of two classes, otherwise (N, K)."""
    k, rng, tmp = request.param, np.random.default_rng(0), tmp_path_factory.mktemp("api")
    X, classes, weights, who = rng.normal(size=(N, 3)).round(3), range(k), np.arange(1.0, k + 1), np.arange(N) // 2
    logits = np.column_stack([np.ones(N), 2 * X[:, : k - 1]])
    y, P = np.argmax(logits + rng.gumbel(size=(N, k)), axis=1), np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p, costs, matrix, counts = P[:, 1] if k == 2 else P, 1 - np.eye(k), crcen.CostMatrix(1 - np.eye(k)), np.bincount(y)
    sample_weight, selection = rng.integers(1, 3, N) * 1.0, label_selection(who < 99, P[:, 1], P[:, 1] > 0.5)
    data = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "w": sample_weight, "y": y})
    data.to_parquet(tmp / "rows.parquet")
    net = {"hidden": (), "l2": 0.1, "n_members": 1, "max_epochs": 2, "encoding": "standard", "calibration": None}
    model = crcen.CRCENClassifier(weights, **net).fit(X, y)
    search = crcen.CRCENClassifierCV(weights, cv=2, **net | {"calibration": "out_of_fold"}).fit(X, y)
    table = crcen.fit_table(data, target="y", estimator=search, out=tmp / "m.crcen").model
    module = torch.nn.Linear(3, 1 if k == 2 else k)
    by_parameter = net | dict(
        X=X, y=y, p=p, q=p, y_pred=model.predict(X), logits=np.log(p), sample_weight=sample_weight, clusters=who,
        counts=counts, n_classes=k, sampled_prior=np.full(k, 1 / k), natural_prior=counts / N, is_stratified=True,
        batches=[(torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y))], data=data, target="y",
        weighting=weights, weights=weights, price=matrix, costs=costs, labels=classes, actions=(), is_binary=False,
        value=0.8, alarms=9, per="day", share=0.6, confidence=None, low=1, high=3, goal={0: 0.1, 1: 0.1}, source=model,
        weightings=[weights, weights * np.append(np.ones(k - 1), 2)], fn=[9, 5], fp=[10, 30], level=0.9, n_resamples=9,
        pos_label=1 if k == 2 else None, device="cpu", random_state=1, verbose=0, cv=2, members=["networks"],
        effort="quick", time_limit=60, n_jobs=1, schedule=crcen.Schedule(batch_size=64), search=crcen.Search(),
        module=module, optimizer=torch.optim.SGD, estimator=model, drop=["c"], keep=["b"], categorical=["b"],
        fingerprint=False, sampling=counts / N, method="temperature", n_splits=2, balance=True, probability="shift",
        training_weighting="price", bins=4, missing="indicator", column_scales=False, standardize=True, solver="adam",
        batch_size=64, learning_rate=0.1, tol=1e-3, early_stopping=True, validation_fraction=0.3, activation="relu",
        loss="cross_entropy", scoring="neg_log_loss", n_settings=1, halving=False, widen=False, engine="local",
        memory_bytes=10**9, model=model, training_error=crcen.training_error(model, X, y, n_fits=3), n_fits=3,
        max_rows=50, y_reference=y, q_reference=p, segment_reference=who % 2, sample_weight_reference=sample_weight,
        clusters_reference=who, audit_probability_reference=np.ones(N), segments=["0", "1"], false_alarm_rate=0.1,
        tolerance=0.1, delay=1, path=tmp / "file", title="A", data_name="d", model_path="m", out_of_fold=p,
        groups={"g": who % 2}, others={"o": p}, selection=selection, is_audited=True, recall_lows=np.full(k, 0.1),
        links=[("b", "b.html")], n_refits=0, chunk_rows=99, are_new=True, out=tmp / "out", hold_out=0, old=table,
        new=table, net=net, sheet=None, skip_rows=0, separator=",", decimal=".", quote='"', query=None, table=None,
        dates="day-first", rename_duplicates=True, epochs=1, features=["a"], checkpoint=tmp / "c", checkpoint_rows=99,
        buffer_rows=99, skip_bad_files=True, n=9, n_features=2, imbalance_ratio=9, n_pos=5, n_neg=9, seed=1,
        family="tree", rows_per_file=5, data_home=tmp, name="abalone", folder=tmp, parameter="x", bias="bias",
        distributed=False, sampler=np.ones(N), ignore_index=-1, margin=0.4, hardest=2, gamma=1.0, max_margin=0.4,
        scale=2.0, tau=0.5, margins=(0.1, 0.1, 0.2), beta=0.9,
    )  # fmt: skip
    files = {"source": tmp / "rows.parquet", "sample_weight": "w"}
    trained = {"loss": crcen.torch.ClassWeightedLoss(weights), "optimizer": torch.optim.SGD(module.parameters())}
    others = {
        "ExpenseCurve.from_cv": {"model": search}, "KeyEquationMonitor": {"model": None}, "torch.stationarity": trained,
        "PosteriorCorrection": {"weighting": "auto"}, "fit_table": {"estimator": search}, "fit_stream": files,
        "write_report": {"costs": None if k == 2 else matrix}, "report_table": {"others": [table]},
        "load": {"path": tmp / "m.crcen", "module": None}, "model_info": {"path": tmp / "m.crcen"},
        "ReadOptions": {"encoding": "utf-8", "missing": "-9"}, "compare_models": {"data": data.assign(a=data["a"] + 1)},
        "make_rare_events": {"path": tmp / "made"}, "torch.LearnedCostLoss": {"costs": 1 + costs},
        "choose_weighting": {"rate": None}, "decide": {"n_pos": None, "n_neg": None, "times": None},
        "decision_summary": {"n_pos": None, "n_neg": None}, "resolve": {"n_pos": None, "n_neg": None},
    }  # fmt: skip
    others |= {name: {"model": table} | others.get(name, {}) for name in COMMANDS}
    return k, by_parameter, others


PUBLIC = [*crcen.__all__, *(f"torch.{name}" for name in crcen.torch.__all__), *CURVES]


@pytest.mark.parametrize("names", PROVED)
def test_the_test_that_proves_a_name_exists_and_gives_its_parameters(request, names):
    file, test = PROVED[names].split("::")
    text = (request.path.parent / file).read_text()
    assert f"\ndef {test}(" in text
    for function in (attrgetter(name)(crcen) for name in names.split() if name.islower()):
        for one in {*(inspect.signature(function).parameters if callable(function) else ())} - {"parameters"}:
            assert any(word in text for word in (one, one.upper(), option_name(one))), one


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in " ".join([*PROVED, "ExpenseCurve"]).split()])
def test_a_public_name_takes_every_parameter_for_two_and_three_classes(values, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    k, by_parameter, others = values
    function, own = attrgetter(name)(crcen), by_parameter | others.get(name, {})
    params = typer.main.get_command(cli.app).commands[COMMANDS[name]].params if name in COMMANDS else []
    options = {"--read", *(one for param in params for one in param.opts)} if params else set()
    given = {
        one.name: own[one.name]
        for one in inspect.signature(function).parameters.values()
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and (one.default is one.empty or not {option_name(one.name), f"--no-{one.name}"} & options)
    }
    X, y, days = own["X"], own["y"], pd.date_range("2024-01-01", periods=N)
    error = pytest.raises(crcen.CrcenError, match=ONLY_TWO) if k > 2 else nullcontext()
    made = function(**given)
    if name in FOR_TWO:  # as are the parameters below
        calls = [lambda: crcen.decide(own["p"], made, n_pos=9, n_neg=90, times=days if name == "Capacity" else None)]
        if "value" in given:
            calls += [lambda: crcen.decision_summary(own["p"], made, n_pos=9, n_neg=90)]
            crcen.resolve(made, n_pos=9, n_neg=90)
        if "share" in given:
            calls += [lambda: crcen.choose_weighting(own["model"], made, X, y, rate=9)]
        for call in calls:
            with error:
                call()
    elif name in GROUPS:
        kind = crcen.CRCENClassifierCV if name == "Search" else crcen.CRCENClassifier
        kind(own["weighting"], **own["net"] | {GROUPS[name]: made}).fit(X, y)
    elif isinstance(made, torch.nn.Module):
        rows, target = own["batches"][0]
        made(*{"NaturalLogits": [rows], "QuintupletLoss": [rows, target, target]}.get(name[6:], [rows[:, :k], target]))
    elif hasattr(made, "fit"):
        rows = own["data"][["a", "b", "c"]] if name == "TableClassifier" else X
        assert made.fit(rows, y).predict_proba(rows).shape == (N, k)

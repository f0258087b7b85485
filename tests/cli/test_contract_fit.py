"""look, split, fit and export: the same JSON keys for two and three classes with every option; audited labels."""

import json

import numpy as np
import pandas as pd
import pytest
import typer

import crcen
from crcen import cli

LABELS = {2: ["no", "yes"], 3: ["fine", "worn", "broken"]}
READ = {"--separator": ",", "--encoding": "utf-8", "--decimal": ".", "--quote": '"', "--missing": "b=-200"}
READ |= {"--dates": "day-first", "--skip-rows": 0, "--rename-duplicates": None}
NOT_FOR_TEXT = {"--query": "select 1", "--table": "t", "--sheet": "1", "--missing": "nothing=1"}
PRICES = {"--budget": 5, "--cost-ratio": 5, "--alpha": 2, "--lam": 0.8}
PRICES |= {"--capacity": 30, "--recall": 0.7, "--precision": 0.3}
FOR_ALL = {"--target", "--json"}


def table(n_classes, n=300):
    rng = np.random.default_rng(0)
    kind = np.concatenate([np.arange(n_classes).repeat(20), rng.choice(n_classes, n - 20 * n_classes)])
    kind = np.where(rng.random(n) < 0.5, 0, kind)
    columns = {"id": np.arange(n) + 7000, "a": (kind + rng.normal(size=n)).round(3), "b": rng.integers(0, 4, n)}
    columns |= {"w": rng.integers(1, 4, n), "e": rng.choice([0.5, 1.0], n), "who": rng.integers(0, 90, n)}
    columns["day"] = pd.date_range("2024-01-01", periods=n).strftime("%d/%m/%Y")
    return pd.DataFrame({**columns, "y": np.array(LABELS[n_classes])[kind]})


@pytest.fixture(scope="module", params=[2, 3])
def home(request, tmp_path_factory):
    """Rows of K classes as rows.csv, costs.csv, and K."""
    folder, labels = tmp_path_factory.mktemp("contract"), LABELS[request.param]
    table(request.param).to_csv(folder / "rows.csv", index=False)
    costs = pd.DataFrame(5.0 * (1 - np.eye(len(labels))), index=labels, columns=labels)
    costs.assign(look=0.5).to_csv(folder / "costs.csv")
    return folder, request.param


@pytest.fixture
def call(crcen_command, home):
    """Run a command on the rows → exit code, the JSON or the error."""

    def run(command, options):
        words = [word for name, value in options.items() for word in ([name] if value is None else [name, value])]
        first = [] if command == "export" else [home[0] / "rows.csv"]
        code, out, err = crcen_command(command, *first, *words, "--json")
        return code, json.loads(out) if code == 0 else " ".join(err.replace("│", " ").split())

    return run


def options_of(command):
    """Every option of a command."""
    params = typer.main.get_command(cli.app).commands[command].params
    return {one.opts[0] for one in params if one.param_type_name == "option" and one.name != "help"}


KEYS = {
    "look": "clusters columns data duplicates identifiers labels leaks notes placeholders rows sentinels shares "
    "suspects target",
    "split": "duplicates how notes stratified target test train",
    "fit": "classes columns columns_read columns_used data dropped duplicates goal identifiers key_equation "
    "leaderboard leaks learner n_encoded network networks notes onnx out_of_fold path price report rows seconds "
    "selection target training_error validation",
    "export": "checked_rows inputs largest_difference path",
    "fit --engine stream": "classes columns data dropped engine held_out key_equation leaderboard loss_curve n_encoded "
    "network notes path price rows seconds target",
}


@pytest.fixture
def same_keys(call):
    """Run a command, which must succeed with its keys → its values."""

    def run(command, options, name=None):
        code, found = call(command, options)
        assert code == 0, found
        assert sorted(found) == KEYS[name or command].split(), command
        return found

    return run


def rejected(call, command, base, options, said):
    for name, value in options.items():
        code, err = call(command, base | {name: value})
        assert code in (1, 2), name
        assert said.get(name, name) in err


def test_look(call, same_keys, home):
    base = {"--target": "y"}
    single = {"--positive": None, "--drop": "b", "--keep": "id", "--categorical": "b", "--audited": "e"}
    single["--clusters"] = "who"
    for options in ({}, base, *(base | {name: value} for name, value in single.items() if value), base | READ):
        found = same_keys("look", options)["clusters"]
        assert (found is None) == ("--clusters" not in options)
    rows = table(home[1])
    expected = [(rows.groupby("who")["y"].nunique() > 1).sum(), rows["who"].nunique(), rows["who"].value_counts().max()]
    found = same_keys("look", base | {"--clusters": "who"})["clusters"]
    assert [found[name] for name in ("mixed", "number", "largest", "missing")] == [*expected, 0]
    rejected(call, "look", base, NOT_FOR_TEXT | {"--positive": "nothing"}, {})
    rejected(call, "look", {}, {"--audited": "e"}, {})
    rejected(call, "look", {"--drop": "b"}, {"--keep": "b", "--categorical": "b"}, {})
    assert options_of("look") == {*single, *READ, *NOT_FOR_TEXT, *FOR_ALL}


def test_split(call, same_keys, home, tmp_path):
    base = {"--target": "y"}
    single = {"--test": 0.4, "--clusters": "who", "--time": "day", "--seed": 3}
    for number, options in enumerate([{}, *({name: value} for name, value in single.items()), READ]):
        (tmp_path / str(number)).mkdir()
        found = same_keys("split", base | options | {"--folder": tmp_path / str(number)})
        assert set(found["test"]["labels"]) == set(LABELS[home[1]])
    rejected(call, "split", base, NOT_FOR_TEXT | {"--test": 2}, {})
    rejected(call, "split", base | {"--time": "day"}, {"--seed": 3}, {"--seed": "--seed must be left out with --time"})
    assert options_of("split") == {*single, *READ, *NOT_FOR_TEXT, "--folder", *FOR_ALL}


def test_fit_and_export(call, same_keys, home, tmp_path):
    folder, n_classes = home
    labels = LABELS[n_classes]
    base = {"--target": "y", "--quick": None, "--out": tmp_path / "m.crcen"}
    places = {"--onnx": tmp_path / "m.onnx", "--report": tmp_path / "r.html"}
    together = places | {"--drop": "day", "--keep": "id", "--categorical": "b", "--weight": "w", "--seed": 3}
    weights = ",".join(f"{label}={k + 1}" for k, label in enumerate(labels))
    calls = [{}, together | {"--no-fingerprint": None}, {"--positive": labels[-1]}, {"--clusters": "who"}]
    calls += [{"--time": "day"}, {"--audited": "e"}, {"--balanced": None}, {"--weighting": weights}]
    calls += [{"--costs": folder / "costs.csv"}, READ]
    for options in calls:
        found = same_keys("fit", base | options)
        for name in {"--clusters", "--time"} & set(options):
            assert options[name] in found["validation"]["how"]
        if "--keep" in options:
            assert ("id" in found["columns_used"], "day" in found["columns_used"]) == (True, False)
            assert {one["name"]: one["kind"] for one in found["columns"]}["b"] == "category"
        if "--positive" in options:
            assert found["price"]["positive"] == labels[-1]
        (tmp_path / "m.crcen").replace(tmp_path / "old.crcen")
    same_keys("fit", base | {"--selected-by": tmp_path / "old.crcen"})
    same_keys("export", {str(tmp_path / "m.crcen"): None, "--onnx": tmp_path / "other.onnx"})
    for name, value in PRICES.items():  # of several classes no price of two
        if n_classes == 2:
            price = same_keys("fit", base | {name: value})["price"]
            assert set(price) >= {"lam", "alpha", "cost_ratio", "budget", "threshold", "positive"}
            assert price.get(name.removeprefix("--").replace("-", "_"), value) == pytest.approx(value)
        else:
            said = f"{name} {value} is for two classes, and y has 3 ("
            rejected(call, "fit", base, {name: value}, {name: said})
    alone = {name: value for name, value in base.items() if name != "--quick"}
    learner = {"--learner": "trees", "--effort": "best", "--time-limit": 2}
    same_keys("fit", alone | learner)
    stream = {"--engine": "stream", "--epochs": 1, "--hold-out": "40%"}
    for options in ({"--storage": tmp_path}, {"--clusters": "who", "--memory": "9GB"}, {"--learner": "networks"}):
        same_keys("fit", alone | {"--drop": "day"} | stream | options, "fit --engine stream")
    large = {"--workers": 2, "--epochs": 2, "--storage": "s", "--hold-out": "5%", "--memory": "1GB"}
    rejected(call, "fit", base, NOT_FOR_TEXT | large | {"--details": None, "--learner": "trees"}, {})
    in_memory = {"--time": "day", "--weight": "w", "--audited": "e", **places, "--learner": "trees"}
    rejected(call, "fit", alone | stream, in_memory, {})
    used = {*base, *together, *PRICES, *READ, *NOT_FOR_TEXT, *learner, *stream, *in_memory, *FOR_ALL, *large}
    used |= {name for options in calls for name in options} | {"--selected-by", "--details"}
    assert (options_of("fit"), options_of("export")) == (used, {"--onnx", "--json"})


def audited(n_classes=2, n=2000, seed=0):
    """Rows of which a part has labels: all with a high score, others with probability 0.2."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    kind = (rng.random(n) < 1 / (1 + np.exp(2.0 - 1.2 * a))).astype(int)
    kind += (n_classes == 3) * (kind == 1) * (b > 0.5)
    e = np.where(a > 1.0, 1.0, 0.2)
    y = np.array(LABELS[n_classes])[kind]
    truth = pd.DataFrame({"a": a.round(4), "b": b.round(4), "e": e, "y": y})
    return truth, truth.assign(y=truth["y"].where(rng.random(n) < e))


@pytest.fixture
def arguments(tmp_path):
    """The arguments of a fit, whose rows are written."""

    def written(frame, *options):
        frame.to_csv(tmp_path / "rows.csv", index=False)
        return ("fit", tmp_path / "rows.csv", "--target", "y", "--quick", "--out", tmp_path / "m.crcen", *options)

    return written


@pytest.fixture
def fit(answer, arguments):
    return lambda frame, *options: answer(*arguments(frame, *options))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_count_one_over_their_probability(fit, answer, tmp_path, n_classes):
    truth, rows = audited(n_classes)
    found = fit(rows, "--audited", "e")
    known = rows[rows["y"].notna()]
    weights = (1 / known["e"]).groupby(known["y"]).sum()
    assert found["rows"]["by_class"] == pytest.approx([weights[label] for label in found["classes"]])
    selection = found["selection"]
    assert (selection["n_unlabelled"], selection["largest_weight"]) == (rows["y"].isna().sum(), None)
    assert "e" not in found["columns_used"]
    assert f"{rows['y'].isna().sum():,} rows without a value of y are unlabelled" in " ".join(found["notes"])
    # Unlabelled rows are not negative: without them the model is the same.
    new, probabilities = truth[:50], crcen.load(tmp_path / "m.crcen").predict_proba(truth[:50])
    fit(known, "--audited", "e")
    np.testing.assert_array_equal(crcen.load(tmp_path / "m.crcen").predict_proba(new), probabilities)
    # The mean probability of all rows is near the true share, and far from that of the labelled rows.
    shares = truth["y"].value_counts(normalize=True)
    rarest = found["classes"].index("yes" if n_classes == 2 else "broken")
    mean = crcen.load(tmp_path / "m.crcen").predict_proba(truth)[:, rarest].mean()
    label = found["classes"][rarest]
    among_labelled = known["y"].value_counts(normalize=True)[label]
    assert abs(mean - shares[label]) < 0.5 * (among_labelled - shares[label])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    look = answer("look", tmp_path / "rows.csv", "--target", "y", "--audited", "e")
    assert look["rows"] == len(known)
    assert look["shares"][label]["low"] < shares[label] < look["shares"][label]["high"]


@pytest.mark.parametrize(("cell", "got"), [(0, "0"), (1.5, "1.5"), (None, "a missing cell"), ("often", "'often'")])
def test_impossible_probabilities_are_rejected_with_their_row(refusal, arguments, tmp_path, cell, got):
    _, rows = audited(n=200)
    rows = rows.astype({"e": object})
    at = int(np.flatnonzero(rows["y"].notna())[3])
    rows.loc[at, "e"] = cell
    rows.loc[int(np.flatnonzero(rows["y"].isna())[0]), "e"] = None  # of no matter without a label
    err = refusal(*arguments(rows, "--audited", "e"))
    assert err.startswith("crcen: --audited must be above 0 and at most 1 in rows with a label: e has ")
    assert got.strip("'") in err
    assert f"in row {at + 1}." in err
    assert f"in row {at + 1}." in refusal("look", tmp_path / "rows.csv", "--target", "y", "--audited", "e")


def test_weights_are_cut_if_few_rows_would_carry_all(fit):
    _, rows = audited()
    e = rows["e"].copy()
    e[np.flatnonzero(rows["y"].notna())[:3]] = 1e-4
    found = fit(rows.assign(e=e), "--audited", "e")
    selection = found["selection"]
    assert selection["largest_weight"] < 1e4
    assert selection["effective_rows"] == pytest.approx(0.5 * selection["n_labelled"], rel=1e-6)
    assert "weights of 1 / e were limited to" in found["notes"][0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_of_alarms_only_are_pointed_out(fit, refusal, arguments, tmp_path, n_classes):
    truth, _ = audited(n_classes)
    fit(truth)
    (tmp_path / "m.crcen").rename(tmp_path / "old.crcen")
    old = crcen.load(tmp_path / "old.crcen")
    alarms = old.predict(truth) != {2: "no", 3: "fine"}[n_classes]
    found = fit(truth.assign(y=truth["y"].where(alarms)), "--selected-by", tmp_path / "old.crcen")
    assert (found["selection"]["alarm_share"], found["selection"]["quiet_share"]) == (1.0, 0.0)
    assert "nothing can be learned about rows without an alarm" in " ".join(found["notes"])
    every = np.random.default_rng(0).random(len(truth)) < 0.5
    found = fit(truth.assign(y=truth["y"].where(alarms | every)), "--selected-by", tmp_path / "old.crcen")
    assert "nothing can be learned" not in " ".join(found["notes"])
    assert found["selection"]["quiet_share"] == pytest.approx(every[~alarms].mean())
    err = refusal(*arguments(truth, "--audited", "e", "--selected-by", tmp_path / "old.crcen"))
    assert "leave out --selected-by" in err

"""`crcen fit --engine stream` on a target of several values: weights and costs by label, and every command after it."""

import json

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

import crcen  # noqa: E402
from crcen.theory.key_equation import key_equation  # noqa: E402


def machines(n, seed):
    """Mixed columns, and three states of which two are rare."""
    rng = np.random.default_rng(seed)
    age, oil, kind = rng.gamma(2.0, 3.0, n), rng.normal(size=n), rng.choice(["A", "B", "C"], n)
    logits = np.column_stack([np.full(n, 2.5), 0.2 * age + (kind == "B") - 1.0, 2.0 * oil - 1.5])
    state = np.array(["Fine", "worn", "broken"])[(logits + rng.gumbel(size=(n, 3))).argmax(axis=1)]
    return pd.DataFrame({"age": age.round(2), "oil": pd.Series(oil).mask(rng.random(n) < 0.05), "kind": kind}).assign(
        state=state
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    (folder / "train").mkdir()
    for i in range(2):
        machines(900, i).to_csv(folder / "train" / f"{i}.csv", index=False)
    machines(900, 9).to_csv(folder / "new.csv", index=False)
    (folder / "costs.csv").write_text(";fine;worn;broken;inspect\nfine;;1;1;0,5\nworn;5;;2;1\nbroken;40;10;;3\n")
    return folder


def test_weights_by_label_and_every_command_after_it(crcen_command, fit_command, files, tmp_path):
    options = ("--epochs", "2", "--hold-out", "0", "--weighting", "fine=1,WORN=5,broken=40")
    (printed, model), scored = fit_command(files / "train", "state", *options), tmp_path / "scored.csv"
    assert "3 classes of state: Fine" in printed
    assert "costs its weight: Fine 1, broken 40, worn 5" in printed
    assert "Key equations on all rows of the stream: residual" in printed
    loaded = crcen.load(model)
    frame = pd.concat([pd.read_csv(files / "train" / f"{i}.csv") for i in range(2)])
    assert loaded.weighting_.counts.tolist() == frame["state"].value_counts()[loaded.classes_].tolist()
    numbers = np.searchsorted(loaded.classes_, frame["state"])
    p = loaded.predict_proba(frame.drop(columns="state")) * [1.0, 40.0, 5.0]
    residual = key_equation(numbers, p / p.sum(axis=1, keepdims=True), loaded.weighting_).residual
    assert residual <= 1e-6  # streamed rows are encoded in single precision
    code, printed, said = crcen_command("evaluate", model, files / "new.csv", "--json")
    assert code == 0, said
    assert json.loads(printed)["key_equation"]["verdict"] in ("holds", "does not hold")
    assert crcen_command("predict", model, files / "new.csv", "--out", scored)[0] == 0
    assert set(pd.read_csv(scored)["decision"]) <= {"Fine", "worn", "broken"}


def test_costs_from_a_file_have_further_actions(crcen_command, fit_command, files, tmp_path):
    options = ("--epochs", "1", "--hold-out", "0", "--costs", files / "costs.csv", "--json")
    (printed, model), scored = fit_command(files / "train", "state", *options), tmp_path / "scored.csv"
    found = json.loads(printed)
    assert found["classes"] == ["Fine", "broken", "worn"]
    assert found["price"]["costs"] is not None
    assert sum(found["rows"]["by_class"]) == 1800
    assert crcen_command("predict", model, files / "new.csv", "--out", scored)[0] == 0
    assert "inspect" in set(pd.read_csv(scored)["decision"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "5"], "is for two classes, and state has 3"),
        (["--weighting", "fine=1,worn=5"], "every value of state needs a weight: broken has none"),
        (["--weighting", "fine=1,worn=5,broke=3"], "got 'broke'"),
    ],
)
def test_options_that_do_not_fit_three_classes_are_rejected(fit_command, files, options, words):
    assert words in fit_command(files / "train", "state", *options, fails=True)

"""fit_table of a target with several values: what is understood, what decides, what is refused."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CostMatrix, CRCENClassifierCV, InvalidInput, InvalidParameter

SEARCH = CRCENClassifierCV(hidden=(), l2=1e-2, max_epochs=3, encoding="standard", n_members=1)


def table(n=240, seed=0):
    rng = np.random.default_rng(seed)
    kind = np.concatenate([np.arange(3).repeat(3), rng.choice(3, n - 9, p=[0.7, 0.2, 0.1])])
    return pd.DataFrame(
        {
            "hours": (kind + rng.normal(size=n)).round(3),
            "site": rng.choice(["Oslo", "Rome"], n),
            "state": np.array(["fine", "worn out", "brøken"])[kind],
        }
    )


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    home = tmp_path_factory.mktemp("classes")
    frame = table().astype(object)
    frame.loc[5, "state"] = None
    frame.to_csv(home / "train.csv", index=False)
    return crcen.fit_table(home / "train.csv", target="state", estimator=SEARCH, out=home / "model.crcen")


def test_says_what_was_understood(fit):
    assert fit.model.classes_.tolist() == ["brøken", "fine", "worn out"]
    counts = table().drop(5)["state"].value_counts()
    assert f"3 classes of state: fine {counts['fine']}, worn out {counts['worn out']}, brøken" in fit.details()
    assert "1 rows without a value of target were left out" in str(fit)
    assert fit.n_rows == fit.n_validated == 239


def test_figures_are_those_of_rows_held_out(fit):
    p = fit.model.estimator_.oof_proba_
    assert fit.quality.counts.table.sum() == 239
    weights = fit.model.weighting_.weights
    chosen = (p * weights).argmax(axis=1)
    assert fit.quality.counts.table[:, 1].sum() == (chosen == 1).sum()
    np.testing.assert_array_equal(chosen, fit.model.estimator_.oof_decision_function_.argmax(axis=1))
    assert fit.to_dict()["out_of_fold"]["cost_per_row"]["value"] == pytest.approx(fit.quality.cost.value)


def test_the_saved_model_decides_as_it_said(fit):
    frame = table(60, seed=1)
    np.testing.assert_array_equal(crcen.load(fit.path).predict(frame), fit.model.predict(frame))


def test_costs_with_an_action_decide_and_are_kept_in_the_file(tmp_path):
    (tmp_path / "costs.csv").write_text(
        ";fine;worn out;brøken;look\nfine;;1;1;0,2\nworn out;5;;1;0,2\nbrøken;40;9;;0,2\n"
    )
    fit = crcen.fit_table(
        table(),
        target="state",
        costs=tmp_path / "costs.csv",
        estimator=SEARCH,
        out=tmp_path / "model.crcen",
        report=tmp_path / "report.html",
    )
    assert "All figures are out of fold" in fit.report.read_text(encoding="utf-8")
    costs = crcen.load(fit.path).costs_
    np.testing.assert_array_equal(costs.costs[0], [0, 40, 9, 0.2])
    assert costs.actions == ("look",)
    assert fit.quality.counts.table.shape == (3, 4)
    p = fit.model.estimator_.oof_proba_
    np.testing.assert_allclose(-fit.model.estimator_.oof_decision_function_, p @ costs.costs)
    assert "look" in str(fit)


def test_weights_by_name_are_the_same_as_their_costs():
    weights = {"FINE": 1, "worn out": 5, "brøken": 40}
    stated = crcen.fit_table(table(), target="state", weighting=weights, estimator=SEARCH)
    np.testing.assert_array_equal(stated.model.weighting_.weights, [40, 1, 5])
    costs = CostMatrix([[0, 40, 40], [1, 0, 1], [5, 5, 0]], labels=["brøken", "fine", "worn out"])
    by_costs = crcen.fit_table(table(), target="state", costs=costs, estimator=SEARCH)
    np.testing.assert_array_equal(by_costs.quality.counts.table, stated.quality.counts.table)
    assert by_costs.quality.cost.value == pytest.approx(stated.quality.cost.value)


def test_two_classes_with_costs_have_a_price_of_two():
    frame = table().assign(state=lambda one: one["state"].ne("fine").map({True: "bad", False: "ok"}))
    fit = crcen.fit_table(
        frame, target="state", costs=CostMatrix([[1, 9], [3, 1]], labels=["bad", "ok"]), estimator=SEARCH
    )
    assert fit.model.weighting_.cost_ratio == pytest.approx(4.0)
    assert fit.model.pos_label_ == "bad"


def test_one_value_against_the_rest_is_still_two_classes():
    fit = crcen.fit_table(table(), target="state", positive="brøken", estimator=SEARCH)
    assert fit.model.classes_.tolist() == ["brøken", "not brøken"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"weighting": crcen.Budget(20)}, "Budget(20.0) is for two classes, and state has 3: state costs="),
        ({"weighting": crcen.Capacity(20)}, "Capacity(20) is for two classes, and state has 3"),
        ({"weighting": {"fine": 1, "worn out": 2}}, "every value of state needs a weight: brøken has none"),
        ({"weighting": {"fine": 1, "worn": 2}}, "weights must be for values of state"),
        ({"weighting": {"fine": 0, "worn out": 2, "brøken": 3}}, "the weight of fine must be a number above 0"),
        ({"weighting": crcen.Budget(20), "costs": CostMatrix(1 - np.eye(3))}, "costs and Budget(20.0) both say"),
        ({"costs": CostMatrix(np.ones((3, 3)))}, "costs must differ between decisions"),
    ],
)
def test_what_is_for_two_classes_is_refused(change, sentence):
    with pytest.raises(InvalidParameter) as error:
        crcen.fit_table(table(), target="state", estimator=SEARCH, **change)
    assert sentence in str(error.value)


@pytest.mark.filterwarnings("ignore:1 classes have too few rows")
def test_a_class_of_one_row_is_learnt_and_pointed_out():
    frame = table().assign(state=lambda one: one["state"].mask(one.index == 100, "lost"))
    fit = crcen.fit_table(frame, target="state", estimator=SEARCH)
    assert fit.validation == "4 stratified folds"
    assert fit.quality.counts.table.sum() == 240
    assert any("fewer than 10 rows of lost (1)" in note for note in fit.notes)
    assert any("one row of lost counts as much as" in note for note in fit.notes)
    plain = crcen.fit_table(frame, target="state", weighting="none", estimator=SEARCH)
    assert not any("counts as much as" in note for note in plain.notes)


def test_targets_that_are_no_classes():
    frame = table().assign(price=np.linspace(0, 1, 240).round(3))
    with pytest.raises(InvalidInput, match=r"at most 50 different values: got 240 .*numbers into bands"):
        crcen.fit_table(frame, target="price", estimator=SEARCH)
    frame = table().assign(state=lambda one: one["state"].mask(one.index % 7 == 0, one["state"].str.upper()))
    with pytest.raises(InvalidInput, match="differ in capital letters alone"):
        crcen.fit_table(frame, target="state", estimator=SEARCH)

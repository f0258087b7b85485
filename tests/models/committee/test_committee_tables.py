"""Committees from a file to decisions: `fit --learner`, evidence out of fold, and what page and JSON say of members."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from typer.testing import CliRunner

import crcen
from crcen.cli.app import app
from crcen.commands.fit import unfitted_learner
from example_rows import interaction_rows


def table(n=900, seed=0):
    X, y = interaction_rows(n, seed)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(side=np.where(X[:, 3] > 0, "left", "right"))
    frame.loc[::4, "b"] = np.nan
    return frame.assign(bad=np.where(y == 1, "yes", "no"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "train.csv"
    table().to_csv(path, index=False)
    return path


def test_fit_says_what_each_member_brings_and_other_commands_take_the_model(file, tmp_path):
    place = tmp_path / "m.crcen"
    fit = crcen.fit_table(file, target="bad", weighting=crcen.Budget(8), learner="committee", n_splits=3, out=place)
    values, names = json.loads(json.dumps(fit.to_dict())), ("networks", "trees", "catboost", "forest")
    assert [one["name"] for one in values["leaderboard"]] == [*names, "committee"]
    assert values["learner"] == "committee"
    assert values["leaderboard"][-1]["weight"] is None
    # Out of fold: what the last line says is what the rows say.
    model, y = fit.model, table()["bad"] == "yes"
    natural = model.estimator_.oof_decision_function_ - np.log(8) - model.estimator_.oof_shift_
    p = 1 / (1 + np.exp(-natural))
    assert values["leaderboard"][-1]["roc_auc"] == pytest.approx(roc_auc_score(y, p))
    assert values["leaderboard"][-1]["log_loss"] == pytest.approx(log_loss(y, p))
    assert values["out_of_fold"]["roc_auc"] == pytest.approx(roc_auc_score(y, p))
    weights = model.estimator_.member_weights_
    shown = ", ".join(f"{name} {weight:.3g}" for name, weight in zip(names, weights, strict=True))
    assert shown in fit.details()
    new = tmp_path / "new.csv"
    table(400, seed=5).to_csv(new, index=False)
    assert crcen.evaluate_table(place, new).to_dict()["rows"]
    crcen.report_table(place, new, out=tmp_path / "r.html")
    assert f"weight {weights[1]:.3g}, log loss" in (tmp_path / "r.html").read_text()
    assert crcen.export_onnx(place, tmp_path / "m.onnx").largest_difference <= 1e-9


def test_the_command_takes_a_learner_a_time_and_an_effort_and_quick_is_one_network(file, tmp_path):
    how = ["fit", str(file), "--target", "bad", "--out", str(tmp_path / "m.crcen"), "--json"]

    def said(*options):
        done = CliRunner().invoke(app, [*how, *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    trees = said("--learner", "trees", "--time-limit", "0.01")
    assert (trees["learner"], trees["network"]) == ("trees", None)
    assert trees["training_error"] is None  # refits would take longer than the limit
    quick, same = said("--quick"), said("--effort", "quick")
    assert (quick["learner"], quick["network"]) == ("networks", same["network"])
    assert quick["out_of_fold"] == same["out_of_fold"]
    trees, huge = ["--learner", "trees"], ["--effort", "huge"]
    for wrong in (["--effort", "quick", *trees], ["--engine", "stream", *trees], ["--quick", "--effort", "best"], huge):
        assert CliRunner().invoke(app, [*how, *wrong]).exit_code != 0
    assert CliRunner().invoke(app, [*how, "--effort", "best", "--learner", "networks"]).exit_code != 0


def test_learners_by_name_time_and_effort():
    assert unfitted_learner(None, None, 5.0, 100, "quick").time_limit == 5.0
    assert unfitted_learner(None, None, None, 100, "best").effort == "best"
    assert unfitted_learner(None, None, None, 100).members is None
    assert unfitted_learner("committee", None, 5.0, 100).time_limit == 5.0
    assert tuple(unfitted_learner("trees", None, None, 100).members) == ("trees",)
    assert isinstance(unfitted_learner("networks", None, None, 100), crcen.CRCENClassifierCV)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"learner": "woods"}, "learner must be one of committee, networks, trees, forest: got 'woods'"),
        ({"learner": "networks", "time_limit": 5}, "time_limit must go with the learner trees or committee"),
        ({"learner": "trees", "time_limit": 0}, "time_limit must be a number of seconds above 0"),
        ({"learner": "trees", "estimator": crcen.CommitteeClassifier()}, "learner must be left out"),
        ({"estimator": crcen.CRCENClassifier()}, "estimator must be a CRCENClassifierCV or a CommitteeClassifier"),
    ],
)
def test_what_means_nothing_is_refused(file, how, sentence):
    with pytest.raises(crcen.InvalidParameter, match=sentence):
        crcen.fit_table(file, target="bad", **how)


def test_onnx_of_other_members_is_refused_before_the_fit(file, tmp_path, monkeypatch):
    monkeypatch.setattr(crcen.CommitteeClassifier, "fit", lambda *rows, **how: pytest.fail("it was fitted"))
    mixed = crcen.CommitteeClassifier(members=("trees", LogisticRegression()))
    with pytest.raises(crcen.InvalidInput, match="a committee with a LogisticRegression has no ONNX form"):
        crcen.fit_table(file, target="bad", estimator=mixed, onnx=tmp_path / "m.onnx")


def test_held_out_rows_of_a_committee_are_evidence(with_gaps):
    _, y = interaction_rows()
    curve = crcen.ExpenseCurve.from_cv(with_gaps, y, [crcen.Budget(4), crcen.Budget(8), crcen.Budget(16)])
    alarms = with_gaps.oof_decision_function_ > 0
    assert (curve.counts.tp[1], curve.counts.fp[1]) == ((alarms & (y == 1)).sum(), (alarms & (y == 0)).sum())
    assert crcen.choose_weighting(with_gaps, crcen.RecallAtLeast(0.5), y=y).weighting.value > 0

    with pytest.raises(crcen.InvalidParameter, match="or CommitteeClassifier, got a CRCENClassifier"):
        crcen.ExpenseCurve.from_cv(crcen.CRCENClassifier(), y)


def test_a_committee_out_of_time_still_answers(rows):
    committee = crcen.CommitteeClassifier(crcen.Budget(8), cv=3, time_limit=1e-6, random_state=0).fit(*rows)
    settings = [one.settings for one in committee.leaderboard_[:-1]]
    assert [len(one) for one in settings] == [1]  # one setting of one member is needed
    assert np.isfinite(committee.decision_function(rows[0])).all()


def test_best_effort_averages_several_seeds(rows):
    standard, best = (
        crcen.CommitteeClassifier(
            crcen.Budget(8), members=("trees", "forest"), effort=effort, cv=2, random_state=0
        ).fit(*rows)
        for effort in ("standard", "best")
    )
    assert len(best.ensemble_.members) >= 2 * len(standard.ensemble_.members)
    assert np.isfinite(best.oof_decision_function_).all()
    folds = list(StratifiedKFold(2).split(*rows))  # given folds are kept, with other seeds
    crcen.CommitteeClassifier(members=("forest",), effort="best", cv=folds, random_state=0).fit(*rows)

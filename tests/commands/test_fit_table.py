"""fit_table: what is validated how, what is said about it, and what is refused."""

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, log_loss, recall_score, roc_auc_score

import crcen
from crcen import Budget, CostMatrix, CRCENClassifierCV, InvalidInput, fit_table, inspect_table, predict_table
from crcen.commands.fit import alarm_shares, folds_of
from crcen.tables.columns import results_of_predict
from crcen.theory.price import sigmoid


def test_out_of_fold_figures_are_those_of_scikit_learn(fitted, mixed_table):
    search, y = fitted.model.estimator_, (mixed_table()["bad"] == "yes").to_numpy()
    p = sigmoid(search.oof_decision_function_ - np.log(5))
    alarms = p > 1 / 6
    expected = {
        "recall": recall_score(y, alarms),
        "f1": f1_score(y, alarms),
        "g_mean": crcen.g_mean(y, alarms),
        "average_precision": average_precision_score(y, p),
        "roc_auc": roc_auc_score(y, p),
        "log_loss": log_loss(y, p),
        "false_alarms_per_catch": (alarms & ~y).sum() / (alarms & y).sum(),
    }
    assert {name: fitted.positive.metrics[name].value for name in expected} == pytest.approx(expected)
    assert fitted.positive.average_price == pytest.approx((1 - p[alarms]).sum() / p[alarms].sum())
    assert fitted.n_validated == len(y)
    found, false = int((alarms & y).sum()), int((alarms & ~y).sum())
    assert f"found {found} of {y.sum()}, {false} false alarms" in str(fitted)
    named = {"positives": int(y.sum()), "found": found, "missed": int(y.sum()) - found, "alarms": found + false}
    named |= {"false_alarms": false, "rightly_left_alone": int((~alarms & ~y).sum())}
    assert fitted.to_dict()["out_of_fold"]["counts"] == named


def test_it_says_what_a_person_asks(fitted):
    text, plain = str(fitted), json.loads(json.dumps(fitted.to_dict(), allow_nan=False))
    assert text.startswith("the data frame, 600 rows held out of training: found ")
    for part in ("(bad = yes)", "Cost per 1,000 rows", "one miss = 5 false alarms"):
        assert part in text
    assert len(text.splitlines()) <= 6
    names = ("recall", "precision", "F1", "G-mean", "average precision", "log loss", "key equation")
    for part in ("id", "row number", "nothing", "every value is missing", *names):
        assert part in fitted.details()
    price = plain["price"]
    expected = {"lam": 5 / 6, "alpha": 5 / price["negatives_per_positive"], "cost_ratio": 5, "budget": 5}
    expected |= {"threshold": 1 / 6}
    assert ({name: price[name] for name in expected}, price["positive"]) == (pytest.approx(expected), "yes")
    assert [one["name"] for one in plain["columns"]] == ["amount", "country", "is_new", "when"]
    assert len(price["expense"]) == 2
    assert plain["columns_read"] == ["id", "amount", "country", "is_new", "when", "nothing", "bad"]
    assert plain["columns_used"] == ["amount", "country", "is_new", "when"]


def test_a_file_and_a_frame_give_the_same_model(fitted, mixed_table, small_search, tmp_path):
    mixed_table().to_csv(tmp_path / "a.csv", index=False)
    out = tmp_path / "model.crcen"
    other = fit_table(tmp_path / "a.csv", target="bad", weighting=Budget(5), estimator=small_search, out=out)
    new = mixed_table(50, seed=3)
    np.testing.assert_array_equal(other.model.predict_proba(new), fitted.model.predict_proba(new))
    np.testing.assert_array_equal(crcen.load(out).predict_proba(new), fitted.model.predict_proba(new))
    assert other.path == out


def test_clusters_stay_together_and_are_no_input(mixed_table, small_search):
    frame = mixed_table(300).assign(customer=np.arange(300) // 6)
    fit = fit_table(frame, target="bad", clusters="customer", estimator=small_search)
    assert "keep customer together" in fit.validation
    assert "customer" not in [column.name for column in fit.model.columns_]
    splitter, y = fit.model.estimator_.cv, frame["bad"]
    for train, test in splitter.split(frame, y, frame["customer"]):
        assert not set(frame["customer"].iloc[train]) & set(frame["customer"].iloc[test])
    np.testing.assert_array_equal(np.isfinite(fit.model.estimator_.oof_decision_function_), True)


def test_results_of_an_earlier_prediction_are_no_inputs(fitted, mixed_table, small_search, tmp_path):
    plain, path = mixed_table(), tmp_path / "scored.csv"
    how = {"all_columns": True, "reasons": 2, "audit": 0.5}
    scored = predict_table(fitted.model, plain, out=path, **how).frame
    scored = pd.read_csv(path) if scored is None else scored
    results = {"probability", "decision", "audit", "audit_probability", "reason_1", "reason_2"}
    again = fit_table(path, target="bad", estimator=small_search)
    assert results == {one.name for one in again.model.dropped_ if one.reason == "result of crcen predict"}
    assert "left out as results of crcen predict: probability, decision" in str(again)
    assert len(predict_table(again.model, plain.drop(columns="bad")).frame) == len(plain)
    used = fit_table(path, target="bad", estimator=small_search, keep=["probability"]).model
    assert "probability" in [one.name for one in used.columns_]
    for kept in (["decision"], ["probability"], ["audit", "audit_probability"]):  # another column of such a name
        own = fit_table(plain.assign(**{name: scored[name] for name in kept}), target="bad", estimator=small_search)
        assert not [one.name for one in own.model.dropped_ if one.name in kept]
    several = ["decision", "probability_fine", "probability_worn out", "reasons_for", "reason_1"]
    assert [*results_of_predict(["x", *several], ())] == several
    assert not results_of_predict(["decision", "probability_of_default"], ())


@pytest.mark.parametrize("kind", ["text", "date", "number"])
def test_time_validates_on_later_rows(mixed_table, small_search, kind):
    frame = mixed_table(300)
    if kind != "text":
        frame["when"] = pd.to_datetime(frame["when"])
    if kind == "number":
        frame["when"] = frame["when"].dt.day_of_year
    fit = fit_table(frame, target="bad", time="when", estimator=small_search)
    held_out = np.isfinite(fit.model.estimator_.oof_decision_function_)
    assert fit.n_validated == held_out.sum() < 300
    assert frame["when"][~held_out].max() < frame["when"][held_out].min()
    assert "when" not in [column.name for column in fit.model.columns_]


@pytest.mark.parametrize(
    ("labels", "positive", "found"),
    [
        (["0", "1"], None, 1),
        (["0.0", "1.0"], "1", 1),
        ([False, True], None, True),
        ([False, True], "false", False),
        (["no", "yes"], "NO", "no"),
        ([1, 2], 2, 2),
    ],
)
def test_labels_of_every_kind(mixed_table, small_search, labels, positive, found):
    frame = mixed_table(200)
    frame["bad"] = np.array(labels)[(frame["bad"] == "yes").astype(int)]
    model = fit_table(frame, target="bad", positive=positive, estimator=small_search).model
    assert model.pos_label_ == found
    assert type(model.pos_label_.item() if hasattr(model.pos_label_, "item") else model.pos_label_) is type(found)


@pytest.mark.parametrize("spelt", [lambda i: i, lambda i: f"case-{i:05d}"])
def test_an_identifier_that_gives_the_answer_away_is_not_used(small_search, spelt):
    """Bad cases were entered last, so their numbers are the highest; the other column is noise."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"case": [spelt(i) for i in range(400)], "noise": rng.normal(size=400)})
    frame["bad"] = np.arange(400) >= 320
    frame = frame.sample(frac=1, random_state=0)
    fit = fit_table(frame, target="bad", estimator=small_search)
    assert [column.name for column in fit.model.columns_] == ["noise"]
    assert fit.positive.metrics["roc_auc"].value < 0.65
    assert fit_table(frame, target="bad", keep=["case"], estimator=small_search).model.columns_[0].name == "case"


def test_one_in_five_thousand():
    rng = np.random.default_rng(0)
    x = rng.normal(size=10_000)
    y = np.zeros(10_000, dtype=int)
    y[np.argsort(-x)[[0, 3]]] = 1
    frame = pd.DataFrame({"x": x, "noise": rng.normal(size=10_000), "y": y})
    fit = fit_table(frame, target="y", estimator=CRCENClassifierCV(hidden=(), l2=1e-2))
    assert fit.validation == "2 stratified folds"
    assert any("fewer than 10 rows of 1 (2)" in note for note in fit.notes)
    assert fit.positive.metrics["roc_auc"].value > 0.9


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (lambda f: f.head(3).assign(bad=["yes", "no", "no"]), {}, "at least 2 rows of each value"),
        (lambda f: f.assign(bad="no"), {}, "must have two different values: got one, no"),
        (lambda f: f.assign(bad=np.arange(len(f)) % 60), {}, "at most 50 different values: got 60 (0, 1, 2, 3"),
        (lambda f: f.assign(bad=f["bad"].mask(f.index % 7 == 0, "YES")), {}, "has YES, yes, which differ only"),
        (lambda f: f.assign(bad=None), {}, "no row with a value of bad"),
        (lambda f: f.set_axis([*f.columns[:-2], "id", "bad"], axis=1), {}, "duplicate column name in the data frame"),
        (lambda f: f.to_numpy(), {}, "must be a data frame or the location of a table"),
        (lambda f: f[["bad"]], {}, "the table has no column to learn from beside the target"),
        (lambda f: f.rename(columns={"bad": 1}), {"target": 1}, "got 1; did you mean '1'?"),
        (lambda f: f.assign(w=-1.5), {"weight": "w"}, "w holds -1.5 in 60 rows"),
        (lambda f: f, {"n_splits": 1}, "n_splits"),
        (lambda f: f, {"estimator": crcen.CRCENClassifier()}, "must be a CRCENClassifierCV"),
        (lambda f: "not there either.csv", {"out": "no/m.crcen"}, "create it first"),  # before any work
    ],
)
def test_what_cannot_be_fitted_gets_one_sentence(mixed_table, small_search, change, options, sentence):
    with pytest.raises(crcen.CrcenError) as caught:
        fit_table(change(mixed_table(60)), **{"target": "bad", "estimator": small_search, **options})
    assert sentence in str(caught.value)


class TestAlarmsOfTheSavedModel:
    """A model may alarm otherwise than the networks of the folds, which the figures are of."""

    def test_shares_are_those_of_its_own_decisions(self, fitted, mixed_table):
        alarms = fitted.model.predict(mixed_table()) == "yes"
        held_out = fitted.model.estimator_.oof_decision_function_ > 0
        found = json.loads(json.dumps(fitted.to_dict()))["price"]["alarm_shares"]
        assert found == {
            "folds": pytest.approx(held_out.mean()),
            "saved_model": pytest.approx(alarms.mean()),
            "training": pytest.approx(alarms.mean()),
            "differ": False,
        }
        assert f"{1000 * alarms.mean():,.4g} by the saved model" in fitted.details()

    def test_a_difference_beyond_noise_is_said_also_where_the_saved_model_scores_a_part(self):
        seen, scored = np.arange(4000) >= 1000, np.arange(0, 4000, 4)
        by_folds, alarms = np.arange(3000) % 3 == 0, np.zeros(4000, dtype=bool)
        alarms[seen] = by_folds
        positive = np.arange(4000) % 10 == 0
        shares, notes = alarm_shares(by_folds, alarms[scored], positive, seen, scored)
        assert (shares["folds"], shares["differ"], notes) == (pytest.approx(1000 / 3000), False, [])
        assert shares["saved_model"] == pytest.approx(alarms[scored][scored >= 1000].mean())
        notes = alarm_shares(by_folds, np.zeros(1000, dtype=bool), positive, seen, scored)[1]
        assert "the saved model raises 0 alarms per 1,000 on its training rows" in notes[0]
        assert "the models of the folds 333.3 on held-out rows" in notes[0]
        # Nor where the saved model has learnt the labels by heart: it then alarms on the positives.
        assert not alarm_shares(by_folds, positive[scored], positive, seen, scored)[1]
        for n, n_more in ((60, 9), (100_000, 300)):  # neither few rows nor a small share
            by_folds, by_model = (np.arange(n) < 0.1 * n + more for more in (0, n_more))
            assert not alarm_shares(by_folds, by_model, np.zeros(n, dtype=bool), np.ones(n, dtype=bool))[1]

    def test_a_random_part_of_many_rows_is_named(self, mixed_table, monkeypatch, small_search):
        monkeypatch.setattr("crcen.tables.profile._MOST_SCORED", 100)
        found = fit_table(mixed_table(), target="bad", weighting=Budget(5), estimator=small_search)
        held_out = found.model.estimator_.oof_decision_function_ > 0
        assert found.to_dict()["price"]["alarm_shares"]["folds"] == pytest.approx(held_out.mean())
        assert "by the saved model on a random part of the same rows" in found.details()

    def test_a_drift_over_time_does_not_move_the_model(self, small_search):
        rng = np.random.default_rng(1)
        day = np.sort(rng.integers(0, 400, 3000))
        x = rng.normal(size=3000)
        season = np.select([day < 120, day < 180], [0.0, 0.8], -0.7)
        bad = rng.random(3000) < sigmoid(-2.2 + 0.3 * x + season)
        frame = pd.DataFrame({"x": x, "day": day, "bad": bad})
        fit = fit_table(frame, target="bad", time="day", weighting=Budget(5), estimator=small_search)
        assert fit.model.estimator_.oof_shift_ == 0.0
        assert "log-odds not shifted" in fit.details()
        assert fit.model.predict_proba(frame)[:, 1].sum() == pytest.approx(bad.sum(), rel=0.1)


class TestPlainWords:
    def test_nothing_caught_is_said_without_nan(self, mixed_table, small_search):
        fit = fit_table(mixed_table(200), target="bad", weighting=Budget(1e-6), estimator=small_search)
        text = f"{fit}{fit.details()}"
        assert "no alarm: found 0 of" in text
        assert not [part for part in ("nan", "FN") if part in text.replace("finance", "")]

    def test_classes_without_an_error_between_them_are_a_note(self, fitted, mixed_table, small_search):
        frame = mixed_table(400)
        frame["amount"] = np.where(frame["bad"] == "yes", 5.0, -5.0) + np.random.default_rng(0).normal(size=400) / 9
        longer = small_search.__class__(**{**small_search.get_params(deep=False), "max_epochs": 30})
        fit = fit_table(frame, target="bad", estimator=longer)
        assert any("separated almost perfectly" in note for note in fit.notes)
        assert not any("of no use" in note for note in fit.notes)
        assert not any("separated" in note for note in fitted.notes)

    def test_columns_that_tell_nothing_are_a_note(self, mixed_table, small_search):
        frame = mixed_table(400)
        frame["bad"] = np.random.default_rng(5).permutation(frame["bad"])
        fit = fit_table(frame, target="bad", estimator=small_search, n_refits=0)
        share = (frame["bad"] == "yes").mean()
        turned = frame.assign(bad=frame["bad"].map({"yes": "no", "no": "yes"}))
        alone = log_loss(frame["bad"], np.full(400, share), labels=["no", "yes"])
        assert fit.positive.metrics["log_loss"].value >= alone
        assert f"and {alone:.4g} by the class shares alone" in " ".join(fit.notes)
        assert "of no use" in " ".join(crcen.evaluate_table(fit.model, turned).notes)


def test_a_text_as_target_is_refused_without_an_array_of_its_longest_cell():
    """20,000 rows and a cell of 20,000 characters: as an array of fixed width that is 1.6 GB."""
    rows = pd.DataFrame({"x": np.arange(20_000.0), "note": [f"call {i}" for i in range(20_000)]})
    rows.loc[3, "note"] = "x" * 20_000
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="must have at most 50 different values: got 20,000") as refused:
        crcen.fit_table(rows, target="note")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert len(str(refused.value)) < 1000


SEARCH = CRCENClassifierCV(hidden=(), l2=1e-2, max_epochs=3, encoding="standard", n_members=1)


def states(n=240, seed=0):
    """Rows of three classes."""
    rng = np.random.default_rng(seed)
    kind = np.concatenate([np.arange(3).repeat(3), rng.choice(3, n - 9, p=[0.7, 0.2, 0.1])])
    names, hours = np.array(["fine", "worn out", "brøken"]), (kind + rng.normal(size=n)).round(3)
    return pd.DataFrame({"hours": hours, "site": rng.choice(["Oslo", "Rome"], n), "state": names[kind]})


class TestSeveralClasses:
    def test_figures_are_those_of_rows_held_out(self, tmp_path):
        frame = states().astype(object)
        frame.loc[5, "state"] = None
        frame.to_csv(tmp_path / "train.csv", index=False)
        fit = fit_table(tmp_path / "train.csv", target="state", estimator=SEARCH, out=tmp_path / "model.crcen")
        assert fit.model.classes_.tolist() == ["brøken", "fine", "worn out"]
        counts = frame["state"].value_counts()
        assert f"3 classes of state: fine ({counts['fine']}), worn out ({counts['worn out']}), brøken" in fit.details()
        assert "1 row without a value of state was left out" in str(fit)
        assert fit.n_rows == fit.n_validated == fit.quality.counts.table.sum() == 239
        chosen = (fit.model.estimator_.oof_proba_ * fit.model.weighting_.weights).argmax(axis=1)
        np.testing.assert_array_equal(fit.quality.counts.table.sum(axis=0), np.bincount(chosen, minlength=3))
        np.testing.assert_array_equal(chosen, fit.model.estimator_.oof_decision_function_.argmax(axis=1))
        assert fit.to_dict()["out_of_fold"]["cost_per_row"]["value"] == pytest.approx(fit.quality.cost.value)
        new = states(60, seed=1)
        np.testing.assert_array_equal(crcen.load(fit.path).predict(new), fit.model.predict(new))

    def test_costs_with_an_action_decide_and_are_kept_in_the_file(self, tmp_path):
        (tmp_path / "costs.csv").write_text(
            ";fine;worn out;brøken;look\nfine;;1;1;0,2\nworn out;5;;1;0,2\nbrøken;40;9;;0,2\n"
        )
        files = {"out": tmp_path / "model.crcen", "report": tmp_path / "report.html"}
        fit = fit_table(states(), target="state", costs=tmp_path / "costs.csv", estimator=SEARCH, **files)
        assert "All metrics are out of fold" in fit.report.read_text(encoding="utf-8")
        costs = crcen.load(fit.path).costs_
        np.testing.assert_array_equal(costs.costs[0], [0, 40, 9, 0.2])
        assert costs.actions == ("look",)
        assert fit.quality.counts.table.shape == (3, 4)
        expected = fit.model.estimator_.oof_proba_ @ costs.costs
        np.testing.assert_allclose(-fit.model.estimator_.oof_decision_function_, expected)
        assert "look" in str(fit)
        # A further action is an alarm, right where the row is not of the default class.
        found = crcen.predict_table(fit.path, states(60, seed=1))
        decided, p = found.frame["decision"], fit.model.predict_proba(states(60, seed=1))
        of = {"brøken": p[:, 0], "fine": 0.0 * p[:, 1], "worn out": p[:, 2], "look": 1.0 - p[:, 1]}
        values = found.to_dict()
        assert {"look", "fine"} <= {*decided}
        assert values["alarms"] == (decided != "fine").sum() == 60 - values["decided"]["fine"]
        assert values["expected_catches"] == pytest.approx(sum(of[name][i] for i, name in enumerate(decided)))
        audited = crcen.predict_table(fit.path, states(60, seed=1), audit=5, default_action="look").to_dict()
        assert audited["alarms"] == (decided != "look").sum() == 60 - audited["audit"]["quiet_rows"]

    def test_weights_by_name_are_the_same_as_their_costs(self):
        weights = {"FINE": 1, "worn out": 5, "brøken": 40}
        stated = fit_table(states(), target="state", weighting=weights, estimator=SEARCH)
        np.testing.assert_array_equal(stated.model.weighting_.weights, [40, 1, 5])
        costs = CostMatrix([[0, 40, 40], [1, 0, 1], [5, 5, 0]], labels=["brøken", "fine", "worn out"])
        by_costs = fit_table(states(), target="state", costs=costs, estimator=SEARCH)
        np.testing.assert_array_equal(by_costs.quality.counts.table, stated.quality.counts.table)
        assert by_costs.quality.cost.value == pytest.approx(stated.quality.cost.value)

    def test_two_classes_with_costs_have_a_price_of_two(self):
        frame = states().assign(state=lambda one: one["state"].ne("fine").map({True: "bad", False: "ok"}))
        costs = CostMatrix([[1, 9], [3, 1]], labels=["bad", "ok"])
        model = fit_table(frame, target="state", costs=costs, estimator=SEARCH).model
        assert (model.weighting_.cost_ratio, model.pos_label_) == (pytest.approx(4.0), "bad")

    @pytest.mark.parametrize("costs", [[[9, 0], [0, 9]], [[0, 1], [0, 20]]])  # gains, and one gain among costs
    def test_gains_of_two_classes_are_refused(self, costs):
        frame = states().assign(state=lambda one: one["state"].ne("fine").map({True: "bad", False: "ok"}))
        with pytest.raises(crcen.InvalidParameter, match=r"lowest for right decisions: got .* where it is true"):
            fit_table(frame, target="state", costs=CostMatrix(costs), estimator=SEARCH)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"weighting": Budget(20)}, "Budget(20.0) is for two classes, and state has 3 ("),
            ({"weighting": crcen.Capacity(20)}, "Capacity(20) is for two classes, and state has 3"),
            ({"weighting": {"fine": 1, "worn out": 2}}, "every value of state needs a weight: brøken has none"),
            ({"weighting": {"fine": 1, "worn": 2}}, "weights must be for values of state"),
            ({"weighting": {"fine": 0, "worn out": 2, "brøken": 3}}, "the weight of fine must be a number above 0"),
            ({"weighting": Budget(20), "costs": CostMatrix(1 - np.eye(3))}, "costs= and Budget(20.0) both state"),
            ({"costs": CostMatrix(np.ones((3, 3)))}, "costs must differ between decisions"),
            ({"costs": CostMatrix(9 * np.eye(3))}, "costs must be lowest for right decisions: got 9 for deciding"),
        ],
    )
    def test_what_is_for_two_classes_is_refused(self, change, sentence):
        with pytest.raises(crcen.InvalidParameter) as error:
            fit_table(states(), target="state", estimator=SEARCH, **change)
        assert sentence in str(error.value)

    @pytest.mark.filterwarnings("ignore:too few rows for training")
    def test_a_class_of_one_row_is_learnt_and_pointed_out(self):
        frame = states().assign(state=lambda one: one["state"].mask(one.index == 100, "lost"))
        fit = fit_table(frame, target="state", estimator=SEARCH)
        assert (fit.validation, fit.quality.counts.table.sum()) == ("4 stratified folds", 240)
        assert any("fewer than 10 rows of lost (1)" in note for note in fit.notes)
        assert any("one row of lost counts as much as" in note for note in fit.notes)


@pytest.mark.parametrize(
    ("events", "n_folds"), [([3, 3, 3, 3, 3], 4), ([4, 4, 4], 2), ([1, 1, 9, 1, 1], 1), ([5, 5], 1), ([4], 0)]
)
def test_there_are_as_many_folds_over_time_as_the_years_allow(events, n_folds):
    """Ten rows a year, so many of each positive; one moment cannot be cut."""
    cells = [(2000 + year, int(i < n)) for year, n in enumerate(events) for i in range(10)]
    frame = pd.DataFrame(cells, columns=["year", "y"])
    year, y = frame["year"].to_numpy(dtype=float), frame["y"]
    splitter, how = folds_of(y, year, None, "year", 4, 0)
    if not n_folds:
        with pytest.raises(InvalidInput, match="time cannot be split"):
            list(splitter.split(None, y, year))
        return
    found = list(splitter.split(None, y, year))
    assert len(found) == n_folds
    assert how.startswith(f"{n_folds} fold")
    for train, test in found:
        assert year[train].max() < year[test].min()
        assert y[train].any()
        assert y[test].any()


N = 240


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    kind = np.where(x + rng.normal(size=N) > 1, 3, rng.integers(1, 3, N))
    return pd.DataFrame({"x": x, "Region": rng.integers(0, 9, N), "Kind": kind})


def fit(frame, **options):
    return fit_table(frame, **{"target": "Kind", "estimator": SEARCH, "n_splits": 2, **options})


@pytest.mark.parametrize("positive", [3, "3"])
def test_one_value_against_the_rest(tmp_path, one_thread, positive):
    frame = rows()
    found = fit(frame, positive=positive, out=tmp_path / "m.crcen")
    assert "Kind has 3 values: 3 is the positive class, all others are the negative one (1, 2)" in found.notes
    assert found.model.weighting_.n_pos == (frame["Kind"] == 3).sum()

    twin = fit(frame.assign(Kind=np.where(frame["Kind"] == 3, "yes", "no")), positive="yes")
    model, new = crcen.load(tmp_path / "m.crcen"), rows(1)
    scored = predict_table(model, new).frame
    np.testing.assert_array_equal(scored["probability"], predict_table(twin.model, new).frame["probability"])
    assert set(scored["decision"]) == {"3", "not 3"}

    new.loc[:20, "Kind"] = 7  # a value that training did not have is one of the rest
    judged = crcen.evaluate_table(model, new, n_resamples=0)
    assert (judged.n_pos, judged.n_rows) == ((new["Kind"] == 3).sum(), N)
    assert crcen.report_table(model, new, out=tmp_path / "r.html").n_rows == N


def test_a_quick_fit_trains_long_enough_on_few_rows(one_thread):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 4)), columns=list("abcd"))
    fit = crcen.fit_table(X.assign(y=X["a"] + X["b"] > 1.5), target="y", weighting=Budget(10), effort="quick")
    assert fit.quality.log_loss < 0.4 * fit.quality.base_log_loss
    assert not any("epochs" in note for note in fit.notes)  # a schedule cannot be chosen here


def test_without_a_positive_value_classes_are_those_of_the_target(one_thread):
    found, frame = fit(rows()), rows()
    assert (found.model.classes_.tolist(), found.model.classes_.dtype.kind) == ([1, 2, 3], "i")
    assert set(predict_table(found.model, rows(1)).frame["decision"]) <= {1, 2, 3}
    with pytest.raises(crcen.InvalidParameter, match="positive must be a value of Kind, 1, 2, 3: got 9"):
        fit(frame, positive=9)
    found = fit(frame.assign(Kind=(frame["Kind"] == 3).astype(int)), positive=1)
    assert found.model.classes_.tolist() == [0, 1]
    with pytest.raises(InvalidInput, match=r"labels of training, 0, 1: got [23], [23]; write them as in training, or"):
        crcen.evaluate_table(found.model, frame)
    truth = frame.assign(Kind=frame["Kind"] == 3)  # 0 and 1 are also written False and True
    assert crcen.evaluate_table(found.model, truth, n_resamples=0).n_pos == truth["Kind"].sum()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": "KIND"}, "did you mean Kind?"),
        ({"target": "kidn"}, "did you mean Kind?"),
        ({"clusters": "REGION"}, "did you mean Region?"),
        ({"drop": ["region"]}, "did you mean Region?"),
        ({"keep": ["REGION"]}, "did you mean Region?"),
        ({"categorical": ["regoin"]}, "did you mean Region?"),
        ({"target": "zzz"}, "it has x, Region, Kind"),
        ({"clusters": "Kind"}, "must be another column than the target: got 'Kind'"),
        ({"time": "Kind"}, "must be another column than the target: got 'Kind'"),
    ],
)
def test_names_that_are_nearly_right_or_used_twice(options, sentence):
    with pytest.raises((InvalidInput, crcen.InvalidParameter)) as caught:
        fit(rows(), positive=3, **options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, np.array([1.0])])
def test_a_target_of_lists_or_records(tmp_path, cell):
    frame = rows().astype({"Kind": object})
    frame["Kind"] = [cell] * N
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (frame, tmp_path / "a.parquet"):
        with pytest.raises(InvalidInput, match="the target Kind must hold single values: it holds lists or records"):
            fit(source)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx", "frame"])
def test_cells_of_spaces_are_missing_and_no_class(tmp_path, ending):
    frame = pd.DataFrame({"x": range(60), "when": [f"2024-01-{i % 28 + 1:02}" for i in range(60)]})
    frame = frame.assign(kind=pd.Categorical(["  ", "a", "b"] * 20), y=["yes", "no", "no"] * 20)
    frame.loc[::4, ["when", "y"]] = ["\t", " "]
    source = frame if ending == "frame" else tmp_path / f"a{ending}"
    if ending != "frame":
        getattr(frame, {".csv": "to_csv", ".parquet": "to_parquet", ".xlsx": "to_excel"}[ending])(source, index=False)
    look = inspect_table(source, target="y")
    assert look.counts == {"yes": 15, "no": 30}
    when, kind = look.columns[1:]
    assert (when.kind, when.n_missing) == ("date", 0)  # the rows that lack it lack a label too
    assert (kind.n_missing, kind.n_values) == (15, 2)
    assert all(example.strip() for column in look.columns for example in column.examples)


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        ([2**53, 2**53 + 1, 2**53 + 1, 2**53 + 1], {2**53: 10, 2**53 + 1: 30}),  # no float has the second one
        (["01", "1", "2", "2.0"], {1: 20, 2: 20}),
    ],
)
def test_labels_as_files_spell_them(tmp_path, labels, counts):
    frame = pd.DataFrame({"x": range(40), "y": labels * 10})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for source in (frame, tmp_path / "a.csv"):
        look = inspect_table(source, target="y")
        assert look.counts == counts
        assert any("y has 01 and 1, treated as one value" in one for one in look.notes) == ("01" in labels)


def test_a_class_called_none_is_not_lost_without_a_word(tmp_path):
    rows = ["x;y"] + [f"{i};{['None', 'stop', 'land', ''][i % 4]}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    notes = inspect_table(tmp_path / "a.csv", target="y").notes
    assert '"None" stands in 10 cells of y and is read as missing: write another word if it is a class' in notes


@pytest.mark.parametrize("command", ["split", "fit"])
def test_a_target_with_one_class_and_missing_cells_says_so(tmp_path, crcen_command, command):
    rows = pd.DataFrame({"x": np.arange(60) % 7, "bad": ["", "NA", "ok"] * 20})
    rows.to_csv(tmp_path / "a.csv", index=False)
    assert "in 40 other rows it is missing" in crcen_command(command, tmp_path / "a.csv", "--target", "bad")[2]

"""Settings, the rule of selection, thresholds, and the limit of time."""

import signal
import time

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import crcen
from bench.rivals.budget import Deadline, TimeUp
from bench.rivals.evaluation import best_threshold
from bench.rivals.peer import Peer
from bench.rivals.peers import PEERS
from bench.rivals.search import cross_validated, log_odds, selection_loss
from bench.rivals.searched import SearchRows
from bench.rivals.spaces import Pick, Range, candidates


@pytest.fixture
def rows(rare_rows):
    X, y = rare_rows(n=200)
    folds = StratifiedKFold(4, shuffle=True, random_state=0).split(X, y)
    return SearchRows(X, y, list(folds), seed=0)


def peer(make, settings=("a", "b", "c", "d"), **fields):
    default, space = {"which": settings[0]}, {"which": Pick(settings)} if len(settings) > 1 else {}
    return Peer("toy", "toy", "linear", "scikit-learn", make, cross_validated, default, space, **fields)


def test_candidates_start_with_the_default_and_fewer_are_the_first_of_more():
    space = {"rate": Range(0.01, 1.0, log=True), "leaves": Range(2, 9, integer=True), "kind": Pick("ab")}
    many = candidates({"rate": 0.3, "leaves": 31}, space, 16)
    assert many[0] == {"rate": 0.3, "leaves": 31}
    assert candidates({"rate": 0.3, "leaves": 31}, space, 5) == many[:5]
    assert len(many) == 16
    for setting in many[1:]:
        assert 0.01 <= setting["rate"] <= 1.0
        assert setting["leaves"] in range(2, 10)
        assert setting["kind"] in "ab"
    assert {setting["kind"] for setting in many[1:]} == {"a", "b"}
    # Each quarter of a range is visited, by ratio where the range is one of ratios.
    places = np.log([setting["rate"] for setting in many[1:]]) / np.log(0.01)
    assert set((places * 4).astype(int)) == {0, 1, 2, 3}


def test_no_space_is_the_default_alone():
    assert candidates({"a": 1}, {}, 16) == [{"a": 1}]


def test_selection_loss_is_the_log_loss_at_its_best_shift(rare_rows):
    X, y = rare_rows(n=300)
    p = LogisticRegression(class_weight="balanced").fit(X, y).predict_proba(X)[:, 1]
    scores = np.log(p / (1 - p))
    best = minimize_scalar(lambda shift: log_loss(y, expit(scores + shift)))
    assert selection_loss(y, p) == pytest.approx(best.fun, abs=1e-9)
    assert selection_loss(y, p) < log_loss(y, p)
    assert selection_loss(y, expit(scores - 2)) == pytest.approx(selection_loss(y, p), abs=1e-6)


def test_selection_loss_bears_zeros_and_refuses_nan():
    y = np.array([0, 0, 1, 1])
    assert np.isfinite(selection_loss(y, np.array([0.0, 0.0, 0.0, 1.0])))
    assert selection_loss(y, np.array([0.0, 0.5, np.nan, 1.0])) == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_by_trying_all(seed):
    rng = np.random.default_rng(seed)
    y = np.append(rng.random(60) < 0.2, [True, False]).astype(int)
    p = np.round(np.clip(0.3 * y + 0.6 * rng.random(len(y)), 0, 1), 1)  # many ties
    for metric, score in (("f1", lambda called: f1_score(y, called, zero_division=0)),
                          ("g_mean", lambda called: crcen.g_mean(y, called))):  # fmt: skip
        called = log_odds(p, 1e-15) > best_threshold(y, p, metric)
        assert score(called) == pytest.approx(max(score(p >= value) for value in np.unique(p)))


def test_a_threshold_lies_between_neighbours():
    y, p = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.6, 0.9])
    for metric in ("f1", "g_mean"):
        assert log_odds(np.array([0.2]))[0] < best_threshold(y, p, metric) < log_odds(np.array([0.6]))[0]
    assert best_threshold(np.array([1, 0]), np.array([0.5, 0.5]), "f1") == -np.inf


class Recorder(LogisticRegression):
    """Remembers the rows it was fitted on and refuses to judge them."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        self.rows_ = {row.tobytes() for row in X}
        Recorder.seen.append((len(X), sample_weight))
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X):
        assert not self.rows_ & {row.tobytes() for row in X}
        return super().predict_proba(X)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_every_row_is_judged_by_a_model_that_did_not_see_it(rows, is_weighted):
    Recorder.seen = []
    found = cross_validated(peer(lambda setting, seed: Recorder(), is_weighted=is_weighted), rows, 3, Deadline(60))
    assert found.n_settings == 3
    assert found.oof.shape == rows.y.shape
    assert np.isfinite(found.oof).all()
    assert [n for n, _ in Recorder.seen] == [150] * 12 + [200]
    for n, weights in Recorder.seen:
        assert (weights is not None) == is_weighted
        if is_weighted:
            assert weights.sum() == pytest.approx(n)
    if is_weighted:  # both classes weigh the same
        weights = Recorder.seen[-1][1]
        assert weights[rows.y == 1].sum() == pytest.approx(weights[rows.y == 0].sum())


def test_weights_reach_the_model_inside_a_pipeline(rows):
    def make(setting, seed):
        return Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())])

    found = cross_validated(peer(make, is_weighted=True), rows, 1, Deadline(60))
    weights = np.where(rows.y == 1, 100 / rows.y.sum(), 100 / (rows.y == 0).sum())
    by_hand = make({}, 0).fit(rows.X, rows.y, model__sample_weight=weights)
    assert found.model["model"].coef_ == pytest.approx(by_hand["model"].coef_, rel=1e-3)


def test_the_best_setting_wins(rows):
    made = {"bad": 1e-7, "good": 1.0, "worse": 1e-8}
    found = cross_validated(
        peer(lambda setting, seed: LogisticRegression(C=made[setting["which"]]), tuple(made)), rows, 8, Deadline(60)
    )
    assert found.setting == {"which": "good"}
    assert found.model.C == 1.0


def work(seconds):
    """Keep the processor busy."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


class Worker(LogisticRegression):
    def fit(self, X, y):
        work(0.75 if self.C > 1 else 0)
        return super().fit(X, y)


def test_a_search_that_runs_out_of_time_keeps_the_best_so_far(rows):
    chosen = peer(lambda setting, seed: Worker(C=1.0 if setting["which"] == "a" else 9.0), ("a", "b"))
    start = time.process_time()
    found = cross_validated(chosen, rows, 16, Deadline(1.5))
    assert time.process_time() - start < 4
    assert 1 <= found.n_settings < 16
    assert found.setting == {"which": "a"}


def test_no_setting_in_time_is_time_up(rows):
    with pytest.raises(TimeUp):
        cross_validated(peer(lambda setting, seed: Worker(C=9.0)), rows, 4, Deadline(0.3))


class Refusing(LogisticRegression):
    def fit(self, X, y):
        if self.C > 1:
            raise ValueError("worse than random")
        return super().fit(X, y)


def test_a_setting_that_fails_is_passed_over(rows):
    made = peer(lambda setting, seed: Refusing(C=1.0 if setting["which"] == "c" else 2.0), ("a", "b", "c"))
    assert cross_validated(made, rows, 8, Deadline(60)).setting == {"which": "c"}
    with pytest.raises(ValueError, match="worse than random"):
        cross_validated(peer(lambda setting, seed: Refusing(C=2.0)), rows, 4, Deadline(60))


def work_and_say_interrupted():
    """What CatBoost makes of an exception that a signal raises."""
    try:
        work(30)
    except BaseException as error:
        raise KeyboardInterrupt from error


def test_a_block_is_broken_off_and_the_alarm_put_back():
    before = signal.getsignal(signal.SIGPROF)
    start = time.process_time()
    with pytest.raises(TimeUp), Deadline(0.1).within():
        work(30)
    with pytest.raises(TimeUp), Deadline(0.1).within():
        work_and_say_interrupted()
    assert 0.15 <= time.process_time() - start < 5  # the kernel counts an alarm's time in ticks
    with pytest.raises(ZeroDivisionError), Deadline(5).within():
        _ = 1 / 0
    with pytest.raises(TimeUp), Deadline(0).within():
        pass
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_nothing_is_raised_where_c_code_of_xgboost_calls_back():
    """What is raised there is swallowed and leaves its memory broken; the alarm rings again after it."""
    inside = []

    def _next_wrapper():
        try:
            work(0.7)
            inside.append("ran to its end")
        except TimeUp:
            inside.append("broken off")

    def fit():
        _next_wrapper()
        work(30)

    with pytest.raises(TimeUp), Deadline(0.1).within():
        fit()
    assert inside == ["ran to its end"]


def test_our_search_hands_out_natural_out_of_fold_probabilities(rows):
    """Their mean is the share of positives, which is what the solve on out-of-fold rows gives at λ = ½."""
    ours = PEERS["mlp_threshold"].search(PEERS["mlp_threshold"], rows, 16, Deadline(120))
    assert ours.oof.mean() == pytest.approx(rows.y.mean(), abs=1e-6)
    assert ours.n_settings == len(ours.model.cv_results_["params"])
    weighted = PEERS["crcen_cv"].search(PEERS["crcen_cv"], rows, 16, Deadline(120))
    assert weighted.oof.mean() == pytest.approx(rows.y.mean(), abs=0.1)


def test_an_alarm_that_a_destructor_swallows_rings_again(monkeypatch):
    class Swallowing:
        def __del__(self):
            work(0.3)

    def swallow_then_work():
        Swallowing()
        work(30)

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    start = time.process_time()
    with pytest.raises(TimeUp), Deadline(0.1).within():
        swallow_then_work()
    assert time.process_time() - start < 5

"""What a search refuses, what it leaves behind when it ends early, and that it can be repeated."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from crcen import Budget, InvalidInput, InvalidParameter
from crcen.training.engine import Trainer
from papers_training import CRCENClassifierCV

LIGHT = {"hidden": [(2,), (4,)], "l2": [1e-3, 0.1], "cv": 3, "solver": "adam", "max_epochs": 5, "batch_size": 32,
         "random_state": 0}  # fmt: skip


EMPTY = ("hidden", "l2", "weighting", "encoding")


class TestParameters:
    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ({"hidden": [(4,), (0,)]}, r"hidden .*got \(0,\)"),
            ({"hidden": [(4,), "8"]}, r"hidden .*got '8'"),
            ({"hidden": (4, (2,))}, r"hidden .*got \(4, \(2,\)\)"),
            ({"hidden": ((4,), (2,))}, r"hidden .*a search takes a list of such tuples: got \(\(4,\), \(2,\)\)"),
            ({"l2": [1e-3, -1.0]}, r"l2 .*got -1.0"),
            ({"l2": ["strong"]}, r"l2 .*got 'strong'"),
            ({"l2": [1e-3, np.nan]}, r"l2 .*got nan"),
            ({"l2": (1e-3, None)}, r"l2 .*got None"),
            ({"weighting": [0.5, 2.0]}, r"2(\.0)?"),
            ({"weighting": [Budget(2), "cheap"]}, "cheap"),
            ({"weighting": [{0: 1}]}, "weighting dict"),
            ({"weighting": [Budget(2), Budget(5)], "training_weighting": None}, "calibration must be 'paper', None or"),
            *(({name: []}, f"{name} of CRCENClassifierCV must not be an empty list") for name in EMPTY),
            ({"balance": "out of fold"}, r"balance .*'oof'.*got 'out of fold'"),
            ({"one_standard_error": 1.5}, "one_standard_error"),
            ({"halving": "yes"}, "halving"),
            ({"widen": "yes"}, "widen"),
            ({"early_stopping": True}, "chooses the number of epochs by its folds: early_stopping must be False"),
            ({"device": "tpu"}, "device"),
            ({"pos_label": 7}, "pos_label"),
            ({"random_state": "luck"}, "random_state"),
            ({"scoring": "beauty"}, r"scoring must be one of .*g_mean.*got 'beauty'"),
            ({"scoring": 3}, "scoring must be a name or a callable: got 3"),
            ({"scoring": ["f1"]}, "scoring must be a name or a callable"),
        ],
        ids=str,
    )
    def test_a_bad_value_is_named_before_training(self, rare_rows, monkeypatch, given, sentence):
        monkeypatch.setattr(Trainer, "__call__", lambda *_, **__: pytest.fail("trained"))
        with pytest.raises(InvalidParameter, match=sentence):
            CRCENClassifierCV(**(LIGHT | given)).fit(*rare_rows())


def interrupted_at(part):
    """An engine that is interrupted in this part: the search's first, its second, or the refit."""
    calls = []
    original = Trainer.__call__

    def interrupted(trainer, jobs, **kwargs):
        calls.append(1)
        is_refit = jobs[0].watched is None
        if (part == "refit" and is_refit) or part == len(calls):
            raise KeyboardInterrupt
        return original(trainer, jobs, **kwargs)

    return interrupted


class TestInterruption:
    @pytest.mark.parametrize("part", [1, 2, "refit"])
    def test_what_was_fitted_keeps_its_fit(self, rare_rows, monkeypatch, part):
        X, y = rare_rows()
        clf = CRCENClassifierCV(**LIGHT).fit(X, y)
        before, logits = dict(vars(clf)), clf.decision_function(X)
        monkeypatch.setattr(Trainer, "__call__", interrupted_at(part))
        other = np.where(y == 1, "b", "a")
        with pytest.raises(KeyboardInterrupt):
            clf.fit(X[:, :2], other)
        assert vars(clf) == before
        np.testing.assert_array_equal(clf.decision_function(X), logits)
        assert clf.classes_.tolist() == [0, 1]

    def test_in_the_middle_of_training(self, rare_rows):
        X, y = rare_rows()
        calls = []

        def interrupting(estimator, X, y):
            calls.append(1)
            if len(calls) > 4:
                raise KeyboardInterrupt
            return 0.0

        clf = CRCENClassifierCV(scoring=interrupting, **LIGHT)
        with pytest.raises(KeyboardInterrupt):
            clf.fit(X, y)
        with pytest.raises(NotFittedError):
            check_is_fitted(clf)


class TestRepetition:
    def assert_same(self, one, other, X):
        np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
        np.testing.assert_array_equal(one.oof_decision_function_, other.oof_decision_function_)
        np.testing.assert_array_equal(one.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"])
        assert one.best_params_ == other.best_params_
        assert one.best_epochs_ == other.best_epochs_

    def test_same_seed_same_result(self, rare_rows):
        X, y = rare_rows()
        clf = CRCENClassifierCV(n_members=2, **LIGHT)
        one = CRCENClassifierCV(n_members=2, **LIGHT).fit(X, y)
        self.assert_same(one, clf.fit(X, y), X)
        logits = clf.decision_function(X)
        np.testing.assert_array_equal(clf.fit(X, y).decision_function(X), logits)

    def test_random_state_instances(self, rare_rows):
        X, y = rare_rows()
        one, other = (
            CRCENClassifierCV(**(LIGHT | {"random_state": np.random.RandomState(3)})).fit(X, y) for _ in range(2)
        )
        self.assert_same(one, other, X)
        whole = CRCENClassifierCV(**(LIGHT | {"random_state": 3})).fit(X, y)
        self.assert_same(one, whole, X)
        logits = one.decision_function(X)
        assert (one.fit(X, y).decision_function(X) != logits).any()  # the stream went on


def test_one_class(rare_rows):
    X, y = rare_rows()
    with pytest.raises(InvalidInput, match="one class only"):
        CRCENClassifierCV(**LIGHT).fit(X, np.zeros_like(y))
    with pytest.raises(InvalidInput, match="every class needs weight"):
        CRCENClassifierCV(**LIGHT).fit(X, y, sample_weight=1.0 - y)

"""A list of weightings: which score compares them, and the operating points that come of it."""

import numpy as np
import pytest

from crcen import Budget, CostRatio, InvalidParameter, Lam, expense_table, resolve
from papers_training import CRCENClassifierCV

LIGHT = {"hidden": (4,), "l2": [1e-3, 0.1], "cv": 3, "solver": "adam", "max_epochs": 8, "batch_size": 32,
         "learning_rate": 0.05, "random_state": 0}  # fmt: skip


@pytest.fixture
def rows(rare_rows):
    return rare_rows(n=160)


class TestScoring:
    def test_one_weighting_is_compared_by_its_own_loss_and_several_by_the_natural_loss(self, rows):
        for weighting in ("balanced", ["balanced"], Budget(4)):
            assert CRCENClassifierCV(weighting, **LIGHT).fit(*rows).scorer_ == "neg_weighted_log_loss"
        default = CRCENClassifierCV([Budget(1), Budget(9)], **LIGHT).fit(*rows)
        asked = CRCENClassifierCV([Budget(1), Budget(9)], scoring="neg_log_loss", **LIGHT).fit(*rows)
        assert default.scorer_ == "neg_log_loss"
        np.testing.assert_array_equal(default.cv_results_["mean_test_score"], asked.cv_results_["mean_test_score"])
        assert default.search is None

    def test_the_weighted_loss_is_refused(self, rows):
        clf = CRCENClassifierCV([Budget(1), Budget(9)], scoring="neg_weighted_log_loss", **LIGHT)
        with pytest.raises(InvalidParameter, match=r"cannot compare weightings.*minimum depends on the weight"):
            clf.fit(*rows)
        one = CRCENClassifierCV([Budget(9)], scoring="neg_weighted_log_loss", **LIGHT).fit(*rows)
        assert one.scorer_ == "neg_weighted_log_loss"

    @pytest.mark.parametrize("scoring", ["f1", "g_mean", "average_precision", "balanced_accuracy"])
    def test_others_may_choose_a_weight(self, rows, scoring):
        clf = CRCENClassifierCV([Lam(0.05), Budget(4)], scoring=scoring, **LIGHT).fit(*rows)
        assert clf.scorer_ == scoring
        assert clf.weighting_.cost_ratio == pytest.approx(resolve(clf.best_params_["weighting"], 1, 1).cost_ratio)
        if scoring == "g_mean":  # nothing is called at λ = .05
            assert clf.best_params_["weighting"] == Budget(4)

    def test_the_chosen_weighting_is_that_of_the_model(self, rows):
        X, y = rows
        clf = CRCENClassifierCV(["balanced", Budget(2), None, {0: 1, 1: 6}], balance=True, **LIGHT).fit(X, y)
        expected = clf.best_params_["weighting"]
        spec = CostRatio(6.0) if isinstance(expected, dict) else expected
        assert clf.weighting_.lam == pytest.approx(resolve(spec, y.sum(), (1 - y).sum()).lam)
        assert clf.key_equation_.residual <= 1e-12
        shift = np.log(clf.weighting_.lam / (1 - clf.weighting_.lam))
        natural = np.log(clf.predict_proba(X)[:, 1] / clf.predict_proba(X)[:, 0])
        np.testing.assert_allclose(natural, clf.decision_function(X) - shift, atol=1e-9)


class TestOperatingPoints:
    BUDGETS = (Budget(1), Budget(4), Budget(16))

    def test_counts_in_the_order_given_and_the_expense_along_them(self, rows):
        _, y = rows
        fitted = CRCENClassifierCV(list(self.BUDGETS), **LIGHT).fit(*rows)
        assert len(fitted.oof_counts_) == 3
        for counts in fitted.oof_counts_:
            assert counts.tp + counts.fn == y.sum()
            assert counts.fp + counts.tn == len(y) - y.sum()
        alarms = [counts.tp + counts.fp for counts in fitted.oof_counts_]
        assert alarms == sorted(alarms)
        assert alarms[0] < alarms[2]
        fn, fp = ([getattr(c, name) for c in fitted.oof_counts_] for name in ("fn", "fp"))
        table = expense_table(self.BUDGETS, fn, fp)
        assert len(fitted.oof_expense_) == 2
        for step, expected in zip(fitted.oof_expense_, table, strict=True):
            for name in ("fn_start", "fn_end", "fp_start", "fp_end", "bracket_low", "bracket_high", "expense"):
                assert getattr(step, name) == pytest.approx(getattr(expected, name), nan_ok=True), name
            assert step.verdict == expected.verdict

    def test_mixed_kinds_are_ordered_by_their_price(self, rows):
        X, y = rows
        clf = CRCENClassifierCV(["balanced", None, Budget(2)], **LIGHT).fit(X, y)
        prices = [step.bracket_low for step in clf.oof_expense_] + [clf.oof_expense_.steps[-1].bracket_high]
        assert prices == pytest.approx([1.0, 2.0, (len(y) - y.sum()) / y.sum()])

    @pytest.mark.parametrize("weightings", [[Budget(2), Budget(2)], [Budget(1), None, Budget(3)]], ids=str)
    def test_equal_prices_have_no_expense(self, rows, weightings):
        clf = CRCENClassifierCV(weightings, **LIGHT).fit(*rows)
        assert clf.oof_expense_ is None
        assert len(clf.oof_counts_) == len(weightings)
        assert clf.oof_counts_[0] == clf.oof_counts_[1]

"""scikit-learn's own contract for estimators, for the meta-estimator."""

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from crcen import PosteriorCorrection

LIGHT = [
    PosteriorCorrection(LogisticRegression(max_iter=50), price=None),
    PosteriorCorrection(LogisticRegression(max_iter=50), method="isotonic", cv=2, price=None),
]


def expected_failures(estimator):
    """The prior of an isotonic map counts rows, so that results do not depend on the unit of sample weights."""
    reason = "only ratios of sample weights matter, so weight 2 for all rows is not each row twice"
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    return dict.fromkeys(names, reason) if estimator.method == "isotonic" else {}


@parametrize_with_checks(LIGHT, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)

"""scikit-learn's own contract for estimators, for the meta-estimator."""

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from crcen import PosteriorCorrection

LIGHT = [
    PosteriorCorrection(LogisticRegression(max_iter=50), price=None),
    PosteriorCorrection(LogisticRegression(max_iter=50), method="isotonic", cv=2, price=None),
]


@parametrize_with_checks(LIGHT)
def test_scikit_learn_contract(estimator, check):
    check(estimator)

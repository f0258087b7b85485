"""Natural probabilities against a posterior that is known."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from crcen import Alpha, CSMLPClassifier, make_sim2
from crcen.datasets.simulated import sim2_posterior
from grouped_settings import grouped
from papers_training import CRCENClassifier

SETTINGS = {"hidden": (8,), "activation": "tanh", "max_epochs": 30, "l2": 1e-3, "random_state": 0,
            "encoding": "standard", "n_members": 1}  # fmt: skip


@pytest.fixture(scope="module")
def sim2():
    train, new = make_sim2(400, 4000, seed=1), make_sim2(400, 4000, seed=2)
    return train.X, train.y, new.X, new.y, sim2_posterior(new.X, 10.0)


@pytest.mark.parametrize("alpha", [0.5, 1, 2])
def test_weighted_training_gives_natural_probabilities(sim2, alpha):
    X, y, X_new, y_new, truth = sim2
    plain, model = (CRCENClassifier(price, **SETTINGS).fit(X, y) for price in (None, Alpha(alpha)))
    bayes, natural = log_loss(y_new, truth), log_loss(y_new, model.predict_proba(X_new))
    assert natural < 1.04 * bayes
    assert natural < 1.04 * log_loss(y_new, plain.predict_proba(X_new))
    assert log_loss(y_new, model.weighted_proba(X_new)) > 1.3 * bayes
    p = model.predict_proba(X_new)[:, 1]
    assert abs(p.mean() - y_new.mean()) < 0.01
    assert np.mean(np.abs(p - truth)) < 0.03
    assert np.mean(model.predict(X_new) == (truth > model.weighting_.threshold)) > 0.95


def test_csmlp_estimates_the_same_posterior(sim2):
    """Squared error is a proper score as well: its q is the weighted posterior at the optimum."""
    X, y, X_new, y_new, truth = sim2
    model = CSMLPClassifier(Alpha(1), **grouped(**SETTINGS)).fit(X, y)
    assert log_loss(y_new, model.predict_proba(X_new)) < 1.08 * log_loss(y_new, truth)

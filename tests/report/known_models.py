"""Models whose probabilities are known in advance, so that a report can be held to the truth."""

import numpy as np

from crcen import Budget, posterior, resolve
from crcen.theory.price import sigmoid, weighted_probability


class KnownPosterior:
    """States p = σ(a + b·x₀) for `classes_[1]`, moved by `error` in log-odds; nothing else of X matters."""

    def __init__(self, a=-2.5, b=1.5, error=0.0, classes=(0, 1)):
        self.a, self.b, self.error = a, b, error
        self.classes_ = np.array(classes)

    def truth(self, X):
        return sigmoid(self.a + self.b * np.asarray(X)[:, 0].astype(float))

    def predict_proba(self, X):
        p = sigmoid(self.a + self.error + self.b * np.asarray(X)[:, 0].astype(float))
        return np.column_stack([1.0 - p, p])


class PricedPosterior(KnownPosterior):
    """The same with a price and training counts, as crcen's own estimators have them."""

    def __init__(self, price=5.0, n_train=100_000, share=0.138, **parameters):
        super().__init__(**parameters)
        self.weighting_ = resolve(Budget(price), share * n_train, (1.0 - share) * n_train)
        self.pos_label_ = self.classes_[1]

    def weighted_proba(self, X):
        q = weighted_probability(self.predict_proba(X)[:, 1], self.weighting_)
        assert np.allclose(posterior(q, self.weighting_), self.predict_proba(X)[:, 1])
        return np.column_stack([1.0 - q, q])


def draw(model, n=2000, n_columns=3, seed=0):
    """Rows with labels drawn from the model's true posterior."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_columns))
    return X, model.classes_[(rng.random(n) < model.truth(X)).astype(int)]

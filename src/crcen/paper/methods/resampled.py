"""A plain network on rows that SMOTE or ADASYN rebalanced."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen._support.extras import need
from crcen.exceptions import InvalidInput
from crcen.models.atomic import all_or_nothing
from crcen.models.classifier import CRCENClassifier
from crcen.models.foreign_names import OurNames, says_our_names
from crcen.models.validation import check_choice, check_labels, check_rows
from crcen.theory.labels import Labels
from crcen.training.recipe import Schedule

__all__ = ["ResampledClassifier"]

_SAMPLERS = {"smote": "SMOTE", "adasyn": "ADASYN"}


class ResampledClassifier(ClassifierMixin, OurNames):
    """Standardise, oversample the minority class to a 1:1 ratio, train a plain network (λ = ½), decide at ½.

    Neighbours are looked for among standardised rows, and all of it sees the rows given to ``fit`` alone.

    Parameters
    ----------
    sampler : {"smote", "adasyn"}, default="smote"
        imbalanced-learn's sampler, with its defaults (extra ``baselines``).
    hidden, l2, max_epochs, schedule, n_members, device, random_state
        As in `CRCENClassifier`.
    """

    @says_our_names
    def __init__(
        self,
        sampler: str = "smote",
        *,
        hidden: Any = (32,),
        l2: float = 1e-4,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        n_members: int = 1,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.sampler = sampler
        self.hidden = hidden
        self.l2 = l2
        self.max_epochs = max_epochs
        self.schedule = schedule
        self.n_members = n_members
        self.device = device
        self.random_state = random_state

    def resample(self, X: NDArray[np.float64], y: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Rows and labels after rebalancing, in the units of X."""
        check_choice(self, "sampler", tuple(_SAMPLERS))
        sampler = getattr(need("imblearn.over_sampling", "baselines"), _SAMPLERS[self.sampler])
        scaler = StandardScaler().fit(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            rows, labels = sampler(random_state=seed).fit_resample(scaler.transform(X), y)
        except (RuntimeError, ValueError) as error:  # too few rows, or ADASYN finds nothing to generate
            raise InvalidInput(f"{self.sampler} cannot rebalance these rows: {error}") from error
        return scaler.inverse_transform(rows), labels

    def fit(self, X: Any, y: Any) -> ResampledClassifier:
        """Rebalance and train."""
        with all_or_nothing(self):
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        X, y = check_rows(self, X, y, reset=True)
        self.classes_ = check_labels(y)
        rows, labels = self.resample(X, y)
        self.network_ = CRCENClassifier(
            None,
            hidden=self.hidden,
            l2=self.l2,
            max_epochs=self.max_epochs,
            schedule=self.schedule,
            n_members=self.n_members,
            encoding="standard",
            balance=True,
            pos_label=Labels.from_rows(self.classes_, y, np.ones(len(y))).positive,
            device=self.device,
            random_state=self.random_state,
        ).fit(rows, labels)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logit of ``classes_[1]`` among rebalanced rows."""
        check_is_fitted(self)
        return self.network_.decision_function(check_rows(self, X, reset=False))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class above probability ½ among rebalanced rows."""
        is_last = self.decision_function(X) > 0
        return self.classes_[is_last.astype(int)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities among rebalanced rows; they are not those of the natural rows."""
        check_is_fitted(self)
        return self.network_.predict_proba(check_rows(self, X, reset=False))

    def __sklearn_tags__(self) -> Any:
        """Binary for now."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

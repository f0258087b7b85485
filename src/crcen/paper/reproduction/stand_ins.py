"""What methods of today's libraries were in 2019."""

from collections.abc import Callable
from typing import Any

from crcen.paper.boosting import RealRUSBoostClassifier

__all__ = ["STAND_INS"]


def _balanced_forest(**params: Any) -> Any:
    """Balanced random forest with the defaults of imbalanced-learn 0.5: rows drawn without, then with replacement."""
    from imblearn.ensemble import BalancedRandomForestClassifier

    return BalancedRandomForestClassifier(
        n_estimators=100, sampling_strategy="auto", replacement=False, bootstrap=True, max_features="sqrt", **params
    )


# What a method of today's libraries was then.
STAND_INS: dict[str, Callable[..., Any]] = {"rusboost": RealRUSBoostClassifier, "balanced_rf": _balanced_forest}

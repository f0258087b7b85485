"""Private functions of scikit-learn that have no public twin, by names of our own; no other place imports them."""

from typing import Any

from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _check_y as check_y
from sklearn.utils.validation import _num_samples as count_rows

__all__ = ["check_sample_weight", "check_y", "count_rows", "take_rows", "tree_parts"]


def tree_parts() -> tuple[Any, Any, Any, Any]:
    """What histogram boosting is made of, loaded when trees are grown and not before.

    Returns
    -------
    tuple
        The class that grows a tree, the one that predicts by a tree, the type of a tree's nodes, and the function that
        adds a grown tree's leaves to what was predicted for the rows it grew on.
    """
    from sklearn.ensemble._hist_gradient_boosting._gradient_boosting import _update_raw_predictions
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    return TreeGrower, TreePredictor, PREDICTOR_RECORD_DTYPE, _update_raw_predictions

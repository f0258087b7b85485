"""Private functions of scikit-learn that have no public twin, by names of our own; no other place imports them."""

from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _check_y as check_y
from sklearn.utils.validation import _num_samples as count_rows

__all__ = ["check_sample_weight", "check_y", "count_rows", "take_rows"]

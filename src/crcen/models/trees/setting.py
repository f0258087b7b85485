"""What is searched of boosted trees."""

from dataclasses import dataclass

__all__ = ["MANY_SETTINGS", "TREE_SETTINGS", "TreeSetting"]


@dataclass(frozen=True)
class TreeSetting:
    """One setting; there are as many trees as the folds' mean log loss wants."""

    leaves: int
    rows_a_leaf: int
    l2: float
    columns: float
    rate: float = 0.1


# Small and large trees, each with strong and weak penalties; the first are the ones that serve most tables.
TREE_SETTINGS = (
    TreeSetting(31, 20, 0.0, 1.0),
    TreeSetting(8, 20, 1.0, 0.5),
    TreeSetting(16, 10, 5.0, 0.5),
    TreeSetting(31, 5, 0.1, 0.8),
    TreeSetting(4, 20, 1.0, 1.0),
    TreeSetting(64, 20, 5.0, 0.5),
    TreeSetting(31, 5, 10.0, 0.3),
    TreeSetting(16, 50, 0.0, 1.0),
    TreeSetting(16, 20, 1.0, 0.3),
)
# On many rows: the larger ones, and one larger still.
MANY_SETTINGS = (*(one for one in TREE_SETTINGS if one.leaves >= 16), TreeSetting(128, 20, 5.0, 0.5))

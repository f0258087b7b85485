"""Boosted trees as operations of an ONNX graph, in double precision."""

from typing import Any

import numpy as np

__all__ = ["is_trees", "tree_logit"]


def is_trees(member: Any) -> bool:
    """Whether a member is an ensemble of trees."""
    return hasattr(member, "roots")


def tree_logit(graph: Any, trees: Any, X: str) -> str:
    """The logit of boosted trees, (rows,), or (rows, K).

    The tree operator compares in double precision, but its answers are single. So it is asked for the number of the
    leaf that a row ends in, one answer a tree, which single precision holds exactly; the leaves' values are looked up
    by that number and added in double precision.

    Parameters
    ----------
    graph : Graph
        Where the operations go.
    trees : TreeEnsemble
        The trees.
    X : str
        Doubles of shape (rows, features).

    Returns
    -------
    str
        Name of the result.
    """
    own = np.arange(len(trees.left))
    is_leaf = trees.left == own
    ends = np.append(trees.roots[1:], len(own))
    tree_of = np.repeat(np.arange(trees.n_trees), ends - trees.roots)
    node = own - trees.roots[tree_of]  # numbers begin anew in every tree
    leaves = np.flatnonzero(is_leaf)
    leaf_number = np.cumsum(is_leaf) - 1
    numbers = graph.apply(
        "TreeEnsembleRegressor",
        X,
        domain="ai.onnx.ml",
        n_targets=trees.n_trees,
        nodes_treeids=tree_of.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=trees.feature.tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values_as_tensor=_doubles("thresholds", np.where(is_leaf, 0.0, trees.threshold)),
        nodes_truenodeids=np.where(is_leaf, 0, trees.left - trees.roots[tree_of]).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, trees.right - trees.roots[tree_of]).tolist(),
        nodes_missing_value_tracks_true=(trees.missing_left & ~is_leaf).astype(int).tolist(),
        target_treeids=tree_of[leaves].tolist(),
        target_nodeids=node[leaves].tolist(),
        target_ids=tree_of[leaves].tolist(),
        target_weights_as_tensor=_doubles("leaf_numbers", leaf_number[leaves].astype(np.float64)),
    )
    # (rows, trees, width) leaf values; trees of different outputs are summed by a matrix of zeros and ones.
    width, n_outputs = trees.value.shape[1], len(trees.baseline)
    leaf_values = graph.constant(trees.value[leaves] if width > 1 else trees.value[leaves, 0])
    values = graph.apply("Gather", leaf_values, graph.as_int(numbers), axis=0)
    if width == n_outputs or n_outputs == 1:
        total = graph.apply("ReduceSum", values, graph.constant([1], np.int64), keepdims=0)
    else:
        belongs = (trees.output[:, None] == np.arange(n_outputs)).astype(np.float64)
        total = graph.apply("MatMul", values, graph.constant(belongs))
    return graph.apply("Add", total, graph.constant(trees.baseline if n_outputs > 1 else trees.baseline[0]))


def _doubles(name: str, values: Any) -> Any:
    import onnx

    return onnx.numpy_helper.from_array(np.asarray(values, dtype=np.float64), name)

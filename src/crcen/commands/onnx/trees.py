"""Boosted trees as operations of an ONNX graph, in double precision."""

from typing import Any

import numpy as np

__all__ = ["is_trees", "tree_logit"]


def is_trees(member: Any) -> bool:
    """Whether a member is boosted trees, of two classes or of more."""
    return hasattr(member, "roots") or hasattr(member, "by_class")


def tree_logit(graph: Any, trees: Any, X: str) -> str:
    """The logit of boosted trees, (rows,), or (rows, K).

    The tree operator compares in double precision, but its answers are single. So it is asked for the number of the
    leaf that a row ends in, one answer a tree, which single precision holds exactly; the leaves' values are looked up
    by that number and added in double precision.

    Parameters
    ----------
    graph : Graph
        Where the operations go.
    trees : BoostedTrees
        The trees.
    X : str
        Doubles of shape (rows, features).

    Returns
    -------
    str
        Name of the result.
    """
    if hasattr(trees, "by_class"):
        columns = [tree_logit(graph, one, X) for one in trees.by_class]
        if len(columns) == 1:
            columns.insert(0, graph.apply("Mul", columns[0], graph.constant(0.0)))
        axis = graph.constant([1], np.int64)
        return graph.apply("Concat", *(graph.apply("Unsqueeze", one, axis) for one in columns), axis=1)
    if not trees.n_trees:
        zero = graph.apply("Mul", graph.apply("ReduceMax", X, axes=[1], keepdims=0), graph.constant(0.0))
        return graph.apply("Add", zero, graph.constant(trees.baseline))
    own = np.arange(len(trees.value))
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
    values = graph.apply("Gather", graph.constant(trees.value[leaves]), graph.as_int(numbers), axis=0)
    total = graph.apply("ReduceSum", values, graph.constant([1], np.int64), keepdims=0)
    return graph.apply("Add", total, graph.constant(trees.baseline))


def _doubles(name: str, values: Any) -> Any:
    import onnx

    return onnx.numpy_helper.from_array(np.asarray(values, dtype=np.float64), name)

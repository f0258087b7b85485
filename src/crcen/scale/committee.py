"""A committee of streamed members: a network and boosted trees, stacked on held-out rows."""

import time
from collections.abc import Iterable

import numpy as np

from crcen.models.classifier import CRCENClassifier
from crcen.models.committee import CommitteeClassifier, choose_ridge, cross_fitted_logits, fit_stacking, leaderboard
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import write_ensemble
from crcen.models.members.member import FittedMember
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.scale.trees import SETTING, GrownTrees
from crcen.theory.balance import class_shifts
from crcen.theory.key_equation import on_rows, without_test
from crcen.theory.rows import Array, LabelArray
from crcen.training.network import NetworkGroup

STACKING_ROWS = "held-out rows that the members were combined on"


def stack_members(
    network: CRCENClassifier,
    trees: TreeEnsemble,
    grown: GrownTrees,
    blocks: Iterable[Array],
    y: LabelArray,
    seed: int = 0,
) -> CommitteeClassifier:
    """Combine a streamed network and trees by weights from encoded rows that neither was trained on.

    Trees have a logit for each class or, for a positive class, in the second column. The seed is that of the folds that
    choose the shrinkage of the weights.
    """
    start = time.perf_counter()
    fitted = network.ensemble_
    labels, price = fitted.labels, fitted.weighting
    has_positive = labels.positive is not None
    target = labels.encode(y)
    member = trees.column(1) if has_positive else trees

    def logits_of(X: Array) -> Array:
        found = member.logits(X)
        return np.stack([fitted.logits(X)[0], labels.columns(found[:, 0]) if has_positive else found], axis=1)

    logits = np.concatenate([logits_of(X) for X in blocks])
    # The class ratio of the training rows is known better than that of the held-out ones.
    sizes = (price.counts / np.bincount(target, minlength=labels.n_classes))[target]
    sizes /= sizes.mean()
    folds = np.array_split(np.random.default_rng(seed).permutation(len(y)), 4)
    ridge = choose_ridge(logits, target, sizes, folds, seed)
    stacking = fit_stacking(logits, target, sizes, ridge)
    crossed = cross_fitted_logits(logits, target, sizes, folds, ridge)
    (group,) = fitted.members
    assert isinstance(group, NetworkGroup)
    natural = fitted.shift - price.log_weights
    members = (group.shifted(labels.margin(natural) if has_positive else natural), member)
    kept = [i for i in range(2) if stacking.weights[i] > 0.0] or [0, 1]
    made = CommitteeClassifier(
        network.weighting, members=("networks", "trees"), pos_label=network.pos_label, random_state=network.random_state
    )
    plain = labels.resolve(None, price.counts)
    ensemble = Ensemble.of(labels, plain, tuple(members[i] for i in kept), stacking.weights[kept])
    ensemble = ensemble.shifted(stacking.intercepts).at_price(price)
    weighted = stacking(logits) + price.log_weights
    before = ensemble.key_equation(weighted, target, sizes)
    shift = class_shifts(target, weighted, price.weights, sizes)
    ensemble = ensemble.moved(shift)
    after = ensemble.key_equation(weighted, target, sizes)
    made.oof_key_equation_ = on_rows(without_test(before), STACKING_ROWS)
    made.oof_shift_ = float(labels.margin(shift)) if has_positive else shift
    write_ensemble(made, ensemble, on_rows(after, STACKING_ROWS))
    made.member_weights_ = stacking.weights
    settings = {
        "networks": f"{len(group)} network{'s' * (len(group) > 1)}, hidden {network.hidden}",
        "trees": f"{grown.n_best} trees of {SETTING}",
    }
    found = [FittedMember(name, (), logits[:, i], (text,), 1) for i, (name, text) in enumerate(settings.items())]
    positive = [labels.column] if has_positive else None
    made.leaderboard_ = leaderboard(found, stacking.weights, crossed, target, sizes, positive)
    made.n_features_in_, made.notes_, made.fit_time_ = network.n_features_in_, [], time.perf_counter() - start
    return made

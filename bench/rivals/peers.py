"""The peers of the benchmark, in the order of its tables."""

from collections.abc import Sequence
from dataclasses import replace

import crcen
from bench.rivals import estimators
from bench.rivals.peer import Peer
from bench.rivals.search import by_itself, cross_validated, resampled_stack
from bench.rivals.spaces import Pick, Range

__all__ = ["OURS", "PEERS", "choose_peers"]

# The peer that every other one is compared with.
OURS = "crcen_cv"

_BINS = "it holds scikit-learn below 1.7, so it needs an environment of its own"
_TREES = Range(100, 400, integer=True)
_RATE = Range(0.02, 0.2, log=True)
_COLUMNS = Range(0.4, 1.0)


def _network_peers() -> list[Peer]:
    plain = Peer(
        OURS,
        "CRCEN, searched, λ = ½",
        "neural",
        "crcen",
        estimators.crcen_search(None, n_settings=1),
        by_itself,
        note="its own grid and cross-validation on the same folds, trained as stacks",
    )
    grid: dict[str, Range | Pick] = {"hidden": Pick([(8,), (16,), (32,), (64,)]), "l2": Range(1e-4, 1e-1, log=True)}
    sampled = Peer(
        "smote_mlp",
        "SMOTE + MLP",
        "neural",
        "imbalanced-learn",
        estimators.resampled("smote"),
        resampled_stack,
        default={"hidden": (32,), "l2": 1e-3},
        space=grid,
        modules=("imblearn.over_sampling",),
        note="this package's plain network on the rebalanced rows, its settings trained as stacks",
    )
    sklearn_mlp = Peer(
        "sklearn_mlp",
        "MLPClassifier",
        "neural",
        "scikit-learn",
        estimators.sklearn_mlp,
        cross_validated,
        default={"hidden_layer_sizes": (100,), "max_iter": 50},
        space={
            "hidden_layer_sizes": Pick([(16,), (32,), (100,), (32, 32), (100, 100)]),
            "alpha": Range(1e-4, 10.0, log=True),
            "learning_rate_init": Range(5e-4, 1e-2, log=True),
            "max_iter": Range(10, 80, log=True, integer=True),
        },
    )
    tabular = Peer(
        "realmlp",
        "RealMLP",
        "neural",
        "pytabkit",
        estimators.realmlp,
        cross_validated,
        modules=("pytabkit",),
        is_costly=True,
        max_cells=60_000,
        is_accelerated=True,
        note="its tuned defaults",
    )
    return [
        Peer(
            "committee",
            "committee",
            "committee",
            "crcen",
            estimators.committee,
            by_itself,
            note="networks and scikit-learn's boosted trees, each searched on the same folds",
        ),
        replace(plain, name="crcen_settings", label="CRCEN, best settings averaged, λ = ½",
                make=estimators.crcen_search(None, n_settings=3)),
        plain,
        replace(plain, name="crcen_cv_balanced", label="CRCEN, searched, balanced",
                make=estimators.crcen_search(
                    "balanced", n_settings=1, training_weighting="price", probability="shift"
                )),
        replace(plain, name="crcen", label="CRCEN, defaults", make=estimators.crcen_default, search=cross_validated,
                note=""),
        replace(plain, name="mlp_threshold", label="MLP (ours, plain)", make=estimators.plain_network_search,
                note="single plain networks on standardised columns, searched as stacks"),
        sampled,
        replace(sampled, name="adasyn_mlp", label="ADASYN + MLP", make=estimators.resampled("adasyn")),
        sklearn_mlp,
        tabular,
        replace(tabular, name="tabm", label="TabM", make=estimators.tabm, max_cells=10_000, note="its defaults"),
    ]  # fmt: skip


def _boosting_peers() -> list[Peer]:
    return [
        Peer(
            "lightgbm",
            "LightGBM",
            "tree",
            "lightgbm",
            estimators.lightgbm,
            cross_validated,
            space={
                "n_estimators": _TREES,
                "learning_rate": _RATE,
                "num_leaves": Range(4, 64, log=True, integer=True),
                "min_child_samples": Range(5, 60, log=True, integer=True),
                "reg_lambda": Range(1e-3, 10.0, log=True),
                "colsample_bytree": _COLUMNS,
            },
            modules=("lightgbm",),
        ),
        Peer(
            "xgboost",
            "XGBoost",
            "tree",
            "xgboost",
            estimators.xgboost,
            cross_validated,
            default={"n_estimators": 100},
            space={
                "n_estimators": _TREES,
                "learning_rate": _RATE,
                "max_depth": Range(2, 8, integer=True),
                "min_child_weight": Range(0.5, 20.0, log=True),
                "reg_lambda": Range(1e-2, 10.0, log=True),
                "subsample": Range(0.6, 1.0),
                "colsample_bytree": _COLUMNS,
            },
            modules=("xgboost",),
        ),
        Peer(
            "hist_gb",
            "HistGradientBoosting",
            "tree",
            "scikit-learn",
            estimators.hist_gradient_boosting,
            cross_validated,
            space={
                "max_iter": _TREES,
                "learning_rate": _RATE,
                "max_leaf_nodes": Range(4, 64, log=True, integer=True),
                "min_samples_leaf": Range(5, 60, log=True, integer=True),
                "l2_regularization": Range(1e-3, 10.0, log=True),
                "max_features": _COLUMNS,
            },
        ),
        Peer(
            "catboost",
            "CatBoost",
            "tree",
            "catboost",
            estimators.catboost,
            cross_validated,
            default={"iterations": 400},
            space={
                "iterations": _TREES,
                "learning_rate": Range(0.03, 0.3, log=True),
                "depth": Range(3, 8, integer=True),
                "l2_leaf_reg": Range(1.0, 10.0, log=True),
                "rsm": _COLUMNS,
            },
            modules=("catboost",),
            is_costly=True,
        ),
    ]


def _ensemble_peers() -> list[Peer]:
    depth = Range(1, 8, integer=True)
    imbens = Peer(
        "self_paced",
        "self-paced ensemble",
        "ensemble",
        "imbalanced-ensemble",
        estimators.self_paced_ensemble,
        cross_validated,
        default={"n_estimators": 50, "k_bins": 5, "depth": None},
        space={
            "n_estimators": Range(10, 100, integer=True),
            "k_bins": Range(3, 15, integer=True),
            "depth": Range(2, 16, integer=True),
        },
        modules=("imbens.ensemble",),
        note=_BINS,
    )
    return [
        Peer(
            "balanced_rf",
            "balanced random forest",
            "ensemble",
            "imbalanced-learn",
            estimators.balanced_forest,
            cross_validated,
            default={"n_estimators": 200},
            space={
                "max_features": Range(0.05, 0.7, log=True),
                "min_samples_leaf": Range(1, 10, log=True, integer=True),
                "max_depth": Range(4, 24, log=True, integer=True),
            },
            modules=("imblearn.ensemble",),
        ),
        Peer(
            "easy_ensemble",
            "EasyEnsemble",
            "ensemble",
            "imbalanced-learn",
            estimators.easy_ensemble,
            cross_validated,
            default={"n_estimators": 10, "rounds": 50, "learning_rate": 1.0, "depth": 1},
            space={
                "n_estimators": Range(5, 20, integer=True),
                "rounds": Range(10, 60, log=True, integer=True),
                "learning_rate": Range(0.1, 1.0, log=True),
                "depth": Range(1, 4, integer=True),
            },
            modules=("imblearn.ensemble",),
        ),
        Peer(
            "rusboost",
            "RUSBoost",
            "ensemble",
            "imbalanced-learn",
            estimators.rusboost,
            cross_validated,
            default={"n_estimators": 50, "learning_rate": 1.0, "depth": 1},
            space={
                "n_estimators": Range(20, 200, log=True, integer=True),
                "learning_rate": Range(0.05, 1.0, log=True),
                "depth": depth,
            },
            modules=("imblearn.ensemble",),
        ),
        imbens,
        replace(
            imbens,
            name="balance_cascade",
            label="BalanceCascade",
            make=estimators.balance_cascade,
            default={"n_estimators": 50, "depth": None},
            space={"n_estimators": Range(10, 100, integer=True), "depth": Range(2, 16, integer=True)},
        ),
    ]


def _linear_peers() -> list[Peer]:
    return [
        Peer(
            "logistic",
            "logistic regression",
            "linear",
            "scikit-learn",
            estimators.logistic,
            cross_validated,
            default={"C": 1.0},
            space={"C": Range(1e-4, 1e2, log=True)},
        )
    ]


def _with_weighted_form(peer: Peer) -> list[Peer]:
    """A peer as it comes, and with rows weighted so that both classes weigh the same."""
    return [peer, replace(peer, name=f"{peer.name}_weighted", label=f"{peer.label}, weighted", is_weighted=True)]


_WITH_WEIGHTS = ("sklearn_mlp", "lightgbm", "xgboost", "hist_gb", "catboost", "logistic")

PEERS: dict[str, Peer] = {
    form.name: form
    for peer in [*_network_peers(), *_boosting_peers(), *_ensemble_peers(), *_linear_peers()]
    for form in (_with_weighted_form(peer) if peer.name in _WITH_WEIGHTS else [peer])
}


def choose_peers(which: str | Sequence[str] = "core") -> list[Peer]:
    """The peers of ``core``, of ``all``, or of names with commas between them."""
    names = which.split(",") if isinstance(which, str) else list(which)
    if names == ["all"]:
        return list(PEERS.values())
    if names == ["core"]:
        return [peer for peer in PEERS.values() if not peer.is_costly]
    unknown = [name for name in names if name not in PEERS]
    if unknown or not names:
        raise crcen.InvalidParameter(f"there is no peer {', '.join(unknown)}: choose core, all or {', '.join(PEERS)}.")
    return [peer for peer in PEERS.values() if peer.name in names]

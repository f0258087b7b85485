"""Unfitted estimators of the peers, each from a setting and a seed, on one thread.

All run on the CPU but RealMLP and TabM, which take a graphics card where there is one.
"""

from collections.abc import Mapping
from typing import Any

import crcen
from crcen.paper.networks import ResampledClassifier

__all__ = [
    "balance_cascade",
    "balanced_forest",
    "catboost",
    "committee",
    "crcen_default",
    "crcen_search",
    "easy_ensemble",
    "hist_gradient_boosting",
    "lightgbm",
    "logistic",
    "plain_network_search",
    "realmlp",
    "resampled",
    "rusboost",
    "self_paced_ensemble",
    "sklearn_mlp",
    "tabm",
    "xgboost",
]

Setting = Mapping[str, Any]


def crcen_search(weighting: Any, **how: Any) -> Any:
    """Of a weighting: a factory of the package's own search with its built-in grid."""

    def make(setting: Setting, seed: int) -> Any:
        return crcen.CRCENClassifierCV(weighting, **how, **setting, pos_label=1, device="cpu", random_state=seed)

    return make


def committee(setting: Setting, seed: int) -> Any:
    """Networks and trees that decide together."""
    return crcen.CommitteeClassifier(None, **setting, pos_label=1, n_jobs=1, device="cpu", random_state=seed)


def plain_network_search(setting: Setting, seed: int) -> Any:
    """Single plain networks on standardised columns, λ = ½, searched over widths and penalties."""
    grid = [(8,), (16,), (32,), (64,)], [1e-4, 1e-3, 1e-2, 1e-1]
    plain = crcen.CRCENClassifierCV(
        None, hidden=grid[0], l2=grid[1], n_members=1, encoding="standard", probability="shift"
    )
    return plain.set_params(**setting, pos_label=1, device="cpu", random_state=seed)


def crcen_default(setting: Setting, seed: int) -> Any:
    """The network with its defaults, no search."""
    return crcen.CRCENClassifier(**setting, pos_label=1, device="cpu", random_state=seed)


def resampled(sampler: str) -> Any:
    """Of a sampler: a factory of networks on rows that it rebalanced."""

    def make(setting: Setting, seed: int) -> Any:
        return ResampledClassifier(sampler, **setting, device="cpu", random_state=seed)

    return make


def lightgbm(setting: Setting, seed: int) -> Any:
    """LightGBM's gradient boosting."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**setting, n_jobs=1, random_state=seed, verbose=-1)


def xgboost(setting: Setting, seed: int) -> Any:
    """XGBoost's gradient boosting by histograms."""
    from xgboost import XGBClassifier

    return XGBClassifier(**setting, tree_method="hist", n_jobs=1, random_state=seed, verbosity=0)


def catboost(setting: Setting, seed: int) -> Any:
    """CatBoost's gradient boosting of symmetric trees."""
    from catboost import CatBoostClassifier

    return CatBoostClassifier(**setting, thread_count=1, random_seed=seed, verbose=False, allow_writing_files=False)


def hist_gradient_boosting(setting: Setting, seed: int) -> Any:
    """scikit-learn's gradient boosting by histograms."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(**setting, early_stopping=False, random_state=seed)


def balanced_forest(setting: Setting, seed: int) -> Any:
    """A random forest whose trees each see as many rows of either class."""
    from imblearn.ensemble import BalancedRandomForestClassifier

    return BalancedRandomForestClassifier(
        **setting, sampling_strategy="all", replacement=True, bootstrap=False, n_jobs=1, random_state=seed
    )


def easy_ensemble(setting: Setting, seed: int) -> Any:
    """AdaBoost on several balanced samples; ``rounds`` and ``depth`` are AdaBoost's."""
    from imblearn.ensemble import EasyEnsembleClassifier
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    base = AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=setting["depth"]),
        n_estimators=setting["rounds"],
        learning_rate=setting["learning_rate"],
    )
    return EasyEnsembleClassifier(setting["n_estimators"], base, n_jobs=1, random_state=seed)


def rusboost(setting: Setting, seed: int) -> Any:
    """AdaBoost that samples the majority down in every round; ``depth`` is the tree's."""
    from imblearn.ensemble import RUSBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    return RUSBoostClassifier(
        DecisionTreeClassifier(max_depth=setting["depth"]),
        n_estimators=setting["n_estimators"],
        learning_rate=setting["learning_rate"],
        random_state=seed,
    )


def self_paced_ensemble(setting: Setting, seed: int) -> Any:
    """Trees on samples that follow how hard the majority's rows are."""
    from imbens.ensemble import SelfPacedEnsembleClassifier
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=setting["depth"])
    return SelfPacedEnsembleClassifier(
        tree, setting["n_estimators"], k_bins=setting["k_bins"], n_jobs=1, random_state=seed
    )


def balance_cascade(setting: Setting, seed: int) -> Any:
    """Trees on what earlier trees left unsolved of the majority."""
    from imbens.ensemble import BalanceCascadeClassifier
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=setting["depth"])
    return BalanceCascadeClassifier(tree, setting["n_estimators"], n_jobs=1, random_state=seed)


def _standardised(model: Any) -> Any:
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    return Pipeline([("scale", StandardScaler()), ("model", model)])


def logistic(setting: Setting, seed: int) -> Any:
    """Logistic regression on standardised columns."""
    from sklearn.linear_model import LogisticRegression

    return _standardised(LogisticRegression(**setting, max_iter=1000, random_state=seed))


def sklearn_mlp(setting: Setting, seed: int) -> Any:
    """scikit-learn's network on standardised columns."""
    from sklearn.neural_network import MLPClassifier

    return _standardised(MLPClassifier(**setting, random_state=seed))


def _accelerator() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def realmlp(setting: Setting, seed: int) -> Any:
    """RealMLP with tuned defaults; its own validation rows are judged by cross entropy, as its manual advises here."""
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(
        **setting,
        device=_accelerator(),
        n_threads=1,
        random_state=seed,
        val_metric_name="cross_entropy",
        use_ls=False,
    )


def tabm(setting: Setting, seed: int) -> Any:
    """TabM with its defaults; its own validation rows are judged by ROC AUC.

    pytabkit 1.7.3 hands probabilities to metrics that expect logits, so with cross entropy, or with its default, the
    share of errors, TabM stops after an epoch or two where one class is rare. An order of rows is the same either way.
    """
    from pytabkit import TabM_D_Classifier

    return TabM_D_Classifier(
        **setting, device=_accelerator(), n_threads=1, random_state=seed, val_metric_name="1-auc_ovr"
    )

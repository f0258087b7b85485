"""The compared libraries ("peers") of the benchmark: their estimators, their settings, and notes on them.

Estimators run on one thread, and on the CPU except RealMLP and TabM, which use a graphics card if there is one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

import crcen
from crcen._support.extras import installed_version
from crcen.paper.estimators import ResampledClassifier

__all__ = ["OURS", "PEERS", "Peer", "Pick", "Range", "candidates", "choose_peers"]

# The peer that every other one is compared with.
OURS = "crcen_cv"

Setting = Mapping[str, Any]


# -- settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def at(self, place: float) -> float | int:
        """The number at a place from 0 to 1."""
        if self.log:
            value = float(self.low * (self.high / self.low) ** place)
        else:
            value = float(self.low + (self.high - self.low) * place)
        return round(value) if self.integer else float(f"{value:.4g}")


@dataclass(frozen=True)
class Pick:
    """One of several values."""

    values: Sequence[Any]

    def at(self, place: float) -> Any:
        """The value at a place from 0 to 1."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]


def candidates(default: Setting, space: Mapping[str, Range | Pick], count: int) -> list[dict[str, Any]]:
    """``count`` settings: the default, then points that fill the space evenly; fewer settings are the first of more.

    The points are the additive recurrence ½ + k·g mod 1 with g_j = φ^−j, where φ is the root of φ^(d+1) = φ + 1: it
    covers d dimensions more evenly than random numbers and needs no seed.
    """
    if not space:
        return [dict(default)]
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (len(space) + 1))
    steps = root ** -np.arange(1.0, len(space) + 1)
    points = (0.5 + np.outer(np.arange(1, count), steps)) % 1.0
    drawn = [
        {name: part.at(place) for (name, part), place in zip(space.items(), point.tolist(), strict=True)}
        for point in points
    ]
    return [dict(default), *(dict(default) | setting for setting in drawn)]


@dataclass(frozen=True)
class Peer:
    """One method of the comparison.

    Parameters
    ----------
    name, label, family
        Its key, what tables print, and its kind.
    package
        The distribution it comes from.
    make
        Setting and seed → unfitted estimator on one thread.
    default, space
        Its settings: the first, and where the others lie; an empty space is the default alone.
    modules
        What must be importable.
    searches_itself
        Whether its ``fit`` searches on given folds and keeps out-of-fold logits, as ours does.
    is_weighted, is_balanced
        Whether its rows are weighted so that all classes weigh the same; whether its probabilities are of such classes.
    is_multiclass
        Whether it is run on multiclass tables, too.
    is_costly
        Not part of ``--peers core``.
    max_cells
        Rows × columns of the largest set it is run on without a graphics card.
    is_accelerated
        Whether it uses a graphics card; ``max_cells`` then does not hold.
    note
        What a reader must know to judge it.
    """

    name: str
    label: str
    family: str
    package: str
    make: Callable[[Setting, int], Any]
    default: Setting = field(default_factory=dict)
    space: Mapping[str, Range | Pick] = field(default_factory=dict)
    modules: Sequence[str] = ()
    searches_itself: bool = False
    is_weighted: bool = False
    is_balanced: bool = False
    is_multiclass: bool = False
    is_costly: bool = False
    max_cells: int | None = None
    is_accelerated: bool = False
    note: str = ""

    def settings(self, count: int) -> list[dict[str, Any]]:
        """Up to ``count`` candidates, the default first."""
        return candidates(self.default, self.space, count)

    def device(self) -> str:
        """Name of the graphics card that the peer runs on here, or ``cpu``."""
        import torch

        return torch.cuda.get_device_name() if self.is_accelerated and torch.cuda.is_available() else "cpu"

    def takes(self, cells: int) -> bool:
        """Whether the peer is run on a set of that many rows × columns here."""
        return self.max_cells is None or cells <= self.max_cells or self.device() != "cpu"

    def missing(self) -> str:
        """Why the peer cannot run here, as a sentence, or nothing."""
        try:
            for module in self.modules:
                import_module(module)
        except ImportError as error:
            reason = " ".join(str(error).split())
            return f"{self.package} is not installed here ({reason})" + (f"; {self.note}" if self.note else "")
        return ""

    def version(self) -> str:
        """Package and version."""
        found = installed_version(self.package)
        return self.package if found is None else f"{self.package} {found}"


# -- estimators --------------------------------------------------------------------------------------------------------


def _ours(kind: Any, **how: Any) -> Callable[[Setting, int], Any]:
    return lambda setting, seed: kind(**{"device": "cpu", "random_state": seed, **how, **setting})


def _imported(place: str, **fixed: Any) -> Callable[[Setting, int], Any]:
    """An estimator by ``module:Class``, with fixed parameters; the seed is ``random_state`` unless ``seed_name``."""
    seed_name = fixed.pop("seed_name", "random_state")

    def make(setting: Setting, seed: int) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)(**{**fixed, **setting, seed_name: seed})

    return make


def _scaled(place: str, **fixed: Any) -> Callable[[Setting, int], Any]:
    def make(setting: Setting, seed: int) -> Any:
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import StandardScaler

        return Pipeline([("scale", StandardScaler()), ("model", _imported(place, **fixed)(setting, seed))])

    return make


class AutoGluon:
    """AutoGluon's best_quality preset without a second stacking level, on one processor, within a time limit."""

    def __init__(self, time_limit: float, seed: int) -> None:
        self.time_limit, self.seed = time_limit, seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Its parameters."""
        return {"time_limit": self.time_limit}

    def set_params(self, cv: Any = None) -> "AutoGluon":
        """AutoGluon draws its own folds."""
        return self

    def _frame(self, X: Any) -> Any:
        import pandas as pd

        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])

    def fit(self, X: Any, y: Any) -> "AutoGluon":
        """Fit within the time limit; keep the predictor in memory only."""
        import shutil
        import tempfile

        from autogluon.tabular import TabularPredictor

        folder = tempfile.mkdtemp()
        try:
            predictor = TabularPredictor("label", eval_metric="log_loss", path=folder, verbosity=0)
            predictor.fit(
                self._frame(X).assign(label=y), presets="best_quality", time_limit=self.time_limit, num_cpus=1,
                num_gpus=0, num_stack_levels=0, dynamic_stacking=False,
                ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},
            )  # fmt: skip
            predictor.persist("best")
            self.oof_ = predictor.predict_proba_oof().sort_index(axis=1).to_numpy()
            board = predictor.leaderboard(silent=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.predictor_, self.n_classes_, self.models_ = predictor, int(np.max(y)) + 1, list(board["model"])
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of classes 0 to K − 1; 0 for a class without training rows."""
        found = self.predictor_.predict_proba(self._frame(X))
        p = np.zeros((len(X), self.n_classes_))
        p[:, [int(label) for label in found.columns]] = found.to_numpy()
        return p

    def predict(self, X: Any) -> Any:
        """The likeliest class."""
        return self.predict_proba(X).argmax(axis=1)


def _of_trees(place: str, **fixed: Any) -> Callable[[Setting, int], Any]:
    """An ensemble of decision trees whose ``depth`` is a setting."""

    def make(setting: Setting, seed: int) -> Any:
        from sklearn.tree import DecisionTreeClassifier

        own = {name: value for name, value in setting.items() if name != "depth"}
        tree = DecisionTreeClassifier(max_depth=setting["depth"])
        return _imported(place, **fixed)({"estimator": tree, **own}, seed)

    return make


def _easy_ensemble(setting: Setting, seed: int) -> Any:
    """AdaBoost on several balanced samples; ``rounds`` and ``depth`` are AdaBoost's."""
    from imblearn.ensemble import EasyEnsembleClassifier
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    tree, rate = DecisionTreeClassifier(max_depth=setting["depth"]), setting["learning_rate"]
    base = AdaBoostClassifier(tree, n_estimators=setting["rounds"], learning_rate=rate)
    return EasyEnsembleClassifier(setting["n_estimators"], base, n_jobs=1, random_state=seed)


def _resampled(sampler: str) -> Callable[[Setting, int], Any]:
    return lambda setting, seed: ResampledClassifier(sampler, **setting, device="cpu", random_state=seed)


def _pytabkit(name: str, **fixed: Any) -> Callable[[Setting, int], Any]:
    def make(setting: Setting, seed: int) -> Any:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        return _imported(f"pytabkit:{name}", device=device, n_threads=1, **fixed)(setting, seed)

    return make


# -- the table ---------------------------------------------------------------------------------------------------------

_TREES = Range(100, 400, integer=True)
_RATE = Range(0.02, 0.2, log=True)
_COLUMNS = Range(0.4, 1.0)
_LEAVES = Range(4, 64, log=True, integer=True)
_LEAF_ROWS = Range(5, 60, log=True, integer=True)
_L2 = Range(1e-3, 10.0, log=True)
_PAPER = {"calibration": crcen.Calibration(probability="shift", training_weighting="price")}
_PLAIN = {"hidden": [(8,), (16,), (32,), (64,)], "l2": [1e-4, 1e-3, 1e-2, 1e-1], "n_members": 1}
_PLAIN |= {"encoding": "standard", "calibration": crcen.Calibration(probability="shift")}
_BINS = "it holds scikit-learn below 1.7, so it needs an environment of its own"


def _networks() -> list[Peer]:
    search = crcen.CRCENClassifierCV
    plain = Peer(OURS, "CRCEN, searched, λ = ½", "neural", "crcen", _ours(search, weighting=None),
                 searches_itself=True, is_multiclass=True,
                 note="its own grid and cross-validation on the same folds, trained as stacks")  # fmt: skip
    two = replace(plain, is_multiclass=False)
    sampled = Peer("smote_mlp", "SMOTE + MLP", "neural", "imbalanced-learn", _resampled("smote"),
                   {"hidden": (32,), "l2": 1e-3},
                   {"hidden": Pick([(8,), (16,), (32,), (64,)]), "l2": Range(1e-4, 1e-1, log=True)},
                   modules=("imblearn.over_sampling",), is_balanced=True,
                   note="this package's plain network on the rebalanced rows")  # fmt: skip
    sklearn = Peer("sklearn_mlp", "MLPClassifier", "neural", "scikit-learn",
                   _scaled("sklearn.neural_network:MLPClassifier"),
                   {"hidden_layer_sizes": (100,), "max_iter": 200},
                   {
                       "hidden_layer_sizes": Pick([(16,), (32,), (100,), (32, 32), (100, 100)]),
                       "alpha": Range(1e-4, 10.0, log=True),
                       "learning_rate_init": Range(5e-4, 1e-2, log=True),
                       "max_iter": Range(20, 400, log=True, integer=True),
                   }, is_multiclass=True)  # fmt: skip
    # Its own validation rows are judged by cross entropy, as its manual advises for probabilities.
    realmlp = Peer("realmlp", "RealMLP", "neural", "pytabkit",
                   _pytabkit("RealMLP_TD_Classifier", val_metric_name="cross_entropy", use_ls=False),
                   modules=("pytabkit",), is_costly=True, max_cells=60_000, is_accelerated=True,
                   note="its tuned defaults")  # fmt: skip
    # pytabkit 1.7.3 hands probabilities to metrics that expect logits, so with cross entropy, or with its default, the
    # error rate, TabM stops after an epoch or two if one class is rare. The order of rows is the same either way.
    tabm = replace(realmlp, name="tabm", label="TabM", max_cells=10_000, note="its defaults",
                   make=_pytabkit("TabM_D_Classifier", val_metric_name="1-auc_ovr"))  # fmt: skip
    autogluon = Peer("autogluon", "AutoGluon, best quality, 120 s", "automatic", "autogluon.tabular",
                     lambda setting, seed: AutoGluon(120.0, seed), modules=("autogluon.tabular",), searches_itself=True,
                     is_multiclass=True, is_costly=True,
                     note="its pins conflict with others, so it needs an environment of its own")  # fmt: skip
    return [
        replace(plain, name="committee", label="committee", family="committee",
                make=_ours(crcen.CommitteeClassifier, weighting=None, n_jobs=1),
                note="networks and trees, each searched on the same folds"),
        replace(plain, name="committee_best", label="committee, best effort, 120 s", family="committee", is_costly=True,
                make=_ours(crcen.CommitteeClassifier, weighting=None, n_jobs=1, effort="best", time_limit=120.0),
                note="more settings, several seeds and repeated folds within 120 seconds"),
        replace(two, name="crcen_settings", label="CRCEN, best settings averaged, λ = ½",
                make=_ours(search, weighting=None, search=crcen.Search(n_settings=3))),
        plain,
        replace(two, name="crcen_cv_balanced", label="CRCEN, searched, balanced",
                make=_ours(search, weighting="balanced", **_PAPER)),
        replace(plain, name="crcen", label="CRCEN, defaults", make=_ours(crcen.CRCENClassifier),
                searches_itself=False, note=""),
        replace(two, name="mlp_threshold", label="MLP (ours, plain)", make=_ours(search, weighting=None, **_PLAIN),
                note="single plain networks on standardised columns, searched as stacks"),
        sampled,
        replace(sampled, name="adasyn_mlp", label="ADASYN + MLP", make=_resampled("adasyn")),
        sklearn,
        realmlp,
        tabm,
        autogluon,
        replace(autogluon, name="autogluon_60", label="AutoGluon, best quality, 60 s",
                make=lambda setting, seed: AutoGluon(60.0, seed)),
    ]  # fmt: skip


def _boosting() -> list[Peer]:
    lightgbm = {"n_estimators": _TREES, "learning_rate": _RATE, "num_leaves": _LEAVES, "min_child_samples": _LEAF_ROWS,
                "reg_lambda": _L2, "colsample_bytree": _COLUMNS}  # fmt: skip
    xgboost = {"n_estimators": _TREES, "learning_rate": _RATE, "max_depth": Range(2, 8, integer=True),
               "min_child_weight": Range(0.5, 20.0, log=True), "reg_lambda": Range(1e-2, 10.0, log=True),
               "subsample": Range(0.6, 1.0), "colsample_bytree": _COLUMNS}  # fmt: skip
    histogram = {"max_iter": _TREES, "learning_rate": _RATE, "max_leaf_nodes": _LEAVES, "min_samples_leaf": _LEAF_ROWS,
                 "l2_regularization": _L2, "max_features": _COLUMNS}  # fmt: skip
    catboost = {"iterations": _TREES, "learning_rate": Range(0.03, 0.3, log=True), "depth": Range(3, 8, integer=True),
                "l2_leaf_reg": Range(1.0, 10.0, log=True), "rsm": _COLUMNS}  # fmt: skip
    return [
        Peer("lightgbm", "LightGBM", "tree", "lightgbm", _imported("lightgbm:LGBMClassifier", n_jobs=1, verbose=-1),
             space=lightgbm, modules=("lightgbm",), is_multiclass=True),
        Peer("xgboost", "XGBoost", "tree", "xgboost",
             _imported("xgboost:XGBClassifier", tree_method="hist", n_jobs=1, verbosity=0),
             {"n_estimators": 100}, xgboost, modules=("xgboost",), is_multiclass=True),
        Peer("hist_gb", "HistGradientBoosting", "tree", "scikit-learn",
             _imported("sklearn.ensemble:HistGradientBoostingClassifier", early_stopping=False),
             space=histogram, is_multiclass=True),
        Peer("catboost", "CatBoost", "tree", "catboost",
             _imported("catboost:CatBoostClassifier", thread_count=1, verbose=False, allow_writing_files=False,
                       seed_name="random_seed"),
             {"iterations": 400}, catboost, modules=("catboost",), is_costly=True, is_multiclass=True),
    ]  # fmt: skip


def _ensembles() -> list[Peer]:
    members, depth = Range(10, 100, integer=True), Range(2, 16, integer=True)
    self_paced = Peer("self_paced", "self-paced ensemble", "ensemble", "imbalanced-ensemble",
                      _of_trees("imbens.ensemble:SelfPacedEnsembleClassifier", n_jobs=1),
                      {"n_estimators": 50, "k_bins": 5, "depth": None},
                      {"n_estimators": members, "k_bins": Range(3, 15, integer=True), "depth": depth},
                      modules=("imbens.ensemble",), is_balanced=True, note=_BINS)  # fmt: skip
    balanced = replace(self_paced, package="imbalanced-learn", modules=("imblearn.ensemble",), note="")
    return [
        replace(balanced, name="balanced_rf", label="balanced random forest", is_multiclass=True,
                make=_imported("imblearn.ensemble:BalancedRandomForestClassifier", sampling_strategy="all",
                               replacement=True, bootstrap=False, n_jobs=1),
                default={"n_estimators": 200},
                space={"max_features": Range(0.05, 0.7, log=True),
                       "min_samples_leaf": Range(1, 10, log=True, integer=True),
                       "max_depth": Range(4, 24, log=True, integer=True)}),
        replace(balanced, name="easy_ensemble", label="EasyEnsemble", make=_easy_ensemble,
                default={"n_estimators": 10, "rounds": 50, "learning_rate": 1.0, "depth": 1},
                space={"n_estimators": Range(5, 20, integer=True), "rounds": Range(10, 60, log=True, integer=True),
                       "learning_rate": Range(0.1, 1.0, log=True), "depth": Range(1, 4, integer=True)}),
        replace(balanced, name="rusboost", label="RUSBoost", make=_of_trees("imblearn.ensemble:RUSBoostClassifier"),
                default={"n_estimators": 50, "learning_rate": 1.0, "depth": 1},
                space={"n_estimators": Range(20, 200, log=True, integer=True),
                       "learning_rate": Range(0.05, 1.0, log=True), "depth": Range(1, 8, integer=True)}),
        self_paced,
        replace(self_paced, name="balance_cascade", label="BalanceCascade",
                make=_of_trees("imbens.ensemble:BalanceCascadeClassifier", n_jobs=1),
                default={"n_estimators": 50, "depth": None}, space={"n_estimators": members, "depth": depth}),
    ]  # fmt: skip


def _all_peers() -> list[Peer]:
    logistic = Peer("logistic", "logistic regression", "linear", "scikit-learn",
                    _scaled("sklearn.linear_model:LogisticRegression", max_iter=1000),
                    {"C": 1.0}, {"C": Range(1e-4, 1e2, log=True)})  # fmt: skip
    found = []
    for peer in [*_networks(), *_boosting(), *_ensembles(), logistic]:
        found.append(peer)
        if peer.name in ("sklearn_mlp", "lightgbm", "xgboost", "hist_gb", "catboost", "logistic"):
            weighted = {"name": f"{peer.name}_weighted", "label": f"{peer.label}, weighted"}
            found.append(replace(peer, **weighted, is_weighted=True, is_balanced=True))
    return found


PEERS: dict[str, Peer] = {peer.name: peer for peer in _all_peers()}


def choose_peers(which: str | Sequence[str] = "core", *, multiclass: bool = False) -> list[Peer]:
    """The peers of ``core``, of ``all``, or of names with commas between them."""
    names = which.split(",") if isinstance(which, str) else list(which)
    peers = {name: peer for name, peer in PEERS.items() if peer.is_multiclass or not multiclass}
    if names == ["all"]:
        return list(peers.values())
    if names == ["core"]:
        return [peer for peer in peers.values() if not peer.is_costly]
    unknown = [name for name in names if name not in peers]
    if unknown or not names:
        where = " of multiclass tables" if multiclass else ""
        raise crcen.InvalidParameter(
            f"there is no peer {', '.join(unknown)}{where}: choose core, all or {', '.join(peers)}."
        )
    return [peer for peer in peers.values() if peer.name in names]

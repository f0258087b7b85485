"""The compared methods: one name, one factory of a scikit-learn estimator."""

from dataclasses import dataclass, field
from typing import Any

from crcen._support.extras import need
from crcen.exceptions import InvalidParameter
from crcen.paper import Classifier, Make, Settings


@dataclass(frozen=True)
class NetworkTraining:
    """Training of a method's network, for a search that stacks many of them."""

    weighting: object  # of the training
    price: object  # the weighting of the decision
    loss: str = "cross_entropy"
    sampler: str | None = None  # that rebalances the training rows first


@dataclass(frozen=True)
class Tuning:
    """Search of a method that the stacks do not train: the same folds, as many settings, the same score."""

    what: str = "network"  # the grid over hidden and l2; "cost": as many cost ratios
    is_natural: bool = False  # predict_proba is natural; otherwise scores are compared at their best scale
    networks: int | None = None  # limit per setting, for costly methods
    lighter: Settings = field(default_factory=dict)  # parameters of the search alone


@dataclass(frozen=True)
class Method:
    """A named method."""

    label: str  # for tables: the paper's if it has one
    summary: str
    source: str
    make: Make  # keyword arguments → unfitted estimator
    changes: str = ""  # what it changes in plain training: some of rows, loss, margin, threshold, vote
    # What its `predict_proba` is: "natural"; natural after a known "factor" is divided out; or "calibrate": no known
    # map makes it natural. `crcen.PosteriorCorrection` follows this.
    probabilities: str = "natural"
    training: NetworkTraining | None = None  # its search: by stacks over hidden and l2, ...
    tuning: Tuning | None = None  # ... or one by one
    budget: str = ""  # limit of its time at the defaults, if the method of the paper would take too long
    in_paper: bool = True  # whether the paper compares it
    in_table3: bool = True  # whether Table 3 runs it by default


def factory(path: str, *, is_papers: bool = False, **defaults: object) -> Make:
    """Factory of the estimator "module.Class", imported on first use; with the paper's network if ``is_papers``."""

    def make(**params: object) -> Classifier:
        module, _, name = path.rpartition(".")
        found = need(module, "baselines")
        return getattr(found, name)(**{**(found.PAPER if is_papers else {}), **defaults, **params})

    return make


def _own_method(
    label: str, summary: str, source: str, path: str, changes: str, probabilities: str = "natural", **about: Any
) -> Method:
    """A system outside the paper's comparison that this package implements; ``about`` are further fields."""
    source, defaults = f"this package, after {source}", about.pop("defaults", {})
    about |= {"in_paper": False, "in_table3": False}
    return Method(label, summary, source, factory(f"crcen.paper.{path}", **defaults), changes, probabilities, **about)


def _library_method(label: str, summary: str, kind: str, probabilities: str, is_papers: bool = True) -> Method:
    """An ensemble of imbalanced-learn with its defaults."""
    source, make = f"imbalanced-learn's {kind}", factory(f"imblearn.ensemble.{kind}")
    return Method(label, summary, source, make, "rows vote", probabilities, in_paper=is_papers, in_table3=is_papers)


def _resampled(name: str) -> Method:
    label, training = name.upper(), NetworkTraining(None, "balanced", sampler=name)
    summary = f"rows rebalanced by {label}, then the plain network"
    make = factory("crcen.paper.estimators.ResampledClassifier", sampler=name)
    source = f"imbalanced-learn's {label}, this package's network"
    return Method(label, summary, source, make, "rows", "calibrate", training=training)


def _adac(number: int, where: str) -> Method:
    path, summary = "estimators.AdaCClassifier", f"boosting with costs {where} the exponent of its row weights"
    label, source, how = f"AdaC{number}", "Sun and others 2007", {"variant": f"adac{number}"}
    return _own_method(label, summary, source, path, "loss vote", "calibrate", tuning=_COST, defaults=how)


_BALANCED = NetworkTraining("balanced", "balanced")
_SQUARED = NetworkTraining("balanced", "balanced", "squared_error")
_GRID, _ONE, _COST = Tuning(), Tuning(networks=1), Tuning("cost", networks=1)
_NATURAL = Tuning(is_natural=True)
_PAPER = "crcen.paper.estimators.CRCENClassifier"

# One paragraph per method: label, summary, source; factory, changes, probabilities, search.
# fmt: off
METHODS: dict[str, Method] = {
    "mlp": Method(
        "MLP", "network with plain cross entropy, decided at 1/2", "this package, weighting=None",
        factory(_PAPER, is_papers=True, weighting=None), training=NetworkTraining(None, None)),
    "csmlp": Method(
        "CSMLP", "network with class-weighted squared error on ±1 targets", "this package, after Castro and Braga 2013",
        factory("crcen.paper.estimators.CSMLPClassifier"), "loss", training=_SQUARED),
    "crcen": Method(
        "CRCEN", "network with class-wise reweighted cross entropy, α = 1", "this package, after Li and Zhu",
        factory(_PAPER, is_papers=True), "loss", training=_BALANCED),
    "adasyn": _resampled("adasyn"),
    "smote": _resampled("smote"),
    "rusboost": _library_method("RUSB", "RUSBoost with default base classifier", "RUSBoostClassifier", "calibrate"),
    "easyensemble": _library_method(
        "EE", "EasyEnsemble with default base classifier", "EasyEnsembleClassifier", "calibrate"),
    "balanced_rf": _library_method(
        "BRF", "balanced random forest with defaults", "BalancedRandomForestClassifier", "factor"),
    "mlp_threshold": Method(
        "MLP, threshold", "network with plain cross entropy, decided at 1−λ", "this package, the control",
        factory("crcen.paper.estimators.MovedThresholdClassifier", is_papers=True), "threshold",
        training=NetworkTraining(None, "balanced"), in_paper=False),
    "crcen_ensemble": Method(
        "CRCEN, averaged", "several CRCEN networks averaged as logits", "this package",
        factory(_PAPER, is_papers=True, n_members=8), "loss vote", training=_BALANCED, in_paper=False),
    "adaboost": Method(
        "AdaBoost", "AdaBoost with stumps", "scikit-learn's AdaBoostClassifier, after Freund and Schapire 1997",
        factory("sklearn.ensemble.AdaBoostClassifier"), "loss vote", "calibrate", in_paper=False, in_table3=False),
    "adaboost_threshold": _own_method(
        "AdaBoost, threshold", "plain AdaBoost, calibrated out of fold, decided at 1−λ: the control of adac1 to adac3",
        "Nikolaou and others 2016", "estimators.CalibratedBoostingClassifier", "threshold"),
    "balanced_bagging": _library_method(
        "BBag", "trees on balanced draws of the rows, averaged", "BalancedBaggingClassifier", "factor", False),
    "adac1": _adac(1, "inside"),
    "adac2": _adac(2, "outside"),
    "adac3": _adac(3, "inside and outside"),
    "balance_cascade": _own_method(
        "Cascade", "boosters on balanced samples, each dropping the negatives that it classifies with certainty",
        "Liu, Wu and Zhou 2009", "estimators.BalanceCascadeClassifier", "rows threshold vote", "calibrate"),
    "gsvm_ru": _own_method(
        "GSVM-RU", "support vector machine on positives and granules of negative support vectors",
        "Tang and others 2009", "estimators.GranularSVMClassifier", "rows", "calibrate"),
    "eusboost": _own_method(
        "EUSBoost", "boosting on negatives that evolutionary search selects in each round",
        "Galar and others 2013", "estimators.EUSBoostClassifier", "rows vote", "calibrate",
        budget="1,000 rows, 300 choices tried a round"),
    "mfe": _own_method(
        "MFE", "network with the mean squared errors of both classes added, which is CSMLP at balanced weights",
        "Wang and others 2016", "estimators.CSMLPClassifier", "loss", training=_SQUARED),
    "msfe": _own_method(
        "MSFE", "the same with both errors squared: the class with the larger one counts more",
        "Wang and others 2016", "loss_networks.MeanSquaredFalseErrorClassifier", "loss",
        tuning=Tuning(is_natural=True, networks=1)),
    "s2s": _own_method(
        "s2s", "network on pairs of rows, decided by a vote over references",
        "Dumpala and others 2018", "estimators.PairedClassifier", "rows vote",
        tuning=Tuning(is_natural=True, networks=1, lighter={"max_pairs": 2000}),
        budget="20,000 pairs of a kind, 25 references of a class"),
    "sosr": _own_method(
        "SOSR", "network that predicts the cost of each decision and takes the cheapest",
        "Chung, Lin and Yang 2016", "loss_networks.OneSidedRegressionClassifier", "loss", "calibrate", tuning=_GRID),
    "cosen": _own_method(
        "CoSen", "network with learned costs in its softmax, dropped in prediction",
        "Khan and others 2018", "loss_networks.LearnedCostClassifier", "loss", "calibrate", tuning=_ONE),
    "crl": _own_method(
        "CRL", "network with cross entropy and hard triplets of the rare class",
        "Dong, Gong and Zhu 2017", "loss_networks.ClassRectificationClassifier", "loss", "calibrate", tuning=_ONE),
    "lmle": _own_method(
        "LMLE", "embedding from quintuplets over clusters, decided by neighbours",
        "Huang and others 2016", "loss_networks.EmbeddedNeighboursClassifier", "loss vote", "calibrate", tuning=_ONE,
        budget="10 clusters of a class, 100 rows of each kept as neighbours"),
    "logit_adjustment": _own_method(
        "Logit adj.", "network with log shares added to its outputs in the loss: balanced softmax",
        "Menon 2021 and Ren 2020", "loss_networks.LogitAdjustedClassifier", "margin", tuning=_NATURAL),
    "ldam": _own_method(
        "LDAM", "network with margins by the fourth root of the classes' sizes",
        "Cao and others 2019", "loss_networks.LDAMClassifier", "margin", tuning=_NATURAL),
    "focal": _own_method(
        "Focal", "network with focal loss, decided at 1/2",
        "Lin and others 2017", "loss_networks.FocalClassifier", "loss", tuning=_NATURAL),
    "class_balanced": _own_method(
        "CB", "network weighted by the effective number of rows",
        "Cui and others 2019", "loss_networks.ClassBalancedClassifier", "loss", tuning=_NATURAL),
}
# fmt: on


def make_method(name: str, **params: object) -> Classifier:
    """Make an unfitted estimator of one of `METHODS` with these parameters."""
    if name not in METHODS:
        raise InvalidParameter(f"there is no method {name!r}: choose one of {', '.join(METHODS)}.")
    return METHODS[name].make(**params)

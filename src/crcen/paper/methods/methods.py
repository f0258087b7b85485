"""The methods of the comparison: one name, one factory of a scikit-learn estimator."""

from collections.abc import Callable
from functools import partial
from typing import Any

from crcen._support.extras import need
from crcen.exceptions import InvalidParameter
from crcen.models.classifier import CRCENClassifier
from crcen.paper.methods.adac import AdaCClassifier
from crcen.paper.methods.balance_cascade import BalanceCascadeClassifier
from crcen.paper.methods.calibrated_boosting import CalibratedBoostingClassifier
from crcen.paper.methods.csmlp import CSMLPClassifier
from crcen.paper.methods.embedded_neighbours import EmbeddedNeighboursClassifier
from crcen.paper.methods.eusboost import EUSBoostClassifier
from crcen.paper.methods.false_error import MeanFalseErrorClassifier
from crcen.paper.methods.granular_svm import GranularSVMClassifier
from crcen.paper.methods.method import Method, NetworkTraining, Tuning
from crcen.paper.methods.paired import PairedClassifier
from crcen.paper.methods.resampled import ResampledClassifier
from crcen.paper.methods.rival_losses import (
    ClassBalancedClassifier,
    ClassRectificationClassifier,
    FocalClassifier,
    LDAMClassifier,
    LearnedCostClassifier,
    LogitAdjustedClassifier,
    OneSidedRegressionClassifier,
)
from crcen.paper.methods.threshold import MovedThresholdClassifier

__all__ = ["METHODS", "Method", "NetworkTraining", "Tuning", "make_method"]


def _ensemble(name: str) -> Callable[..., Any]:
    """An ensemble of imbalanced-learn with its defaults."""

    def make(**params: Any) -> Any:
        return getattr(need("imblearn.ensemble", "baselines"), name)(**params)

    return make


def _adaboost(**params: Any) -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(**params)


def _related(label: str, summary: str, source: str, make: Callable[..., Any], **more: Any) -> Method:
    """A system that the paper names and does not compare, or the control of one."""
    return Method(label, summary, source, make, **more, in_paper=False, in_table3=False)


# The paper's network, which the package's defaults have left behind.
_PAPER = {
    "hidden": (32,),
    "l2": 1e-4,
    "n_members": 1,
    "encoding": "standard",
    "training_weighting": "price",
    "balance": True,
    "probability": "shift",
}

METHODS: dict[str, Method] = {
    "mlp": Method(
        "MLP",
        "network with plain cross entropy, decided at 1/2",
        "this package, weighting=None",
        lambda **params: CRCENClassifier(**{"weighting": None, **_PAPER, **params}),
        training=NetworkTraining(weighting=None, price=None),
    ),
    "csmlp": Method(
        "CSMLP",
        "network with class-weighted squared error on ±1 targets",
        "this package, after Castro and Braga 2013",
        lambda **params: CSMLPClassifier(**params),
        training=NetworkTraining(weighting="balanced", price="balanced", loss="squared_error"),
        changes="loss",
    ),
    "crcen": Method(
        "CRCEN",
        "network with class-wise reweighted cross entropy, α = 1",
        "this package, after Li and Zhu",
        lambda **params: CRCENClassifier(**{**_PAPER, **params}),
        training=NetworkTraining(weighting="balanced", price="balanced"),
        changes="loss",
    ),
    "adasyn": Method(
        "ADASYN",
        "rows rebalanced by ADASYN, then the plain network",
        "imbalanced-learn's ADASYN, this package's network",
        lambda **params: ResampledClassifier("adasyn", **params),
        training=NetworkTraining(weighting=None, price="balanced", sampler="adasyn"),
        changes="rows",
        probabilities="calibrate",
    ),
    "smote": Method(
        "SMOTE",
        "rows rebalanced by SMOTE, then the plain network",
        "imbalanced-learn's SMOTE, this package's network",
        lambda **params: ResampledClassifier("smote", **params),
        training=NetworkTraining(weighting=None, price="balanced", sampler="smote"),
        changes="rows",
        probabilities="calibrate",
    ),
    "rusboost": Method(
        "RUSB",
        "RUSBoost with default base classifier",
        "imbalanced-learn's RUSBoostClassifier",
        _ensemble("RUSBoostClassifier"),
        changes="rows vote",
        probabilities="calibrate",
    ),
    "easyensemble": Method(
        "EE",
        "EasyEnsemble with default base classifier",
        "imbalanced-learn's EasyEnsembleClassifier",
        _ensemble("EasyEnsembleClassifier"),
        changes="rows vote",
        probabilities="calibrate",
    ),
    "balanced_rf": Method(
        "BRF",
        "balanced random forest with defaults",
        "imbalanced-learn's BalancedRandomForestClassifier",
        _ensemble("BalancedRandomForestClassifier"),
        changes="rows vote",
        probabilities="factor",
    ),
    "mlp_threshold": Method(
        "MLP, threshold",
        "network with plain cross entropy, decided at 1−λ",
        "this package, the control",
        lambda **params: MovedThresholdClassifier(**{**_PAPER, **params}),
        training=NetworkTraining(weighting=None, price="balanced"),
        in_paper=False,
        changes="threshold",
    ),
    "crcen_ensemble": Method(
        "CRCEN, averaged",
        "several CRCEN networks averaged as logits",
        "this package",
        lambda **params: CRCENClassifier(**{**_PAPER, "n_members": 8, **params}),
        training=NetworkTraining(weighting="balanced", price="balanced"),
        in_paper=False,
        changes="loss vote",
    ),
    "adaboost": _related(
        "AdaBoost",
        "AdaBoost with stumps",
        "scikit-learn's AdaBoostClassifier, after Freund and Schapire 1997",
        _adaboost,
        changes="loss vote",
        probabilities="calibrate",
    ),
    "adaboost_threshold": _related(
        "AdaBoost, threshold",
        "plain AdaBoost, calibrated out of fold, decided at 1−λ: the control of adac1 to adac3",
        "this package, after Nikolaou and others 2016",
        lambda **params: CalibratedBoostingClassifier(**params),
        changes="threshold",
    ),
    "balanced_bagging": _related(
        "BBag",
        "trees on balanced draws of the rows, averaged",
        "imbalanced-learn's BalancedBaggingClassifier",
        _ensemble("BalancedBaggingClassifier"),
        changes="rows vote",
        probabilities="factor",
    ),
    **{
        f"adac{number}": _related(
            f"AdaC{number}",
            f"boosting with costs {where} the exponent of its row weights",
            "this package, after Sun and others 2007",
            partial(AdaCClassifier, f"adac{number}"),
            tuning=Tuning("cost", networks=1),
            changes="loss vote",
            probabilities="calibrate",
        )
        for number, where in ((1, "inside"), (2, "outside"), (3, "inside and outside"))
    },
    "balance_cascade": _related(
        "Cascade",
        "boosters on balanced draws, each dropping the negatives it is sure of",
        "this package, after Liu, Wu and Zhou 2009",
        lambda **params: BalanceCascadeClassifier(**params),
        changes="rows threshold vote",
        probabilities="calibrate",
    ),
    "gsvm_ru": _related(
        "GSVM-RU",
        "support vector machine on positives and granules of negative support vectors",
        "this package, after Tang and others 2009",
        lambda **params: GranularSVMClassifier(**params),
        changes="rows",
        probabilities="calibrate",
    ),
    "eusboost": _related(
        "EUSBoost",
        "boosting on negatives that evolution picks in each round",
        "this package, after Galar and others 2013",
        lambda **params: EUSBoostClassifier(**params),
        changes="rows vote",
        probabilities="calibrate",
        budget="1,000 rows, 300 choices tried a round",
    ),
    "mfe": _related(
        "MFE",
        "network with the mean squared errors of both classes added",
        "this package, after Wang and others 2016",
        partial(MeanFalseErrorClassifier, False),
        training=NetworkTraining(weighting="balanced", price="balanced", loss="squared_error"),
        changes="loss",
    ),
    "msfe": _related(
        "MSFE",
        "the same with both errors squared: the class with the larger one counts more",
        "this package, after Wang and others 2016",
        partial(MeanFalseErrorClassifier, True),
        tuning=Tuning(is_natural=True, networks=1),
        changes="loss",
    ),
    "s2s": _related(
        "s2s",
        "network that reads two rows at once, decided by a vote over references",
        "this package, after Dumpala and others 2018",
        lambda **params: PairedClassifier(**params),
        tuning=Tuning(is_natural=True, networks=1, lighter={"max_pairs": 2000}),
        changes="rows vote",
        budget="20,000 pairs of a kind, 25 references of a class",
    ),
    "sosr": _related(
        "SOSR",
        "network that answers what decisions cost, decided by the cheapest",
        "this package, after Chung, Lin and Yang 2016",
        lambda **params: OneSidedRegressionClassifier(**params),
        tuning=Tuning(),
        changes="loss",
        probabilities="calibrate",
    ),
    "cosen": _related(
        "CoSen",
        "network with learned costs in its softmax, dropped in prediction",
        "this package, after Khan and others 2018",
        lambda **params: LearnedCostClassifier(**params),
        tuning=Tuning(networks=1),
        changes="loss",
        probabilities="calibrate",
    ),
    "crl": _related(
        "CRL",
        "network with hard triplets of the rare class beside cross entropy",
        "this package, after Dong, Gong and Zhu 2017",
        lambda **params: ClassRectificationClassifier(**params),
        tuning=Tuning(networks=1),
        changes="loss",
        probabilities="calibrate",
    ),
    "lmle": _related(
        "LMLE",
        "embedding from quintuplets over clusters, decided by neighbours",
        "this package, after Huang and others 2016",
        lambda **params: EmbeddedNeighboursClassifier(**params),
        tuning=Tuning(networks=1),
        changes="loss vote",
        probabilities="calibrate",
        budget="10 clusters of a class, 100 rows of each kept as neighbours",
    ),
    "logit_adjustment": _related(
        "Logit adj.",
        "network with log shares added to its outputs in the loss: balanced softmax",
        "this package, after Menon 2021 and Ren 2020",
        lambda **params: LogitAdjustedClassifier(**params),
        tuning=Tuning(is_natural=True),
        changes="margin",
    ),
    "ldam": _related(
        "LDAM",
        "network with margins by the fourth root of the classes' sizes",
        "this package, after Cao and others 2019",
        lambda **params: LDAMClassifier(**params),
        tuning=Tuning(),
        changes="margin",
        probabilities="calibrate",
    ),
    "focal": _related(
        "Focal",
        "network with focal loss, decided at 1/2",
        "this package, after Lin and others 2017",
        lambda **params: FocalClassifier(**params),
        tuning=Tuning(),
        changes="loss",
        probabilities="calibrate",
    ),
    "class_balanced": _related(
        "CB",
        "network weighted by the effective number of rows",
        "this package, after Cui and others 2019",
        lambda **params: ClassBalancedClassifier(**params),
        tuning=Tuning(is_natural=True),
        changes="loss",
    ),
}


def make_method(name: str, **params: Any) -> Any:
    """Make an unfitted estimator of a named method.

    Parameters
    ----------
    name : str
        One of `METHODS`.
    **params
        Passed to the estimator.
    """
    if name not in METHODS:
        raise InvalidParameter(f"there is no method {name!r}: choose one of {', '.join(METHODS)}.")
    return METHODS[name].make(**params)

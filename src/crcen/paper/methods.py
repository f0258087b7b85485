"""The compared methods: one name, one factory of a scikit-learn estimator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from crcen._support.extras import need
from crcen.exceptions import InvalidParameter

__all__ = ["METHODS", "Method", "NetworkTraining", "Tuning", "make_method"]


@dataclass(frozen=True)
class NetworkTraining:
    """Training of a method's network, for a search that stacks many of them.

    Parameters
    ----------
    weighting, loss
        The training objective.
    price
        The weighting of the decision.
    sampler
        Sampler that rebalances the training rows first, or ``None``.
    """

    weighting: Any
    price: Any
    loss: str = "cross_entropy"
    sampler: str | None = None


@dataclass(frozen=True)
class Tuning:
    """Search of a method that the stacks do not train: the same folds, as many settings, the same score.

    Parameters
    ----------
    what
        ``"network"`` is the grid over ``hidden`` and ``l2``; ``"cost"`` as many cost ratios.
    is_natural
        Whether ``predict_proba`` is natural. Otherwise settings are compared by the decision score at its best scale.
    networks
        Maximum number of networks per setting, for costly methods.
    lighter
        Parameters of the search that differ from those of the fit, for the same reason.
    """

    what: str = "network"
    is_natural: bool = False
    networks: int | None = None
    lighter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A named method.

    Parameters
    ----------
    label
        Short name for tables, the paper's if it has one.
    summary, source
        Description and origin.
    make
        Keyword arguments → unfitted estimator.
    changes
        What it changes in plain training: some of ``rows``, ``loss``, ``margin``, ``threshold``, ``vote``.
    probabilities
        What its ``predict_proba`` is: ``"natural"``; natural after a known ``"factor"`` is divided out; or
        ``"calibrate"``: no known map makes it natural. `crcen.PosteriorCorrection` follows this.
    training
        For methods whose networks the stacks train and that share the grid over ``hidden`` and ``l2``.
    tuning
        For other methods with a search.
    budget
        Limit of its time at the defaults, if the method of the paper would take too long.
    in_paper
        Whether the paper compares it.
    in_table3
        Whether Table 3 runs it by default. Systems that only the paper's related work names are not run.
    """

    label: str
    summary: str
    source: str
    make: Callable[..., Any]
    changes: str = ""
    probabilities: str = "natural"
    training: NetworkTraining | None = None
    tuning: Tuning | None = None
    budget: str = ""
    in_paper: bool = True
    in_table3: bool = True


def _own(path: str, *, is_papers: bool = False, **defaults: Any) -> Callable[..., Any]:
    """Factory of the estimator "module.Class" of this package, imported on first use; with the paper's network."""

    def make(**params: Any) -> Any:
        module, name = path.split(".")
        found = import_module(f"crcen.paper.{module}")
        return getattr(found, name)(**{**(found.PAPER if is_papers else {}), **defaults, **params})

    return make


def _ensemble(name: str) -> Callable[..., Any]:
    """Factory of an ensemble of imbalanced-learn with its defaults."""

    def make(**params: Any) -> Any:
        return getattr(need("imblearn.ensemble", "baselines"), name)(**params)

    return make


def _adaboost(**params: Any) -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(**params)


def _related(*described: Any, **more: Any) -> Method:
    """A system that the paper names and does not compare, a later loss, or a control."""
    return replace(Method(*described, **more), in_paper=False, in_table3=False)


_BALANCED = NetworkTraining("balanced", "balanced")
_SQUARED = NetworkTraining("balanced", "balanced", "squared_error")

METHODS: dict[str, Method] = {
    "mlp": Method(
        "MLP",
        "network with plain cross entropy, decided at 1/2",
        "this package, weighting=None",
        _own("networks.CRCENClassifier", is_papers=True, weighting=None),
        training=NetworkTraining(None, None),
    ),
    "csmlp": Method(
        "CSMLP",
        "network with class-weighted squared error on ±1 targets",
        "this package, after Castro and Braga 2013",
        _own("networks.CSMLPClassifier"),
        "loss",
        training=_SQUARED,
    ),
    "crcen": Method(
        "CRCEN",
        "network with class-wise reweighted cross entropy, α = 1",
        "this package, after Li and Zhu",
        _own("networks.CRCENClassifier", is_papers=True),
        "loss",
        training=_BALANCED,
    ),
    **{
        name: Method(
            name.upper(),
            f"rows rebalanced by {name.upper()}, then the plain network",
            f"imbalanced-learn's {name.upper()}, this package's network",
            _own("networks.ResampledClassifier", sampler=name),
            "rows",
            "calibrate",
            training=NetworkTraining(None, "balanced", sampler=name),
        )
        for name in ("adasyn", "smote")
    },
    **{
        name: Method(label, summary, f"imbalanced-learn's {kind}", _ensemble(kind), "rows vote", probabilities)
        for name, label, summary, kind, probabilities in (
            ("rusboost", "RUSB", "RUSBoost with default base classifier", "RUSBoostClassifier", "calibrate"),
            ("easyensemble", "EE", "EasyEnsemble with default base classifier", "EasyEnsembleClassifier", "calibrate"),
            ("balanced_rf", "BRF", "balanced random forest with defaults", "BalancedRandomForestClassifier", "factor"),
        )
    },
    "mlp_threshold": Method(
        "MLP, threshold",
        "network with plain cross entropy, decided at 1−λ",
        "this package, the control",
        _own("networks.MovedThresholdClassifier", is_papers=True),
        "threshold",
        training=NetworkTraining(None, "balanced"),
        in_paper=False,
    ),
    "crcen_ensemble": Method(
        "CRCEN, averaged",
        "several CRCEN networks averaged as logits",
        "this package",
        _own("networks.CRCENClassifier", is_papers=True, n_members=8),
        "loss vote",
        training=_BALANCED,
        in_paper=False,
    ),
    "adaboost": _related(
        "AdaBoost",
        "AdaBoost with stumps",
        "scikit-learn's AdaBoostClassifier, after Freund and Schapire 1997",
        _adaboost,
        "loss vote",
        "calibrate",
    ),
    "adaboost_threshold": _related(
        "AdaBoost, threshold",
        "plain AdaBoost, calibrated out of fold, decided at 1−λ: the control of adac1 to adac3",
        "this package, after Nikolaou and others 2016",
        _own("boosting.CalibratedBoostingClassifier"),
        "threshold",
    ),
    "balanced_bagging": _related(
        "BBag",
        "trees on balanced draws of the rows, averaged",
        "imbalanced-learn's BalancedBaggingClassifier",
        _ensemble("BalancedBaggingClassifier"),
        "rows vote",
        "factor",
    ),
    **{
        f"adac{number}": _related(
            f"AdaC{number}",
            f"boosting with costs {where} the exponent of its row weights",
            "this package, after Sun and others 2007",
            _own("boosting.AdaCClassifier", variant=f"adac{number}"),
            "loss vote",
            "calibrate",
            tuning=Tuning("cost", networks=1),
        )
        for number, where in ((1, "inside"), (2, "outside"), (3, "inside and outside"))
    },
    "balance_cascade": _related(
        "Cascade",
        "boosters on balanced draws, each dropping the negatives it is sure of",
        "this package, after Liu, Wu and Zhou 2009",
        _own("boosting.BalanceCascadeClassifier"),
        "rows threshold vote",
        "calibrate",
    ),
    "gsvm_ru": _related(
        "GSVM-RU",
        "support vector machine on positives and granules of negative support vectors",
        "this package, after Tang and others 2009",
        _own("undersampling.GranularSVMClassifier"),
        "rows",
        "calibrate",
    ),
    "eusboost": _related(
        "EUSBoost",
        "boosting on negatives that evolution picks in each round",
        "this package, after Galar and others 2013",
        _own("undersampling.EUSBoostClassifier"),
        "rows vote",
        "calibrate",
        budget="1,000 rows, 300 choices tried a round",
    ),
    "mfe": _related(
        "MFE",
        "network with the mean squared errors of both classes added, which is CSMLP at balanced weights",
        "this package, after Wang and others 2016",
        _own("networks.CSMLPClassifier"),
        "loss",
        training=_SQUARED,
    ),
    "msfe": _related(
        "MSFE",
        "the same with both errors squared: the class with the larger one counts more",
        "this package, after Wang and others 2016",
        _own("loss_networks.MeanSquaredFalseErrorClassifier"),
        "loss",
        tuning=Tuning(is_natural=True, networks=1),
    ),
    "s2s": _related(
        "s2s",
        "network that reads two rows at once, decided by a vote over references",
        "this package, after Dumpala and others 2018",
        _own("networks.PairedClassifier"),
        "rows vote",
        tuning=Tuning(is_natural=True, networks=1, lighter={"max_pairs": 2000}),
        budget="20,000 pairs of a kind, 25 references of a class",
    ),
    "sosr": _related(
        "SOSR",
        "network that answers what decisions cost, decided by the cheapest",
        "this package, after Chung, Lin and Yang 2016",
        _own("loss_networks.OneSidedRegressionClassifier"),
        "loss",
        "calibrate",
        tuning=Tuning(),
    ),
    "cosen": _related(
        "CoSen",
        "network with learned costs in its softmax, dropped in prediction",
        "this package, after Khan and others 2018",
        _own("loss_networks.LearnedCostClassifier"),
        "loss",
        "calibrate",
        tuning=Tuning(networks=1),
    ),
    "crl": _related(
        "CRL",
        "network with hard triplets of the rare class beside cross entropy",
        "this package, after Dong, Gong and Zhu 2017",
        _own("loss_networks.ClassRectificationClassifier"),
        "loss",
        "calibrate",
        tuning=Tuning(networks=1),
    ),
    "lmle": _related(
        "LMLE",
        "embedding from quintuplets over clusters, decided by neighbours",
        "this package, after Huang and others 2016",
        _own("loss_networks.EmbeddedNeighboursClassifier"),
        "loss vote",
        "calibrate",
        tuning=Tuning(networks=1),
        budget="10 clusters of a class, 100 rows of each kept as neighbours",
    ),
    "logit_adjustment": _related(
        "Logit adj.",
        "network with log shares added to its outputs in the loss: balanced softmax",
        "this package, after Menon 2021 and Ren 2020",
        _own("loss_networks.LogitAdjustedClassifier"),
        "margin",
        tuning=Tuning(is_natural=True),
    ),
    "ldam": _related(
        "LDAM",
        "network with margins by the fourth root of the classes' sizes",
        "this package, after Cao and others 2019",
        _own("loss_networks.LDAMClassifier"),
        "margin",
        tuning=Tuning(is_natural=True),
    ),
    "focal": _related(
        "Focal",
        "network with focal loss, decided at 1/2",
        "this package, after Lin and others 2017",
        _own("loss_networks.FocalClassifier"),
        "loss",
        tuning=Tuning(is_natural=True),
    ),
    "class_balanced": _related(
        "CB",
        "network weighted by the effective number of rows",
        "this package, after Cui and others 2019",
        _own("loss_networks.ClassBalancedClassifier"),
        "loss",
        tuning=Tuning(is_natural=True),
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

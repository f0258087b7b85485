"""CRCENClassifier: stacked networks with class-wise reweighted cross entropy behind scikit-learn's interface."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from crcen._support.progress import progress_bar
from crcen.exceptions import InvalidParameter, TrainingFailed
from crcen.models.atomic import all_or_nothing
from crcen.models.automatic import encoding_of, epochs_of, scales_of, solver_of
from crcen.models.fitted import FittedNetworks
from crcen.models.incremental import IncrementalFit
from crcen.models.probability import PROBABILITIES, fit_map, held_out_logits, logits_at_price, probability_folds
from crcen.models.search.folds import early_stopping_split
from crcen.models.validation import (
    check_choice,
    check_flag,
    check_hidden,
    check_labels,
    check_number,
    check_rows,
    check_weights,
    positive_label,
)
from crcen.theory.key_equation import key_equation_of_logits
from crcen.theory.specs import positive_number
from crcen.theory.weighting import ClassWeighting, CostRatio, Lam, resolve
from crcen.training.balance import solve_shifts
from crcen.training.encoding import ENCODINGS, MISSING
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.names import ACTIVATIONS

__all__ = ["CRCENClassifier"]

Array = NDArray[np.float64]

_BALANCED = 1e-12  # what the solve leaves of the key equation, unless no shift can be added to logits so large


class CRCENClassifier(IncrementalFit, FittedNetworks, ClassifierMixin, BaseEstimator):
    """Neural networks for rare events, trained and decided at a stated price.

    The objective is class-wise reweighted cross entropy,
    ``−Σ w [y log q + (1−y) log(1−q)] / Σ w + ½·l2·‖W‖²`` with ``w`` = λ for a positive and 1−λ for a negative row
    (times the sample weight) and no penalty on biases. After training, the output bias is solved for so that the key
    equation Σ_pos (1−q) / Σ_neg q = (1−λ)/λ holds on the training rows to machine precision.

    Parameters
    ----------
    weighting : "balanced", None, float, Lam, Alpha, CostRatio, Budget, dict, default="balanced"
        What a miss is worth: a float is λ in (0, 1), ``None`` is λ = ½, ``"balanced"`` is α = 1, ``Budget(5)`` pays up
        to five false alarms for one more catch, a dict gives a weight a label.
    hidden : tuple of int, default=(64, 32)
        Hidden layer sizes; ``()`` is weighted logistic regression.
    activation : {"relu", "tanh", "sigmoid", "gelu", "silu"}, default="relu"
        Hidden activation.
    l2 : float, default=0.01
        Penalty on weights, never on biases. (scikit-learn's MLP calls its penalty ``alpha`` and divides it by the
        batch's weight; ``alpha = l2 * batch_size`` there is the same penalty.)
    n_members : int, default=4
        Networks trained in one stack and averaged as logits.
    solver : {"auto", "adam", "lbfgs"}, default="auto"
        Mini-batch Adam with a one-cycle rate, or full-batch L-BFGS in float64. ``"auto"`` is L-BFGS where there is no
        hidden layer, else Adam.
    max_epochs : int, default=None
        Passes over the rows; ``None`` is 30 for Adam (fewer from 17,000 rows on, where 4,000 steps are enough, but at
        least 5) and 500 (iterations) for L-BFGS.
    batch_size : int, default=128
        Rows of a mini-batch.
    learning_rate : float, default=0.01
        Peak of the one-cycle rate.
    tol : float, default=1e-5
        L-BFGS stops when no gradient component is larger.
    early_stopping : bool, default=False
        Hold out a share of the rows and keep each network's best epoch on them.
    validation_fraction : float, default=0.1
        That share.
    encoding : {"auto", "standard", "robust", "quantile", "piecewise", "tree", "steps"}, default="auto"
        The frozen input layer, fitted on the training rows (sample weights count, class weights do not):
        ``"standard"``ised columns; ``"robust"`` ones by median and middle half, large values bent smoothly; normal
        scores (``"quantile"``); or standardised columns and beside each a ramp for every bin between its quantiles
        (``"piecewise"``), for every bin between the splits of a small tree on that column alone (``"tree"``), or a
        step at every such split (``"steps"``). ``"auto"`` is ``"steps"`` for a network with a hidden layer and
        ``"standard"`` without, where the model stays weighted logistic regression.
    bins : int, default=12
        The largest number of bins a column.
    missing : {"error", "indicator"}, default="error"
        What becomes of NaN: it is refused, or learned from. With ``"indicator"`` a missing cell is 0 in every encoded
        column made of it (the mean of the cells that are there; for ``"robust"`` and ``"quantile"`` their middle; the
        number 0 with ``standardize=False``), and for each column of the training table that lacks cells there is a
        further one that says where, of zeros and ones, standardised as any other. New rows may lack any cell.
    column_scales : "auto" or bool, default=False
        Give every encoded column a learnable scale, penalised as weights are, by which its weights are multiplied. At
        an optimum that is a penalty l2·Σ‖W_j‖ on the columns' weights W_j, a group lasso, instead of ½·l2·‖W‖² on the
        first layer, so that columns of no use are left out. It needs Adam and wants a searched ``l2``. ``"auto"`` is
        for ``"steps"`` trained by Adam, and the default of `CRCENClassifierCV`.
    standardize : bool, default=True
        ``False`` takes inputs as they are, whatever ``encoding``.
    balance : bool, default=True
        Solve the output bias for the key equation after training, on all rows given to ``fit``.
    probability : {"shift", "balance", "temperature", "isotonic"}, default="shift"
        How ``predict_proba`` comes from the natural logit: as it is, or through a map fitted on out-of-fold logits
        (four stratified folds, trained in the same stack): an intercept, a slope and an intercept, or any rising
        function. `predict` is p > 1/(1 + c) on that same probability, and the weighted logit is the mapped natural
        logit + log c, so that all answers agree. Under a map the key equation is not exact on the training rows.
    pos_label : default=None
        The positive class; ``None`` is the rarer one, ``classes_[1]`` on a tie.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to train; the fitted model is plain NumPy on the CPU either way.
    random_state : int, RandomState or None, default=None
        Seed of initial weights, batch order and the validation split.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Sorted labels.
    pos_label_ : label
        The positive class.
    weighting_ : ClassWeighting
        The resolved weighting: ``.lam .alpha .cost_ratio .threshold .logit_shift .n_pos .n_neg``.
    key_equation_ : KeyEquation
        The key equation on the training rows.
    coefs_, intercepts_ : list of ndarray
        (n_members, in, out) and (n_members, out) a layer.
    input_encoding_ : dict
        The fitted input layer as plain arrays; ``input_mean_`` and ``input_scale_`` are two of them.
    column_scales_ : bool
        Whether the networks were trained with scales; they are multiplied into ``coefs_``.
    shift_ : float
        Added to the averaged logit of several members by the balance solve; 0 for a single network, whose own bias
        carries it.
    probability_map_ : ndarray
        The map of ``probability``: slope and intercept, or corners, in logits.
    n_iter_, loss_curve_, status_ : int, ndarray, str
        Epochs of the longest member, the members' mean training objective, and how training ended.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    ``predict_proba`` is the natural posterior as far as the network reached the optimum of its weighted loss: a network
    that overfits is overconfident whatever its weight. The exact key equation on training rows is no evidence of
    anything, since it is solved for; look at `crcen.key_equation` on rows the network did not see.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from crcen import Budget, CRCENClassifier
    >>> X, y = make_classification(400, weights=[0.9], random_state=0)
    >>> clf = CRCENClassifier(Budget(5), hidden=(), random_state=0).fit(X, y)
    >>> clf.key_equation_.residual < 1e-12
    True
    """

    _loss = "cross_entropy"
    missing = "error"  # of models saved before there was a choice

    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        hidden: Any = (64, 32),
        activation: str = "relu",
        l2: float = 1e-2,
        n_members: int = 4,
        solver: str = "auto",
        max_epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        tol: float = 1e-5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        encoding: str = "auto",
        bins: int = 12,
        missing: str = "error",
        column_scales: Any = False,
        standardize: bool = True,
        balance: bool = True,
        probability: str = "shift",
        pos_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.weighting = weighting
        self.hidden = hidden
        self.activation = activation
        self.l2 = l2
        self.n_members = n_members
        self.solver = solver
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.encoding = encoding
        self.bins = bins
        self.missing = missing
        self.column_scales = column_scales
        self.standardize = standardize
        self.balance = balance
        self.probability = probability
        self.pos_label = pos_label
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CRCENClassifier":
        """Train on rows X with labels y.

        Parameters
        ----------
        X : array or data frame of shape (n, n_features)
            Finite numbers; NaN where ``missing`` allows it.
        y : array of shape (n,)
            Two classes.
        sample_weight : array of shape (n,), optional
            Row weights; weight k is k copies of the row.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        from crcen.training.engine import train  # torch is for fitting alone

        self._check_parameters()
        X, y = check_rows(self, X, y, reset=True)
        self.classes_ = check_labels(y)
        weights = check_weights(sample_weight, X)
        self.pos_label_ = self._positive_label(y, weights)
        target = y == self.pos_label_
        self.weighting_ = self._resolve(target, weights)
        jobs = self._jobs(target, weights)
        folds, fold_jobs = self._fold_jobs(jobs, target, weights)
        with progress_bar(f"{type(self).__name__}", visible=bool(self.verbose)) as progress:
            results = train(X, target, jobs + fold_jobs, sample_weight=weights, device=self.device, progress=progress)
        self.column_scales_ = jobs[0].column_scales
        self._store(self._finite(results[: len(jobs)]), X, target, weights)
        row_weights = self.weighting_.row_weights(target, weights) if self._balances_training_rows() else None
        self._fit_probability(target, held_out_logits(folds, results[len(jobs) :], X, target, row_weights), weights)
        if folds:
            self._judge_training_rows(X, target, weights)

    def __sklearn_tags__(self) -> Any:
        """Binary for now."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self.missing == "indicator"
        return tags

    # -- before training -----------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_hidden(self, self.hidden)
        check_choice(self, "activation", tuple(ACTIVATIONS))
        check_choice(self, "solver", ("auto", "adam", "lbfgs"))
        check_choice(self, "encoding", ("auto", *ENCODINGS))
        check_number(self, "bins", low=2, integer=True)
        check_choice(self, "missing", MISSING)
        check_number(self, "l2", low=0)
        check_number(self, "n_members", low=1, integer=True)
        check_number(self, "batch_size", low=1, integer=True)
        check_number(self, "learning_rate", low=0, high=1e30, open_low=True)
        check_number(self, "tol", low=0)
        if self.max_epochs is not None:
            check_number(self, "max_epochs", low=1, integer=True)
        for flag in ("early_stopping", "standardize", "balance"):
            check_flag(self, flag)
        check_choice(self, "column_scales", ("auto", True, False))
        check_choice(self, "probability", PROBABILITIES)
        check_number(self, "validation_fraction", low=0, high=0.9, open_low=True)
        if not isinstance(self.verbose, bool | np.bool_):
            check_number(self, "verbose", low=0, integer=True)
        if not isinstance(self.device, str):
            raise InvalidParameter(f"device must be 'auto', 'cpu' or 'cuda': got {self.device!r}.")

    def _positive_label(self, y: NDArray[Any], weights: Array) -> Any:
        return positive_label(self.pos_label, self.classes_, y, weights)

    def _resolve(self, target: NDArray[np.bool_], weights: Array) -> ClassWeighting:
        return self._resolve_one(self.weighting, target, weights)

    def _resolve_one(self, weighting: Any, target: NDArray[np.bool_], weights: Array) -> ClassWeighting:
        if isinstance(weighting, Mapping):
            negative = next(label for label in self.classes_ if label != self.pos_label_)
            if set(weighting) != set(self.classes_.tolist()):
                listed = ", ".join(repr(c) for c in self.classes_.tolist())
                raise InvalidParameter(
                    f"a weighting dict needs one weight for each of {listed}: got {dict(weighting)!r}."
                )
            pos, neg = (
                positive_number(weighting[label], f"the weight of class {label}")
                for label in (self.pos_label_, negative)
            )
            weighting = CostRatio(pos / neg)
        elif isinstance(weighting, ClassWeighting):
            weighting = Lam(weighting.lam)  # the counts are those of the rows given here
        return resolve(weighting, float(weights[target].sum()), float(weights[~target].sum()))

    def _base_seed(self) -> int:
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            raise InvalidParameter(f"random_state must be a seed, a RandomState or None: {error}.") from error

    @staticmethod
    def _member_seed(base: int, member: int) -> int:
        return int(np.random.SeedSequence([base, member]).generate_state(1)[0])

    def _jobs(self, target: NDArray[np.bool_], weights: Array) -> list[TrainingJob]:
        base = self._base_seed()
        rows, val_rows = self._split(target, weights, base)
        hidden = check_hidden(self, self.hidden)
        solver, encoding = solver_of(self.solver, hidden), encoding_of(self.encoding, hidden)
        return [
            TrainingJob(
                lam=self.weighting_.lam,
                rows=rows,
                pool=rows,
                val_rows=val_rows,
                hidden=hidden,
                activation=self.activation,
                loss=self._loss,
                l2=float(self.l2),
                solver=solver,
                max_epochs=epochs_of(self.max_epochs, solver, len(target), self.batch_size),
                batch_size=int(self.batch_size),
                learning_rate=float(self.learning_rate),
                tol=float(self.tol),
                seed=self._member_seed(base, member),
                shuffle_seed=base,
                encoding=encoding,
                bins=int(self.bins),
                missing=self.missing,
                column_scales=scales_of(self.column_scales, encoding, solver, standardize=bool(self.standardize)),
                standardize=bool(self.standardize),
                balance=self._balances_training_rows(),
            )
            for member in range(self.n_members)
        ]

    def _split(
        self, target: NDArray[np.bool_], weights: Array, seed: int
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        if not self.early_stopping:
            return None, None
        return early_stopping_split(target, weights, self.validation_fraction, seed)

    def _fold_jobs(
        self, jobs: list[TrainingJob], target: NDArray[np.bool_], weights: Array
    ) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.int64]]], list[TrainingJob]]:
        """The folds of a fitted probability map and the members' jobs on each; none for the plain shift."""
        if self.probability == "shift":
            return [], []
        folds, extra = probability_folds(target, weights, jobs[0].shuffle_seed), []
        for fold, _ in folds:
            inside = np.zeros_like(weights)
            inside[fold] = weights[fold]
            rows, val_rows = self._split(target, inside, jobs[0].shuffle_seed)
            rows = fold if rows is None else rows
            extra += [replace(job, rows=rows, pool=rows, val_rows=val_rows) for job in jobs]
        return folds, extra

    def _fit_probability(self, target: NDArray[np.bool_], oof: Array, weights: Array) -> None:
        """Fit the map of natural logits to probabilities on out-of-fold weighted logits, NaN where there is none."""
        seen = np.isfinite(oof)
        natural, weights = oof[seen] - self.weighting_.logit_shift, weights[seen]
        self.probability_map_ = fit_map(self.probability, target[seen], natural, weights)

    def _judge_training_rows(self, X: Array, target: NDArray[np.bool_], weights: Array) -> None:
        """Record the key equation of all training rows, as decided: with the shift and the probability map."""
        logits = self._mean_logits(X) + self.shift_
        _, logits = logits_at_price(self.probability_map_, logits, self.weighting_)
        self.key_equation_ = key_equation_of_logits(target, logits, self.weighting_, weights)

    def _finite(self, results: list[TrainingResult]) -> list[TrainingResult]:
        """Results that can be used; one warning for the rest."""
        finite = [result for result in results if result.network is not None]
        if not finite:
            raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or set standardize=True.")
        if len(finite) < len(results):
            lost = len(results) - len(finite)
            message = f"{lost} of {len(results)} members diverged and were left out: {Status.DIVERGED.value}."
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        if any(result.status is Status.MAX_EPOCHS for result in finite):
            warnings.warn(f"{type(self).__name__}: {Status.MAX_EPOCHS.value}.", ConvergenceWarning, stacklevel=4)
        return finite

    def _store(self, results: list[TrainingResult], X: Array, target: NDArray[np.bool_], weights: Array) -> None:
        networks = [result.network for result in results if result.network is not None]
        given = {name: value for name, value in vars(networks[0].encoding).items() if value is not None}
        self.input_encoding_ = given
        self.coefs_ = [np.stack(layer) for layer in zip(*(n.weights for n in networks), strict=True)]
        self.intercepts_ = [np.stack(layer) for layer in zip(*(n.biases for n in networks), strict=True)]
        self.n_iter_ = max(result.n_iter for result in results)
        self.loss_curve_ = np.mean(
            [np.pad(r.loss_curve, (0, self.n_iter_ - r.n_iter), mode="edge") for r in results], axis=0
        )
        worst = max(results, key=lambda result: list(Status).index(result.status))
        self.status_ = worst.status.name.lower()
        self.shift_ = 0.0
        logits = self._mean_logits(X)
        if self._balances_training_rows() and len(networks) > 1:
            row_weights = self.weighting_.row_weights(target, weights)
            self.shift_ = float(solve_shifts(target, logits[None], row_weights[None])[0])
            logits = logits + self.shift_
        self.key_equation_ = key_equation_of_logits(target, logits, self.weighting_, weights)
        if self._balances_training_rows() and not self.key_equation_.residual <= _BALANCED:
            message = f"the key equation holds to {self.key_equation_.residual:.1e} only; set standardize=True."
            warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def _balances_training_rows(self) -> bool:
        return isinstance(self.balance, bool | np.bool_) and bool(self.balance)

    def _penalty(self) -> float:
        """The l2 of the fitted networks."""
        return float(self.l2)

    def _training_weighting(self) -> ClassWeighting:
        """The weighting of the training loss."""
        return self.weighting_

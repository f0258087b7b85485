"""MeanFalseErrorClassifier: the mean (squared) false error of Wang and others (2016), in the stacked engine."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import progress_bar
from crcen.exceptions import InvalidParameter
from crcen.models.fitted import Course, write_fit
from crcen.models.fitting import FitRows, assemble, base_seed, member_jobs, usable
from crcen.models.validation import check_labels, check_rows, check_weights
from crcen.paper.methods.csmlp import CSMLPClassifier
from crcen.theory.labels import Labels
from crcen.theory.weighting import Alpha
from crcen.training.jobs import TrainingJob, TrainingResult

__all__ = ["MeanFalseErrorClassifier"]

Array = NDArray[np.float64]
# α stays within these bounds: a class without any error left would take all weight from the other.
_LEAST, _MOST = 1e-3, 1e3


class MeanFalseErrorClassifier(CSMLPClassifier):
    """Networks trained on FPE + FNE, or on FPE² + FNE², the mean squared errors of the two classes.

    FNE is the mean of (y − q)² over the positive rows, FPE that over the negative ones. Their sum (MFE) is the weighted
    squared error at α = 1: `CSMLPClassifier` with balanced weights, exactly. The sum of squares (MSFE) has the gradient
    2·FPE·∇FPE + 2·FNE·∇FNE, which is that of weights at α = FNE/FPE: the class with the larger error counts more. Both
    errors are measured on all training rows after every epoch, and the next epoch trains at their ratio; the first
    trains at α = 1. The authors do so in every mini-batch, where a rare class has few rows or none.

    The outputs are those of weighted squared error: ``predict`` takes the side of ½ of the weighted output, as the
    authors do, and ``predict_proba`` has the weight of the last epoch taken out, which squared error fits less exactly
    than cross entropy does.

    Parameters
    ----------
    squared : bool, default=True
        MSFE; False is MFE.
    **params
        As in `CSMLPClassifier`, but for weights and folds: there is nothing to state.

    Attributes
    ----------
    alphas_ : array of shape (epochs, members)
        MSFE's α of every epoch.

    References
    ----------
    Wang, Liu, Wu, Cao, Meng, Kennedy, "Training deep neural networks on imbalanced data sets", IJCNN 2016.
    """

    def __init__(
        self,
        squared: bool = True,
        *,
        hidden: Any = (32,),
        activation: str = "relu",
        l2: float = 1e-4,
        n_members: int = 1,
        max_epochs: int | None = None,
        schedule: Any = None,
        encoding: str = "standard",
        inputs: Any = None,
        pos_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "balanced",
            hidden=hidden,
            activation=activation,
            l2=l2,
            n_members=n_members,
            max_epochs=max_epochs,
            schedule=schedule,
            encoding=encoding,
            inputs=inputs,
            pos_label=pos_label,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.squared = squared

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        if not self.squared:
            super()._fit(X, y, sample_weight)
            return
        X, y = check_rows(self, X, y, reset=True)
        classes, weights = check_labels(y), check_weights(sample_weight, X)
        labels = Labels.from_rows(classes, y, weights, self.pos_label)
        rows = FitRows(X, labels.encode(y), weights)
        recipe, seed = self.recipe().settled(len(X)), base_seed(self.random_state)
        if not recipe.draws_batches or recipe.early_stopping:
            raise InvalidParameter(
                "the mean squared false error moves its weights after every epoch: it needs hidden units or "
                "Schedule(solver='adam'), and no early stopping."
            )
        level = labels.resolve("balanced", *rows.totals)
        jobs = member_jobs(recipe, level.lam, self.n_members, seed, rows)
        results, self.alphas_ = self._follow_errors(jobs, rows, labels)
        members = usable(results, type(self).__name__)
        last = float(np.exp(np.log(self.alphas_[-1]).mean()))
        trained = labels.resolve(Alpha(last), *rows.totals)
        ensemble, logits = assemble(labels, trained, members, rows, is_balanced=False)
        key = ensemble.key_equation(logits, rows.target, weights)
        write_fit(self, ensemble, recipe, Course.of(members), key)

    def _follow_errors(
        self, jobs: list[TrainingJob], rows: FitRows, labels: Labels
    ) -> tuple[list[TrainingResult], Array]:
        """Train epoch by epoch, each at the ratio of the errors that the one before it left."""
        from crcen.training.engine import train  # torch is for fitting alone

        epochs = int(jobs[0].max_epochs or 0)
        alphas = np.ones((epochs, len(jobs)))
        states: list[Any] = [None] * len(jobs)
        everyone = np.arange(len(rows.X))
        totals = rows.totals
        results: list[TrainingResult] = []
        with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
            for epoch in range(epochs):
                is_last = epoch == epochs - 1
                now = [
                    replace(
                        job,
                        lam=labels.resolve(Alpha(float(alpha)), *totals).lam,
                        start=state,
                        stop_epoch=epoch + 1,
                        leaves_state=not is_last,
                        rows=replace(job.rows, watched=None if is_last else everyone),
                        record_every=0 if is_last else 1,
                    )
                    for job, state, alpha in zip(jobs, states, alphas[epoch], strict=True)
                ]
                results = train(rows.X, rows.target, now, sample_weight=rows.weights, device=self.device)
                progress((epoch + 1) / epochs)
                if not is_last:
                    states = [result.state for result in results]
                    alphas[epoch + 1] = [_error_ratio(result.val_logits[-1], rows) for result in results]
        return results, alphas


def _error_ratio(logits: Array, rows: FitRows) -> float:
    """FNE/FPE of weighted logits, within bounds."""
    q = 1.0 / (1.0 + np.exp(-np.clip(logits.astype(np.float64), -700, 700)))
    squares = (rows.target - q) ** 2
    fne = np.average(squares[rows.target], weights=rows.weights[rows.target])
    fpe = np.average(squares[~rows.target], weights=rows.weights[~rows.target])
    ratio = float(np.clip(fne / max(fpe, np.finfo(float).tiny), _LEAST, _MOST))
    return ratio if np.isfinite(ratio) else 1.0  # of a network that diverged, and is left out in the end

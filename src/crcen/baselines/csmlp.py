"""CSMLPClassifier: the cost-sensitive multilayer perceptron of Castro and Braga (2013)."""

from typing import Any

from crcen.models.classifier import CRCENClassifier
from crcen.models.foreign_names import says_our_names

__all__ = ["CSMLPClassifier"]


class CSMLPClassifier(CRCENClassifier):
    """Networks trained on class-weighted squared error with targets ±1.

    The output is tanh(o/2), so that the squared error on ±1 targets is 4 w (y − q)² with q = σ(o), and decisions,
    probabilities and weights mean what they mean in `CRCENClassifier`. Its stationarity in the output bias is
    Σ w (y − q) q (1 − q) = 0, not the key equation; ``balance`` is therefore off by default.

    Parameters, attributes and methods are those of `CRCENClassifier`.
    """

    _loss = "squared_error"

    @says_our_names
    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        hidden: Any = (32,),
        activation: str = "relu",
        l2: float = 1e-4,
        n_members: int = 1,
        solver: str = "auto",
        max_epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        tol: float = 1e-5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        encoding: str = "standard",
        bins: int = 12,
        missing: str = "error",
        column_scales: Any = False,
        standardize: bool = True,
        balance: bool = False,
        probability: str = "shift",
        training_weighting: Any = "price",
        pos_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            weighting,
            hidden=hidden,
            activation=activation,
            l2=l2,
            n_members=n_members,
            solver=solver,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            tol=tol,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            encoding=encoding,
            bins=bins,
            missing=missing,
            column_scales=column_scales,
            standardize=standardize,
            balance=balance,
            probability=probability,
            training_weighting=training_weighting,
            pos_label=pos_label,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )

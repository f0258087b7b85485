"""CSMLPClassifier: the cost-sensitive multilayer perceptron of Castro and Braga (2013)."""

from typing import Any

from crcen.models.classifier import CRCENClassifier
from crcen.models.foreign_names import says_our_names
from crcen.training.recipe import Inputs, Schedule

__all__ = ["CSMLPClassifier"]


class CSMLPClassifier(CRCENClassifier):
    """Networks trained on class-weighted squared error with targets ±1.

    The output is tanh(o/2), so that the squared error on ±1 targets is 4 w (y − q)² with q = σ(o), and decisions,
    probabilities and weights mean what they mean in `CRCENClassifier`. Its stationarity in the output bias is
    Σ w (y − q) q (1 − q) = 0, not the key equation; ``balance`` is therefore off by default.

    Parameters, attributes and methods are those of `CRCENClassifier`.
    """

    losses = ("squared_error",)
    loss = losses[0]  # of models that were saved without one
    _column_scales = False

    @says_our_names
    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        hidden: Any = (32,),
        activation: str = "relu",
        l2: float = 1e-4,
        n_members: int = 1,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        encoding: str = "standard",
        inputs: Inputs | None = None,
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
            max_epochs=max_epochs,
            schedule=schedule,
            encoding=encoding,
            inputs=inputs,
            balance=balance,
            probability=probability,
            training_weighting=training_weighting,
            loss=self.losses[0],
            pos_label=pos_label,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )

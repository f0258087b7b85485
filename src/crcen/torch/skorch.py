"""skorch: balance the output bias when training ends, and natural probabilities of a net."""

from collections.abc import Callable
from functools import partial
from typing import Any

from skorch.callbacks import Callback
from torch import Tensor, nn

from crcen.torch.balance import Counts, NaturalLogits, Weighting, balance_, logit_columns, weighting_of

Net = Any  # of skorch, which no type checker sees, with the rows that it takes


class BalanceCallback(Callback):  # type: ignore[misc]
    """Balances the output bias on the rows given to ``fit`` when training ends; must be the last callback.

    ``weighting`` (default: the criterion, a `ClassWeightedLoss`) and ``bias`` are those of `crcen.torch.balance_`.
    ``key_equation_`` is on these rows, after the solve; not evidence: test on new rows.

    Examples
    --------
    ``NeuralNetClassifier(Net, criterion=ClassWeightedLoss, criterion__weighting=CostRatio(20),
    callbacks=[BalanceCallback()], predict_nonlinearity=natural_probabilities(CostRatio(20)))``
    """

    def __init__(self, weighting: Weighting = None, bias: str | None = None) -> None:
        self.weighting = weighting
        self.bias = bias

    def on_train_end(self, net: Net, X: Net = None, y: Net = None, **kwargs: object) -> None:
        """Balance ``net.module_`` over all rows of ``fit``."""
        weighting = weighting_of(net.criterion_) if self.weighting is None else self.weighting
        batches = net.get_iterator(net.get_dataset(X, y), training=False)
        self.key_equation_ = balance_(net.module_, batches, weighting, bias=self.bias)


def natural_probabilities(weighting: Weighting, counts: Counts = None) -> Callable[[Tensor], Tensor]:
    """For ``predict_nonlinearity``: natural probabilities from logits as of `crcen.torch.ClassWeightedLoss`."""
    # Nets are pickled, closures are not.
    return partial(_probabilities, NaturalLogits(nn.Identity(), weighting, counts))


def _probabilities(natural: NaturalLogits, logits: Tensor) -> Tensor:
    return logit_columns(natural.to(logits.device)(logits)).softmax(1)

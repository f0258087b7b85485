"""Transformers: balance the output bias of a model when its ``Trainer`` ends."""

from typing import Any

from transformers import TrainerCallback

from crcen.torch.balance import Batches, Weighting, balance_

Arguments = Any  # of the trainer


class BalanceCallback(TrainerCallback):
    """Balances the output bias on the training rows when training ends; save the model afterwards.

    ``weighting`` (the `ClassWeightedLoss` that is the trainer's ``compute_loss_func``), ``batches`` (default: the rows
    of the training loader) and ``bias`` are those of `crcen.torch.balance_`. ``key_equation_`` is on these rows, after
    the solve; not evidence: test on new rows.
    """

    def __init__(self, weighting: Weighting, *, batches: Batches = None, bias: str | None = None) -> None:
        self.weighting, self.batches, self.bias = weighting, batches, bias

    def on_train_end(self, args: Arguments, state: Arguments, control: Arguments, **kwargs: Arguments) -> None:
        """Balance the model, on every process with its own share of the rows."""
        batches = kwargs["train_dataloader"] if self.batches is None else self.batches
        self.key_equation_ = balance_(kwargs["model"], batches, self.weighting, bias=self.bias)

"""Lightning: the output bias balanced when a fit ends, under either name of the package."""

import sys
from importlib import import_module
from typing import Any

from crcen.torch.balance import balance_
from crcen.torch.trial_rows import every_row
from crcen.torch.weights import weighting_of

__all__ = ["BalanceCallback"]


def _package() -> Any:
    """The one of both names that is loaded already, else the one that is installed."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in [name for name in names if name in sys.modules] or names:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise ModuleNotFoundError("lightning is not installed; get it with: pip install 'crcen[interop]'")


class BalanceCallback(_package().Callback):  # type: ignore[misc]
    """Solves for the output bias over the training rows when a fit ends.

    Checkpoints of earlier epochs do not have it: save one after the fit (``trainer.save_checkpoint``).

    Parameters
    ----------
    weighting : optional
        What the module is trained under, as in `crcen.torch.balance_`; by default the one `ClassWeightedLoss` that it
        holds as an attribute.
    batches : optional
        Rows to solve on; by default those of the training loader, each once.
    bias : str, optional
        Name of the output bias, as in `crcen.torch.balance_`.

    Attributes
    ----------
    key_equation_ : KeyEquation
        On these rows, after the solve. It was solved for, so it is no evidence: test on new rows.
    """

    def __init__(self, weighting: Any = None, *, batches: Any = None, bias: str | None = None) -> None:
        super().__init__()
        self.weighting, self.batches, self.bias = weighting, batches, bias

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Balance the module, on every process with its own share of the rows."""
        batches = every_row(trainer.train_dataloader) if self.batches is None else self.batches
        weighting = weighting_of(pl_module) if self.weighting is None else self.weighting
        self.key_equation_ = balance_(pl_module, batches, weighting, bias=self.bias)

"""Lightning, under either package name: balance the output bias when a fit ends."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn

from crcen.exceptions import MissingExtra
from crcen.torch.balance import Batches, Weighting, balance_, every_row, weighting_of

Trainer = Any  # of either package
_NAMES = ("lightning.pytorch", "pytorch_lightning")
# The package that is already imported, otherwise the installed one.
_FOUND = [name for name in _NAMES if name in sys.modules] or [name for name in _NAMES if find_spec(name.split(".")[0])]
if not _FOUND:
    raise MissingExtra("lightning is not installed; get it with: pip install 'crcen[interop]'")


class BalanceCallback(import_module(_FOUND[0]).Callback):  # type: ignore[misc]
    """Balances the output bias on the training rows when a fit ends.

    Checkpoints of earlier epochs are not balanced: save one after the fit (``trainer.save_checkpoint``). ``weighting``
    (default: the only `ClassWeightedLoss` among the module's attributes), ``batches`` (default: the rows of the
    training loader, each once) and ``bias`` are those of `crcen.torch.balance_`. ``key_equation_`` is on these rows,
    after the solve; not evidence: test on new rows.
    """

    def __init__(self, weighting: Weighting = None, *, batches: Batches = None, bias: str | None = None) -> None:
        super().__init__()
        self.weighting, self.batches, self.bias = weighting, batches, bias

    def on_fit_end(self, trainer: Trainer, pl_module: nn.Module) -> None:
        """Balance the module, on every process with its own share of the rows."""
        batches = every_row(trainer.train_dataloader) if self.batches is None else self.batches
        weighting = weighting_of(pl_module) if self.weighting is None else self.weighting
        self.key_equation_ = balance_(pl_module, batches, weighting, bias=self.bias)

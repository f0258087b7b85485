"""Fitted PyTorch modules as members of a model: arrays, and the module that the caller's own code builds."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crcen.exceptions import InvalidInput, InvalidParameter

__all__ = ["FittedModule", "ModuleGroup", "as_tensor", "built", "logits_of"]

Array = NDArray[np.float64]

# Rows at a time: the same rows in the same order then have the same bits.
_ROWS = 256


def built(module: Any) -> nn.Module:
    """A module from a factory, or a copy of one."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if not callable(module):
        raise InvalidParameter(f"module must be an nn.Module or what makes one: got {type(module).__name__}.")
    made = module()
    if not isinstance(made, nn.Module):
        raise InvalidParameter(f"module() must give an nn.Module: got {type(made).__name__}.")
    return made


def as_tensor(X: NDArray[Any]) -> Tensor:
    """Rows as a module takes them: real numbers in single precision, whole numbers as they are."""
    if X.dtype.kind in "iu":
        return torch.from_numpy(np.ascontiguousarray(X, dtype=np.int64))
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))


def logits_of(module: nn.Module, inputs: Tensor, n_outputs: int) -> Tensor:
    """Logits (n, C) of a module; of two for two classes their difference is the one that counts."""
    out = module(inputs)
    logits = getattr(out, "logits", out)
    if isinstance(logits, Tensor) and logits.ndim == 1:
        logits = logits[:, None]
    if isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] == 2 and n_outputs == 1:
        logits = logits[:, 1:] - logits[:, :1]
    if not isinstance(logits, Tensor) or logits.shape != (len(inputs), n_outputs):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        wanted = "(rows,), (rows, 1) or (rows, 2)" if n_outputs == 1 else f"(rows, {n_outputs})"
        raise InvalidInput(f"the module must answer logits of shape {wanted} for {len(inputs)} rows: got {got}.")
    return logits


@dataclass(frozen=True, eq=False)
class FittedModule:
    """One trained module: its state as arrays, and what the balance solve adds to its logits.

    Parameters
    ----------
    state : dict of arrays
        As in ``state_dict``.
    n_outputs : int
        1 for two classes, else their number.
    shift : float64 array of shape (n_outputs,)
        Added to the logits, in float64.
    """

    state: dict[str, NDArray[Any]]
    n_outputs: int
    shift: Array

    @classmethod
    def of(cls, module: nn.Module, n_outputs: int) -> "FittedModule":
        """A module as it is trained now; it is copied."""
        own = copy.deepcopy(module).cpu().eval()
        state = {name: np.asarray(value.detach().numpy()).copy() for name, value in own.state_dict().items()}
        return cls(state, n_outputs, np.zeros(n_outputs)).around(own)

    def around(self, module: nn.Module) -> "FittedModule":
        """The same with the module that its state belongs to."""
        found = FittedModule(self.state, self.n_outputs, self.shift)
        object.__setattr__(found, "_module", module)
        return found

    def filled(self, module: Callable[[], nn.Module] | nn.Module) -> "FittedModule":
        """The same with a module of the caller's, given this state."""
        own = built(module)
        try:
            own.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in self.state.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InvalidParameter(f"the module does not fit the stored arrays: {reason[:200]}") from error
        return self.around(own.cpu().eval())

    def without_code(self) -> "FittedModule":
        """The same without its module."""
        return FittedModule(self.state, self.n_outputs, self.shift)

    def shifted(self, shift: Array) -> "FittedModule":
        """The same with something added to its logits."""
        return FittedModule(self.state, self.n_outputs, self.shift + shift).around(self._own())

    def _own(self) -> nn.Module:
        module = vars(self).get("_module")
        if module is None:
            raise InvalidParameter(
                "this model was loaded without its module: files hold arrays, not code; give the factory it was made "
                "with, crcen.load(path, module=...)."
            )
        return module

    def logits(self, X: NDArray[Any]) -> Array:
        """Weighted logits of rows, float64 (n,), or (n, C) for C classes."""
        module, inputs = self._own(), as_tensor(X)
        with torch.no_grad():
            parts = [logits_of(module, part, self.n_outputs).double().numpy() for part in torch.split(inputs, _ROWS)]
        found = np.concatenate(parts) + self.shift
        return found[:, 0] if self.n_outputs == 1 else found


@dataclass(frozen=True, eq=False)
class ModuleGroup:
    """Modules of one kind, averaged as logits.

    Parameters
    ----------
    modules : tuple of FittedModule
        At least one.
    """

    modules: tuple[FittedModule, ...]

    def __len__(self) -> int:
        return len(self.modules)

    def logits(self, X: NDArray[Any]) -> Array:
        """The modules' mean logits, (n, 1) or (n, C)."""
        mean = np.mean([module.logits(X) for module in self.modules], axis=0)
        return np.asarray(mean[:, None] if mean.ndim == 1 else mean)

    def arrays(self) -> dict[str, Any]:
        """The state of every module."""
        return {"modules": [{"state": one.state, "shift": one.shift} for one in self.modules]}

    def without_code(self) -> "ModuleGroup":
        """The same without the modules."""
        return ModuleGroup(tuple(one.without_code() for one in self.modules))

    def filled(self, module: Any) -> "ModuleGroup":
        """The same with modules of the caller's."""
        return ModuleGroup(tuple(one.filled(module) for one in self.modules))

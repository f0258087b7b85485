"""Engines: the backends that run a list of jobs, and members made of their networks."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import MissingExtra
from crcen.theory.rows import Array
from crcen.training.jobs import TrainingResult
from crcen.training.network import Member, Network, NetworkGroup
from crcen.training.recipe import choice

Engine = Callable[..., list[TrainingResult]]

# Module and function of each engine, imported on use. All have the signature of `crcen.training.engine.train`.
ENGINES = {"local": "crcen.training.engine:train", "ray": "crcen.scale.ray:train_on_ray"}


def need_torch() -> None:
    """Raise an error if torch is not installed: predictions do not need it, fits do."""
    with suppress(ModuleNotFoundError):
        if find_spec("torch") is not None:
            return
    advice = "get it with: pip install 'crcen[train]'. Saved models predict without it."
    raise MissingExtra(f"fitting needs torch, which is not installed; {advice}")


def find_engine(name: str) -> Engine:
    """The function that runs jobs on an engine."""
    module, function = ENGINES[choice("engine", name, ENGINES)].split(":")
    found: Engine = getattr(import_module(module), function)
    return found


def trainer_on(name: str, X: Array, y: NDArray[np.generic], n_classes: int = 2, **options: Any) -> Engine:
    """A function that trains lists of jobs on these rows; y holds class numbers below ``n_classes``."""
    need_torch()
    if name == "local":
        from crcen.training.engine import Trainer

        return Trainer(X, y, n_classes=n_classes, **options)
    return partial(find_engine(name), X, y, **options)


def trainer_on_some(train: Any, rows: NDArray[np.int64], factors: Array | float = 1.0) -> Engine:
    """The same function for a subset of the rows of `trainer_on`, with their weights times ``factors``."""
    if not isinstance(train, partial):
        found: Engine = train.on(rows, factors)
        return found
    (X, y), options = train.args, dict(train.keywords)
    weights = options.get("sample_weight")
    options["sample_weight"] = np.broadcast_to(1.0 if weights is None else weights[rows], len(rows)) * factors
    return partial(train.func, X[rows], y[rows], **options)


def as_members(networks: Sequence[Any]) -> tuple[Member, ...]:
    """Trained networks as members of a model: one `NetworkGroup`, or every torch module separately."""
    return (NetworkGroup.of(networks),) if isinstance(networks[0], Network) else tuple(networks)

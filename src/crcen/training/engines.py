"""By what a list of jobs is run: this process, or another engine that is loaded when it is asked for."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from crcen._support.extras import need_torch
from crcen.exceptions import InvalidParameter
from crcen.training.jobs import TrainingResult

__all__ = ["ENGINES", "Engine", "find_engine", "trainer_on"]

Engine = Callable[..., list[TrainingResult]]

# Engines and where their function is; torch is loaded with it. All take what `train` takes and give what it gives.
ENGINES = {"local": "crcen.training.engine:train", "ray": "crcen.scale.ray.jobs:train_on_ray"}


def find_engine(name: str) -> Engine:
    """The function that runs jobs."""
    if name not in ENGINES:
        raise InvalidParameter(f"engine must be one of {', '.join(map(repr, ENGINES))}: got {name!r}.")
    module, function = ENGINES[name].split(":")
    found: Engine = getattr(import_module(module), function)
    return found


def trainer_on(name: str, X: Any, y: Any, **how: Any) -> Engine:
    """A function of a list of jobs, and of ``progress``, that trains them on these rows; for several lists."""
    need_torch()
    if name == "local":
        from crcen.training.engine import Trainer

        return Trainer(X, y, **how)
    return partial(find_engine(name), X, y, **how)

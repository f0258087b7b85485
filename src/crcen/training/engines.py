"""By what a list of jobs is run: this process, or another engine that is loaded when it is asked for."""

from collections.abc import Callable
from importlib import import_module

from crcen.exceptions import InvalidParameter
from crcen.training.engine import train
from crcen.training.jobs import TrainingResult

__all__ = ["ENGINES", "find_engine"]

Engine = Callable[..., list[TrainingResult]]

# Engines and where their function is, if not here. All take what `train` takes and give what it gives.
ENGINES = {"local": None, "ray": "crcen.scale.ray_jobs:train_on_ray"}


def find_engine(name: str) -> Engine:
    """The function that runs jobs."""
    if name not in ENGINES:
        raise InvalidParameter(f"engine must be one of {', '.join(map(repr, ENGINES))}: got {name!r}.")
    home = ENGINES[name]
    if home is None:
        return train
    module, function = home.split(":")
    found: Engine = getattr(import_module(module), function)
    return found

"""By what a list of jobs is run: this process, or another engine that is loaded when it is asked for."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from crcen.exceptions import InvalidParameter, MissingExtra
from crcen.training.jobs import TrainingResult

__all__ = ["ENGINES", "Engine", "find_engine", "need_torch", "trainer_on", "trainer_on_some"]

Engine = Callable[..., list[TrainingResult]]

# Engines and where their function is; torch is loaded with it. All take what `train` takes and give what it gives.
ENGINES = {"local": "crcen.training.engine:train", "ray": "crcen.scale.ray.jobs:train_on_ray"}


def need_torch() -> None:
    """Refuse to fit where torch is left out, as it may be where models only predict."""
    try:
        is_there = find_spec("torch") is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise MissingExtra(
            "fitting needs torch, which is not installed; get it with: pip install torch. Saved models predict without."
        )


def find_engine(name: str) -> Engine:
    """The function that runs jobs."""
    if name not in ENGINES:
        raise InvalidParameter(f"engine must be one of {', '.join(map(repr, ENGINES))}: got {name!r}.")
    module, function = ENGINES[name].split(":")
    found: Engine = getattr(import_module(module), function)
    return found


def trainer_on(name: str, X: Any, y: Any, n_classes: int | None = None, **how: Any) -> Engine:
    """A function of a list of jobs, and of ``progress``, that trains them on these rows; for several lists.

    With ``n_classes`` the jobs have class weights for so many, and y holds class numbers.
    """
    need_torch()
    if name == "local":
        from crcen.training.engine import Trainer

        return Trainer(X, y, n_classes=n_classes, **how)
    return partial(find_engine(name), X, y, **how)


def trainer_on_some(train: Any, rows: Any) -> Engine:
    """The same for some of the rows of what `trainer_on` gave."""
    if not isinstance(train, partial):
        found: Engine = train.on(rows)
        return found
    (X, y), how = train.args, dict(train.keywords)
    if how.get("sample_weight") is not None:
        how["sample_weight"] = how["sample_weight"][rows]
    return partial(train.func, X[rows], y[rows], **how)

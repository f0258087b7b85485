"""Packages that are imported on first use: models load and predict without them, and importing them takes long."""

import sys
from functools import partial
from importlib import import_module
from itertools import accumulate
from threading import Lock
from typing import Any

# scikit-learn and SciPy import these for few of their functions; importing them takes half of the time.
_RARELY_USED = (
    *("asyncio", "narwhals", "narwhals.stable", "narwhals.stable.v2", "numpy.f2py", "numpy.ma", "numpy.polynomial"),
    *("numpy.testing", "scipy.special", "scipy.stats"),
)
# What scikit-learn imports of them by name, and only calls.
_BY_NAME = {"scipy.sparse.csgraph": "laplacian", "scipy.sparse.linalg": "cg LinearOperator", "scipy.stats": "rankdata"}
_REMOVAL = Lock()  # other threads may import the same modules meanwhile


class LazyModule:
    """A module that is imported when one of its attributes is used."""

    __spec__ = None  # which an import statement asks for

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_module":
            self._module = import_with_lazy(self._name)
            return self._module
        return getattr(self._module, name)

    def __reduce__(self) -> tuple[type["LazyModule"], tuple[str]]:
        return LazyModule, (self._name,)


def import_with_lazy(module: str, *names: str) -> Any:
    """Import a module that gets lazy modules for others, unless something has imported those before."""
    own = list(accumulate(module.split("."), "{}.{}".format))  # with its parents
    lazy = [name for name in (*_RARELY_USED, *names) if name not in own and name not in sys.modules]
    for name in own:
        _remove(name)
    try:
        for name in lazy:
            parent, _, child = name.rpartition(".")
            one: Any = LazyModule(name)
            if name in _BY_NAME:
                one.__path__ = [f"{place}/{child}" for place in import_module(parent).__path__]
                for function in _BY_NAME[name].split():
                    setattr(one, function, partial(_call, name, function))
            if parent:
                setattr(import_module(parent), child, one)  # as an import does
            if sys.modules.setdefault(name, one) is not one:
                _remove(name)
        return import_module(module)
    finally:
        for name in reversed(lazy):
            _remove(name)


def _call(module: str, function: str, *given: Any, **named: Any) -> Any:
    """Import a module and call a function of it."""
    return getattr(import_module(module), function)(*given, **named)


def _remove(name: str) -> None:
    """Remove a lazy module, also from its parent, which keeps the real one if that was imported meanwhile."""
    with _REMOVAL:
        if isinstance(sys.modules.get(name), LazyModule):
            del sys.modules[name]
    parent, _, child = name.rpartition(".")
    holder = sys.modules.get(parent)
    if isinstance(holder, type(sys)):  # neither missing nor lazy
        if name not in sys.modules and isinstance(vars(holder).get(child), LazyModule):
            delattr(holder, child)
        if name in sys.modules:
            setattr(holder, child, sys.modules[name])


pd, pa, pc, pq = map(LazyModule, ("pandas", "pyarrow", "pyarrow.compute", "pyarrow.parquet"))
arrow_csv, ds, fs, narwhals = map(LazyModule, ("pyarrow.csv", "pyarrow.dataset", "pyarrow.fs", "narwhals"))
lightgbm: Any = LazyModule("lightgbm")  # of which a class is derived
linalg, optimize, sparse = map(LazyModule, ("scipy.linalg", "scipy.optimize", "scipy.sparse"))
special, stats, isotonic = map(LazyModule, ("scipy.special", "scipy.stats", "sklearn.isotonic"))
metrics, model_selection = map(LazyModule, ("sklearn.metrics", "sklearn.model_selection"))
neural_network, threadpoolctl = map(LazyModule, ("sklearn.neural_network", "threadpoolctl"))

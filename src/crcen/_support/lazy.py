"""Packages that are imported on first use: models load and predict without them, and importing them takes long."""

import sys
from importlib import import_module
from typing import Any


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


def import_with_lazy(module: str, *names: str) -> Any:
    """Import a module that gets lazy modules for scipy.stats and others, unless something has imported those before."""
    if isinstance(sys.modules.get(module), LazyModule):
        del sys.modules[module]
    lazy: dict[str, Any] = {name: LazyModule(name) for name in {"scipy.stats", *names} - {module, *sys.modules}}
    sys.modules.update(lazy)
    try:
        return import_module(module)
    finally:
        for name, one in lazy.items():
            if sys.modules.get(name) is one:
                del sys.modules[name]


pd: Any = LazyModule("pandas")
pa: Any = LazyModule("pyarrow")
pc: Any = LazyModule("pyarrow.compute")
pq: Any = LazyModule("pyarrow.parquet")
ds: Any = LazyModule("pyarrow.dataset")
lightgbm: Any = LazyModule("lightgbm")
optimize: Any = LazyModule("scipy.optimize")
stats: Any = LazyModule("scipy.stats")
metrics: Any = LazyModule("sklearn.metrics")
model_selection: Any = LazyModule("sklearn.model_selection")

"""Packages that are imported on first use: models load and predict without them, and importing them takes long."""

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when one of its attributes is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_module":
            self._module = import_module(self._name)
            return self._module
        return getattr(self._module, name)


pd: Any = LazyModule("pandas")
pa: Any = LazyModule("pyarrow")
pc: Any = LazyModule("pyarrow.compute")
pq: Any = LazyModule("pyarrow.parquet")
ds: Any = LazyModule("pyarrow.dataset")
lightgbm: Any = LazyModule("lightgbm")

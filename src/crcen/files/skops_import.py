"""skops without torch.

On import skops walks through all of scikit-learn for the estimators it trusts, and packages there load torch and dask:
seconds and hundreds of megabytes that a prediction has no use for. They hold no estimator, so the walk leaves them out.
"""

import sys
from types import ModuleType
from typing import Any

from crcen._support.extras import need

__all__ = ["skops_io"]

_LOAD_OTHERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "cupy"))


def skops_io() -> ModuleType:
    """The module ``skops.io``; torch is not loaded with it."""
    modules: dict[str, Any] = sys.modules
    refused = [] if "skops.io" in modules else [name for name in _LOAD_OTHERS if name not in modules]
    modules.update(dict.fromkeys(refused))  # None: Python refuses the import, and the walk goes on
    try:
        return need("skops.io", "tables")
    finally:
        for name in refused:
            modules.pop(name, None)

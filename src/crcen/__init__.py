"""Cost-sensitive classification of rare events with calibrated probabilities.

State what a miss is worth; get decisions at that price, calibrated probabilities, and evidence on unseen rows that the
decisions follow that price. Public names load on first use: ``import crcen`` imports neither torch nor scikit-learn nor
pandas. `__init__.pyi` lists them with their modules, and names that are imported from their modules.
"""

import os
import sys
from importlib import import_module
from typing import Any

with open(os.path.join(os.path.dirname(__file__), "__init__.pyi"), encoding="utf-8") as _stub:
    _lines = _stub.read().splitlines()
# Lines are "from MODULE import NAME as NAME", and "# from MODULE import NAMES" for names that stay in their modules.
_MODULE_OF = {line.split()[-1]: line.split()[1] for line in _lines if line.startswith("from ")}
_elsewhere = [line.split() for line in _lines if line.startswith("# from ")]
_STAYING = {name: words[2] for words in _elsewhere for name in words[4:]}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        hint = f": import it from {_STAYING[name]}" if name in _STAYING else ""
        message = f"module 'crcen' has no attribute {name!r}{hint}"
        # ``from crcen import name`` replaces the message of an AttributeError, but not that of an ImportError.
        is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise ImportError(message, name="crcen") if hint and is_import else AttributeError(message)
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""environment_info: what is installed, and what crcen would run on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

from crcen import __version__
from crcen._support.extras import installed_version
from crcen.theory.rows import Shown, in_one_line

__all__ = ["EnvironmentInfo", "environment_info"]

# Package, and the extra that brings it; none for those that are always there.
_PACKAGES = {
    "numpy": "",
    "scipy": "",
    "scikit-learn": "",
    "pandas": "",
    "pyarrow": "",
    "skrub": "",
    "jinja2": "",
    "torch": "train",
    "lightgbm": "train",
    "matplotlib": "plots",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "imbalanced-learn": "baselines",
    "ray": "ray",
}


@dataclass(frozen=True)
class EnvironmentInfo(Shown):
    """Versions and machine; prints itself.

    Parameters
    ----------
    crcen, python, system : str
        Versions, and the kind of machine.
    processors : int
        Processor cores.
    device : str
        Where networks are trained by default.
    packages : dict of str to str or None
        Version of each package; None where it is not installed.
    """

    crcen: str
    python: str
    system: str
    processors: int
    device: str
    packages: dict[str, str | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    __repr__ = in_one_line

    def __str__(self) -> str:
        lines = [
            f"crcen {self.crcen}, python {self.python}, {self.system}, {self.processors} processors",
            f"networks are trained on: {self.device}",
        ]
        for name, version in self.packages.items():
            source = f"'crcen[{_PACKAGES[name]}]'" if _PACKAGES[name] else name
            missing = f"not installed (pip install {source})"
            lines.append(f"  {name:<18} {version or missing}")
        return "\n".join(lines)


def environment_info() -> EnvironmentInfo:
    """What is installed, and what networks would be trained on: what `crcen info` prints.

    Returns
    -------
    EnvironmentInfo
        Versions and machine.
    """
    return EnvironmentInfo(
        crcen=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        processors=os.cpu_count() or 1,
        device=_device(),
        packages={package: installed_version(package) for package in _PACKAGES},
    )


def _device() -> str:
    try:
        import torch
    except ModuleNotFoundError:
        return "nothing, since torch is not installed; saved models predict without it"
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

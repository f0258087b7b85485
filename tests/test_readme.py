"""Code in README.md and docs/ runs, block after block, as a reader would run it."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^(?P<mark><!-- skip -->[ \t]*\n\n?)?```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.M | re.S)


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
    done = subprocess.run([sys.executable, "-m", "crcen", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_result_blocks_are_up_to_date():
    """Tables in the README and docs are the files of results/, word for word."""
    script = ROOT / "scripts" / "fill_pages.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""Sphinx: the pages of this folder and the reference from docstrings, built offline by ``make docs``."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import crcen
import crcen.torch

project = "crcen"
author = "The crcen developers"
copyright = author
version = release = crcen.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
exclude_patterns = ["_build"]
# Result blocks bring headings of their own depth.
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = f"crcen {release}"

# The contents: groups of pages. A page that is not listed fails the build's test.
GROUPS = {
    "Getting started": ("quickstart", "guide", "tutorial", "gallery", "glossary"),
    "How-to": ("decide", "report", "reasons", "classes", "monitor", "audits", "evidence", "serve", "scale", "torch"),
    "Explanation": ("probabilities", "committee", "when-to-weight", "theory", "comparison"),
    "Results": ("benchmark", "performance", "reproduction", "methods"),
    "Reference": ("api", "model-files", "architecture", "versioning"),
}

# The folders of the package, in the order of the reference.
PARTS = {
    "models": "Classifiers",
    "tables": "Mixed tables",
    "files": "Saved models",
    "theory": "Theory: weights, key equation, expense, costs",
    "decisions": "Decisions, correction, monitoring",
    "report": "Reports and displays",
    "commands": "Tables and commands",
    "scale": "Tables larger than memory",
    "datasets": "Data",
    "training": "Training many networks",
    "paper": "Paper: reproduction and compared methods",
    "exceptions": "Errors",
}


def _pages() -> str:
    """The table of contents, one list for each group."""
    found = {path.stem for path in Path(__file__).parent.glob("*.md")}
    blocks = []
    for title, pages in GROUPS.items():
        own = [page for page in pages if page in found]
        blocks.append("\n".join(["```{toctree}", f":caption: {title}", ":maxdepth: 1", "", *own, "```"]))
    return "\n\n".join(blocks)


def _notebook() -> str:
    """The cells of the tutorial as Markdown; text output is set in a monospace font, HTML and images stay."""
    parts = []
    for cell in json.loads((Path(__file__).parent / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f'<img alt="output" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">')
            elif shown := "".join(data.get("text/plain", output.get("text", ""))):
                parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts)


def _entry(home: str, name: str) -> list[str]:
    value = getattr(import_module(home), name)
    if isinstance(value, type):
        return [f".. autoclass:: {home}.{name}", "   :members:", "   :inherited-members: Exception, tuple, dict", ""]
    if callable(value):
        return [f".. autofunction:: {home}.{name}", ""]
    return [f".. py:data:: {home}.{name}", f"   :type: {type(value).__name__}", ""]


def _reference() -> str:
    """One section for each folder of the package: its public names, then what its modules give beside them."""
    names: dict[str, list[tuple[str, str]]] = {}
    for name, home in sorted(crcen._MODULE_OF.items()):
        if name != "__version__":
            names.setdefault(home.split(".")[1], []).append(("crcen", name))
    for home, own in crcen._SUBMODULE_NAMES.items():
        names.setdefault(home.split(".")[1], []).extend((home, name) for name in own.split())
    if missing := sorted(set(names) - set(PARTS)):
        raise ValueError(f"PARTS of docs/conf.py must name every folder with public names, {missing} are missing")
    sections = []
    for part, title in PARTS.items():
        if part in names:
            lines = [line for home, name in names[part] for line in _entry(home, name)]
            sections.append("\n".join([f"## {title}", "", "```{eval-rst}", *lines, "```", ""]))
    return "\n".join(sections)


def _torch_reference() -> str:
    """The names of crcen.torch, which is imported by itself."""
    lines = []
    for name in sorted(crcen.torch.__all__):
        is_class = isinstance(getattr(crcen.torch, name), type)
        lines += [f".. {'autoclass' if is_class else 'autofunction'}:: crcen.torch.{name}"]
        lines += ["   :members:", ""] if is_class else [""]
    return "\n".join(["## PyTorch networks: `crcen.torch`", "", "```{eval-rst}", *lines, "```", ""])


def _fill(app: Any, page: str, source: list[str]) -> None:
    # The site contains only the files of this folder, so links to files outside it become plain text.
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", source[0])
    if page == "index":
        source[0] = source[0].replace("<!-- pages -->", _pages())
    elif page == "tutorial":
        source[0] = source[0].replace("<!-- notebook -->", _notebook())
    elif page == "api":
        source[0] = source[0].replace("<!-- public names -->", _reference() + "\n" + _torch_reference())


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn") else None


def _join(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Put names of parameters that share one description, and go on in the next line, into one line."""
    for i in reversed(range(len(lines) - 2)):
        is_wrapped = re.fullmatch(r"\w+(, \w+)*,", lines[i]) and re.fullmatch(r"\w+(, \w+)*", lines[i + 1])
        if is_wrapped and lines[i + 2].startswith("    "):
            lines[i : i + 2] = [f"{lines[i]} {lines[i + 1]}"]


def _escape(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Keep the bars of absolute values from being read as substitutions."""
    for i, line in enumerate(lines):
        pieces = re.split(r"(``.*?``)", line)
        lines[i] = "".join(one if one.startswith("``") else one.replace("|", r"\|") for one in pieces)


def setup(app: Any) -> None:
    """Write table of contents and reference when their pages are read."""
    app.connect("source-read", _fill)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _join, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _escape)

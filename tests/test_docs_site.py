"""The site's own parts: every page is in its contents, every public name in its reference."""

import importlib.util
import re
from pathlib import Path

import pytest

import crcen
import crcen.torch

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def conf():
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(conf, page):
    source = [(DOCS / f"{page}.md").read_text(encoding="utf-8")]
    conf._fill(None, page, source)
    return source[0]


def test_every_page_is_in_the_contents(conf):
    lists = re.findall(r"```\{toctree\}\n:caption: .*?\n:maxdepth: 1\n\n(.*?)\n```", filled(conf, "index"), re.S)
    listed = [page for one in lists for page in one.split("\n")]
    assert sorted(listed) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")


def test_the_tutorial_shows_the_notebook_and_its_output(conf):
    page = filled(conf, "tutorial")
    assert page.count("```python") > 5
    assert "```text" in page
    assert "data:image/png;base64," in page


def test_every_name_is_in_the_reference_by_its_place(conf):
    listed = re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: ([\w.]+)$", filled(conf, "api"), re.M)
    public = [f"crcen.{name}" for name in crcen.__all__ if name != "__version__"]
    elsewhere = [f"{home}.{name}" for home, names in crcen._SUBMODULE_NAMES.items() for name in names.split()]
    of_torch = [f"crcen.torch.{name}" for name in crcen.torch.__all__]
    assert sorted(listed) == sorted([*public, *elsewhere, *of_torch])
    assert crcen.torch.__all__ == sorted(crcen.torch.__all__)


def test_links_to_files_beside_the_docs_become_text(conf):
    source = ["see [the script](../scripts/x.py) and [theory](theory.md)"]
    conf._fill(None, "guide", source)
    assert source == ["see the script and [theory](theory.md)"]

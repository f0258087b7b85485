"""A headless browser for the tests that need one."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "headless_chromium.py"


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests of a process."""
    spec = importlib.util.spec_from_file_location("headless_chromium", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = module.find_chromium()
    if program is None:
        pytest.skip("no Chromium is installed")
    with module.Chromium(program) as browser:
        yield browser

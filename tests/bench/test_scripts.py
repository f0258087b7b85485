"""Every script of bench/ and scripts/ imports the current package, says what it does and has an entry point."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("speed", "validity", "choices")
    for path in (ROOT / "bench" / folder).glob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_imports_and_names_its_command(name):
    script = import_module(name)
    assert f"python -m {name}" in script.__doc__
    assert callable(script.main)

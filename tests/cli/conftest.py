"""Commands that must succeed, and commands that must be refused."""

import json

import pytest


@pytest.fixture
def answer(crcen_command):
    """Run a command with --json, which must end with 0 (or one of ``codes``) → its values."""

    def run(*arguments, codes=(0,)):
        code, out, err = crcen_command(*arguments, "--json")
        assert (code in codes, err) == (True, "")
        return json.loads(out)

    return run


@pytest.fixture
def printed(crcen_command):
    """Run a command, which must end with 0 → what it prints."""

    def run(*arguments):
        code, out, err = crcen_command(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def refusal(crcen_command):
    """Run a command that must print nothing and end with 1 or 2 and one line, or with usage → what it says."""

    def run(*arguments, code=None):
        found, out, err = crcen_command(*arguments)
        assert (found in ((1, 2) if code is None else (code,)), out) == (True, "")
        if not err.startswith("Usage: "):
            assert (err.startswith("crcen: "), err.count("\n")) == (True, 1)
        return " ".join(err.replace("│", " ").split())

    return run

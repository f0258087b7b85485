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
    """Run a command that must print nothing and end with 1 and one line, or with 2 → what it says."""

    def run(*arguments, code=1):
        found, out, err = crcen_command(*arguments)
        assert (found, out) == (code, "")
        if code == 1:
            assert err.startswith("crcen: ")
            assert err.count("\n") == 1
        return " ".join(err.replace("│", " ").split())

    return run

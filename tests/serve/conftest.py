"""Models for the server and the application, and server processes that are always ended."""

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from serve_tables import Process, binary_table, class_table

import crcen


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Files of a binary model (fraud) and a model of three classes (state)."""
    folder = tmp_path_factory.mktemp("models")
    paths = {"fraud": folder / "fraud.crcen", "state": folder / "state.crcen"}
    quick = {"effort": "quick", "random_state": 0}
    crcen.fit_table(binary_table(), target="fraud", weighting=crcen.Budget(10), out=paths["fraud"], **quick)
    crcen.fit_table(class_table(), target="state", out=paths["state"], **quick)
    return paths


@pytest.fixture
def start():
    """Start `crcen` with arguments; every process is ended after the test."""
    started = []

    def run(*arguments, **options):
        started.append(Process(*arguments, **options))
        return started[-1]

    yield run
    for one in started:
        one.end()

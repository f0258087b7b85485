"""What tests of models share: a record of everything that the engine trained."""

from typing import NamedTuple

import pytest

from crcen.training.engine import Trainer


class Call(NamedTuple):
    """A call to the engine."""

    jobs: list
    results: list
    n_rows: int


@pytest.fixture
def trained(monkeypatch):
    """Every call to the engine: of a search its parts, then the refit."""
    calls, original = [], Trainer.__call__

    def validation(trainer, jobs, **how):
        results = original(trainer, jobs, **how)
        calls.append(Call(list(jobs), results, len(trainer.data.X)))
        return results

    monkeypatch.setattr(Trainer, "__call__", validation)
    return calls

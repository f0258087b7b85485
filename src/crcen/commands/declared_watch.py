"""Declared criteria on a stream of labelled rows: an alarm when one of them no longer holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput
from crcen.commands.declare import Declaration, file_digest, read_declaration
from crcen.theory.criteria import Criterion
from crcen.theory.rows import plain
from crcen.theory.sequential import ConfidenceSequence

__all__ = ["DeclaredWatch", "declaration_of_model"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

_ALL, _OTHERS, _MOST_GROUPS = "all rows", "all others", 20


def declaration_of_model(path: str | Path, model: Any) -> Declaration:
    """The declaration in a file; an error if it is of another model."""
    declared = read_declaration(path)
    if isinstance(model, str | Path) and file_digest(model) != declared.content["model"]["sha256"]:
        raise InvalidInput(f"{path} declares {declared.content['model']['file']}, which is another model than {model}.")
    return declared


@dataclass
class DeclaredWatch:
    """Running tests of declared thresholds.

    A threshold is broken once bets that it is not kept reach 1/α (`ConfidenceSequence`), which happens with a
    probability of at most α over the whole stream if it is kept. α = (1 − confidence) / criteria with a threshold; with
    groups, half of it for all rows and 1/(2j(j + 1)) for the j-th group.

    Parameters
    ----------
    declared : Declaration
        What was declared.
    costs : float64 array of shape (K, A)
        Cost of each decision for each class.
    tests : dict of str to dict of str to ConfidenceSequence
        By criterion and group.
    broken : list of str
        Sentences about criteria that no longer hold; they stay.
    """

    declared: Declaration
    costs: Array
    tests: dict[str, dict[str, ConfidenceSequence]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def from_state(cls, declared: Declaration, costs: Array, state: Any) -> DeclaredWatch:
        """With the tests of earlier calls, if there are any."""
        found = cls(declared, costs)
        if state is None:
            return found
        try:
            if state["digest"] != declared.digest:
                raise InvalidInput("this watch was begun with another declaration: begin a new one.")
            by_text = {one.text: one for one in declared.criteria}
            for text, groups in state["tests"].items():
                start = found._empty(by_text[text])
                found.tests[text] = {
                    name: replace(start.add(values), counts=np.asarray(counts, dtype=np.float64)) if values else start
                    for name, (values, counts) in groups.items()
                }
            found.broken = [str(one) for one in state["broken"]]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                "the declared criteria in the state of this watch are damaged: begin a new one."
            ) from error
        return found

    def state(self) -> dict[str, Any]:
        """Plain values that `from_state` takes."""
        tests = {
            text: {name: [one.values.tolist(), one.counts.tolist()] for name, one in groups.items()}
            for text, groups in self.tests.items()
        }
        return {"digest": self.declared.digest, "tests": tests, "broken": self.broken}

    def _empty(self, one: Criterion) -> ConfidenceSequence:
        if one.metric == "cost":
            return ConfidenceSequence(float(self.costs.min()), float(self.costs.max()))
        return ConfidenceSequence(0.0, 1.0)

    def add(self, y: Index, actions: Index, groups: Mapping[str, NDArray[Any]]) -> None:
        """Add labelled rows with their decisions and groups."""
        for one in self.declared.criteria:
            if not one.has_threshold:
                continue
            values = self.costs[y, actions] if one.metric == "cost" else (y == actions).astype(np.float64)
            among = np.ones(len(y), dtype=np.bool_)
            if one.metric != "cost":
                among = (y if one.metric == "recall" else actions) == one.column
            tests = self.tests.setdefault(one.text, {_ALL: self._empty(one)})
            parts: dict[str, Bools] = {_ALL: among}
            for column, names in groups.items():
                for name in dict.fromkeys(names):
                    key = f"{column} = {name}"
                    if key not in tests and sum(other.startswith(f"{column} = ") for other in tests) >= _MOST_GROUPS:
                        key = f"{column} = {_OTHERS}"
                    tests.setdefault(key, self._empty(one))
                    own = among & (names == name)
                    parts[key] = own | parts[key] if key in parts else own
            for key, rows in parts.items():
                tests[key] = tests[key].add(values[rows])
            self._judge(one, tests)

    def _judge(self, one: Criterion, tests: Mapping[str, ConfidenceSequence]) -> None:
        n_thresholds = sum(other.has_threshold for other in self.declared.criteria)
        alpha = (1.0 - self.declared.content["confidence"]) / n_thresholds
        for number, (key, test) in enumerate(tests.items()):
            share = 1.0 if not self.declared.content["groups"] else 0.5
            level = alpha * share / (1.0 if number == 0 else number * (number + 1))
            side = 1 if one.metric == "cost" else -1
            mean = min(max(one.threshold, test.low), test.high)
            if not test.n_values or test.log_capital(mean, side) < math.log(1.0 / level):
                continue
            start = f"{one.text} no longer holds in {key}: "
            if not any(said.startswith(start) for said in self.broken):
                self.broken.append(f"{start}{test.mean * one.per:.4g} on {test.n_values:,} rows that count")

    def results(self, n_differences: int, n_drifts: int) -> list[dict[str, Any]]:
        """Each declared criterion with its state; the key equation and drift are those of the watch itself."""
        found = []
        for one in self.declared.criteria:
            test = self.tests.get(one.text, {}).get(_ALL)
            said = [text for text in self.broken if text.startswith(f"{one.text} no longer")]
            own = {"key equation": n_drifts, "drift": n_differences}.get(one.metric, len(said))
            verdict = "not watched" if one.metric == "groups" else "no longer holds" if own else "no alarm"
            estimate = None if test is None else plain(test.mean * one.per)
            rows = 0 if test is None else test.n_values
            found.append(
                {"criterion": one.text, "verdict": verdict, "estimate": estimate, "rows": rows, "alarms": said}
            )
        return found

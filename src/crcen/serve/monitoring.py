"""Labels of logged decisions: joined by identifier, counted once, and given to the monitor."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crcen import InvalidInput, monitor_table
from crcen._support.values import label_key
from crcen.serve.decision_log import DecisionLog
from crcen.serve.served_model import ServedModel

__all__ = ["LabelledRows"]

_AUDIT = "audit_probability"
# Rows of a period that are compared with training.
_MOST_ROWS = 100_000


class LabelledRows:
    """Labels of the rows in a decision log.

    Parameters
    ----------
    log : DecisionLog
        With inputs. The state of the monitor is kept beside it, one file for each version of a model.
    """

    def __init__(self, log: DecisionLog) -> None:
        self._log = log

    def add(self, served: ServedModel, body: Any) -> dict[str, Any]:
        """Give new labels to the monitor.

        Parameters
        ----------
        served : ServedModel
            The model; decisions of other versions are left out.
        body : list of dict, or dict
            Objects with ``id`` and ``label``, or labels by identifier.

        Returns
        -------
        dict
            Numbers of labels, and what the monitor found.
        """
        from filelock import FileLock

        pairs = _pairs(body)
        known = {label_key(label): label for label in served.model.classes_.tolist()}
        for one, label in pairs.items():
            if label_key(label) not in known:
                raise InvalidInput(
                    f"labels must be of {', '.join(map(str, known.values()))}: got {str(label)[:60]!r} for id "
                    f"{one[:60]!r}."
                )
        with FileLock(f"{self._log.path}.lock", timeout=20):
            decisions, labelled = self._log.find(pairs)
            usable = {
                one: entry
                for one, entry in decisions.items()
                if entry["version"] == served.version and one not in labelled and "inputs" in entry
            }
            chosen = {one: entry for one, entry in usable.items() if entry.get("audit", True)}
            found: dict[str, Any] = {
                "labels": len(chosen),
                "unknown": len([one for one in pairs if one not in decisions]),
                "repeated": len([one for one in pairs if one in labelled]),
                "not_drawn": len(usable) - len(chosen),
                "other_version": len([one for one in decisions if one not in labelled and one not in usable]),
                "monitor": None,
            }
            if chosen:
                result = self._watch(served, chosen, {one: known[label_key(pairs[one])] for one in chosen})
                found["monitor"] = result.to_dict()
                self._log.write(chosen, [{"version": served.version, "label": pairs[one]} for one in chosen])
        return found

    def _watch(self, served: ServedModel, entries: dict[str, dict[str, Any]], labels: dict[str, Any]) -> Any:
        """Give the rows of the same period to the monitor: rows without a label keep the columns representative."""
        import pandas as pd

        times = sorted(str(entry["time"]) for entry in entries.values())
        period = self._log.decisions_between(times[0], times[-1], served.version, _MOST_ROWS)
        entries = {**period, **entries}
        names = list(map(str, served.model.feature_names_in_))
        frame = pd.DataFrame({name: [entry["inputs"].get(name) for entry in entries.values()] for name in names})
        target, audit = served.target or "label", None
        frame[target] = [labels.get(one) for one in entries]
        if all("audit_probability" in entry for entry in entries.values()):
            frame[_AUDIT] = [entry["audit_probability"] for entry in entries.values()]
            audit = _AUDIT
        return monitor_table(
            served.model,
            frame,
            state=self._place(served, "json"),
            page=self._place(served, "html"),
            target=target,
            when=times[-1][:10],
            audit_probability=audit,
        )

    def _place(self, served: ServedModel, kind: str) -> Path:
        return self._log.path.with_name(f"{self._log.path.stem}-{served.name}-{served.version}.monitor.{kind}")

    def page(self, served: ServedModel) -> str:
        """The page of the monitor, or a sentence."""
        try:
            return self._place(served, "html").read_text(encoding="utf-8")
        except FileNotFoundError:
            return (
                "<!doctype html><html lang=en><title>Monitor</title><p>No labels yet: send them to POST /labels, and "
                "this page shows what they say about the model.</p></html>"
            )

    def gauges(self, models: Iterable[ServedModel]) -> dict[str, dict[str, float]]:
        """Whether the monitor raised an alarm, the drift of the log-odds, and columns unlike training."""
        found: dict[str, dict[str, float]] = {"monitor_alarm": {}, "monitor_drift": {}, "monitor_unlike_columns": {}}
        for served in models:
            try:
                last = json.loads(self._place(served, "json").read_text(encoding="utf-8"))["history"][-1]
            except (FileNotFoundError, IndexError):
                continue
            found["monitor_alarm"][served.name] = float(last["is_alarm"])
            found["monitor_unlike_columns"][served.name] = float(len(last["unlike"]))
            drift = (last.get("labels") or {}).get("drift")
            if isinstance(drift, int | float):
                found["monitor_drift"][served.name] = float(drift)
        return {name: values for name, values in found.items() if values}


def _pairs(body: Any) -> dict[str, Any]:
    """Labels by identifier."""
    if isinstance(body, dict) and set(body) == {"id", "label"}:
        body = [body]
    if isinstance(body, dict):
        body = [{"id": one, "label": label} for one, label in body.items()]
    if not isinstance(body, list) or not body:
        raise InvalidInput("labels must be a list of objects with id and label, or an object of labels by id.")
    found: dict[str, Any] = {}
    for number, one in enumerate(body, 1):
        is_whole = isinstance(one, dict) and set(one) == {"id", "label"} and isinstance(one["id"], str | int)
        if not is_whole or isinstance(one["label"], list | dict | type(None)):
            raise InvalidInput(f"label {number} must be an object with id and label.")
        found[str(one["id"])] = one["label"]
    return found

"""Rows of a run on several classes as Markdown: means, ranks, and the cost on every table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from bench.rivals.classes.peers import CLASS_PEERS
from bench.rivals.classes.tables import CLASS_TABLES

__all__ = ["class_page"]

# Columns: title, and which way is better.
_METRICS = {
    "g_mean": ("macro G-mean", 1),
    "macro_ap": ("macro AP", 1),
    "log_loss": ("log loss", -1),
    "cost_inverse": ("cost, inverse frequency", -1),
    "cost_ordinal": ("cost, ordinal", -1),
    "cost_dear": ("cost, one dear class", -1),
}
_MAIN = "cost_inverse"


def class_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """A summary of a run.

    Parameters
    ----------
    rows : sequence of mappings
        As the run folder keeps them.
    """
    scored = [row for row in rows if "error" not in row]
    if not scored:
        return "No row was scored.\n"
    every = {name: {(r["dataset"], r["split"]): r for r in scored if r["peer"] == name} for name in CLASS_PEERS}
    by_peer = {name: own for name, own in every.items() if own}
    places = {(row["dataset"], row["split"]) for row in rows}
    sets = [name for name in CLASS_TABLES if any(row["dataset"] == name for row in scored)]
    splits = {name: sum(place[0] == name for place in places) for name in sets}
    shared = [name for name in sets if all(_n_splits(own, name) == splits[name] for own in by_peer.values())]
    listed = ", ".join(f"{name} ({splits[name]})" for name in sets)
    lines = [f"{len(sets)} tables and their splits: {listed}; costs over those of the cheapest habit.", ""]
    lines += _means(by_peer, shared) if shared else ["No table has a result of every peer, so nobody is ranked."]
    for metric in (_MAIN, "log_loss"):
        lines += ["", f"{_METRICS[metric][0].capitalize()} by table:", "", *_by_set(by_peer, sets, metric)]
    errors = sorted({f"{row['peer']} on {row['dataset']}: {row['error']}" for row in rows if "error" in row})
    lines += ["", *(f"- {error}" for error in errors)] if errors else []
    return "\n".join(lines) + "\n"


def _n_splits(own: Mapping[Any, Any], name: str) -> int:
    return sum(place[0] == name for place in own)


def _table(by_peer: Mapping[str, Mapping[Any, Any]], sets: Sequence[str], metric: str) -> Any:
    """Means over splits, (peers, sets); NaN where there are none."""
    found = [
        [[row[metric] for place, row in own.items() if place[0] == name] for name in sets] for own in by_peer.values()
    ]
    return np.array([[np.mean(values) if values else np.nan for values in own] for own in found])


def _means(by_peer: Mapping[str, Any], sets: Sequence[str]) -> list[str]:
    lines = ["| peer | " + " | ".join(title for title, _ in _METRICS.values()) + " | seconds |"]
    lines.append("|---|" + "---:|" * (len(_METRICS) + 1))
    tables = {metric: _table(by_peer, sets, metric) for metric in _METRICS}
    ranks = {metric: rankdata(-sign * tables[metric], axis=0).mean(axis=1) for metric, (_, sign) in _METRICS.items()}
    seconds = _table(by_peer, sets, "seconds_fit").mean(axis=1)
    for i, peer in enumerate(by_peer):
        cells = [f"{tables[metric][i].mean():.3f} ({ranks[metric][i]:.1f})" for metric in _METRICS]
        lines.append(f"| {CLASS_PEERS[peer].label} | " + " | ".join(cells) + f" | {seconds[i]:.0f} |")
    return [*lines, "", f"Means over the tables that every peer has ({', '.join(sets)}), mean ranks in brackets."]


def _by_set(by_peer: Mapping[str, Any], sets: Sequence[str], metric: str) -> list[str]:
    lines = ["| peer | " + " | ".join(sets) + " |", "|---|" + "---:|" * len(sets)]
    for peer, row in zip(by_peer, _table(by_peer, sets, metric), strict=True):
        cells = ["–" if np.isnan(value) else f"{value:.3f}" for value in row]
        lines.append(f"| {CLASS_PEERS[peer].label} | " + " | ".join(cells) + " |")
    return lines

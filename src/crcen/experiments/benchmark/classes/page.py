"""Rows of a run on several classes as Markdown: means, ranks, and the cost on every table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from crcen.experiments.benchmark.classes.peers import CLASS_PEERS
from crcen.experiments.benchmark.classes.tables import CLASS_TABLES

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
    places = {(row["dataset"], row["split"]) for row in rows}
    by_peer = {name: {(r["dataset"], r["split"]): r for r in scored if r["peer"] == name} for name in CLASS_PEERS}
    whole = [name for name, own in by_peer.items() if set(own) == places]
    parts = [name for name, own in by_peer.items() if own and name not in whole]
    sets = [name for name in CLASS_TABLES if any(row["dataset"] == name for row in scored)]
    n_splits = len({split for _, split in places})
    head = f"{len(sets)} tables ({', '.join(sets)}), {n_splits} splits; costs over those of the cheapest habit."
    lines = [head, "", *_means(by_peer, whole, sets)]
    if parts:
        listed = ", ".join(f"{CLASS_PEERS[name].label} ({len(by_peer[name])} of {len(places)})" for name in parts)
        lines += ["", f"Not ranked, as they gave no result on some splits: {listed}."]
    lines += ["", f"{_METRICS[_MAIN][0].capitalize()} by table:", "", *_by_set(by_peer, whole, sets)]
    errors = sorted({f"{row['peer']} on {row['dataset']}: {row['error']}" for row in rows if "error" in row})
    lines += ["", *(f"- {error}" for error in errors)] if errors else []
    return "\n".join(lines) + "\n"


def _table(by_peer: Mapping[str, Mapping[Any, Any]], peers: Sequence[str], sets: Sequence[str], metric: str) -> Any:
    """Means over splits, (peers, sets)."""
    return np.array(
        [
            [np.mean([row[metric] for place, row in by_peer[peer].items() if place[0] == name]) for name in sets]
            for peer in peers
        ]
    )


def _means(by_peer: Mapping[str, Any], peers: Sequence[str], sets: Sequence[str]) -> list[str]:
    lines = ["| peer | " + " | ".join(title for title, _ in _METRICS.values()) + " | seconds |"]
    lines.append("|---|" + "---:|" * (len(_METRICS) + 1))
    tables = {metric: _table(by_peer, peers, sets, metric) for metric in _METRICS}
    ranks = {metric: rankdata(-sign * tables[metric], axis=0).mean(axis=1) for metric, (_, sign) in _METRICS.items()}
    seconds = _table(by_peer, peers, sets, "seconds_fit").mean(axis=1)
    for i, peer in enumerate(peers):
        cells = [f"{tables[metric][i].mean():.3f} ({ranks[metric][i]:.1f})" for metric in _METRICS]
        lines.append(f"| {CLASS_PEERS[peer].label} | " + " | ".join(cells) + f" | {seconds[i]:.0f} |")
    return [*lines, "", "Means over the tables, mean ranks in brackets."]


def _by_set(by_peer: Mapping[str, Any], peers: Sequence[str], sets: Sequence[str]) -> list[str]:
    found = _table(by_peer, peers, sets, _MAIN)
    lines = ["| peer | " + " | ".join(sets) + " |", "|---|" + "---:|" * len(sets)]
    for peer, row in zip(peers, found, strict=True):
        lines.append(f"| {CLASS_PEERS[peer].label} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
    return lines

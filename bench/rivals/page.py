"""Tables of the benchmark, derived from its rows."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.rivals.datasets import HALVES, MULTICLASS, all_sets, half_of
from bench.rivals.peers import OURS, PEERS, Peer
from bench.rivals.statistics import (
    bayesian_signed_ranks,
    corrected_t_test,
    critical_difference,
    friedman,
    mean_ranks,
)
from crcen.paper.protocol import RunFolder, Table

__all__ = [
    "METRICS",
    "Results",
    "budgets",
    "failures",
    "means",
    "partial_means",
    "partial_ranks",
    "ranks",
    "relative_gap",
    "scores",
    "versus",
    "write_page",
]

Place = tuple[str, int]  # a set and the number of a split

# Differences below this share of the mean of both are no difference: a loss of .05 and one of .5 are not alike.
ROPE = 0.01
_LEVEL = 0.05
_SURE = 0.95
_ALL_COSTS = "all_costs"
_PUBLISHED = "cost_published"  # of the tables that have such a matrix


class Metric(NamedTuple):
    """Title of a column of the rows, and which way is better."""

    title: str
    sign: int = 1


METRICS = {
    "g_mean": Metric("G-mean"),
    "f1": Metric("F1"),
    "macro_f1": Metric("macro F1"),
    "average_precision": Metric("average precision"),
    "macro_ap": Metric("macro average precision"),
    "log_loss": Metric("log loss", -1),
    "calibration_error": Metric("calibration error", -1),
    "roc_auc": Metric("ROC AUC"),
    "brier": Metric("Brier score", -1),
    "cost_2": Metric("cost at 2", -1),
    "cost_5": Metric("cost at 5", -1),
    "cost_20": Metric("cost at 20", -1),
    "cost_ir": Metric("cost at IR", -1),
    "cost_inverse": Metric("cost, inverse frequency", -1),
    "cost_ordinal": Metric("cost, ordinal", -1),
    "cost_dear": Metric("cost, one expensive class", -1),
    _PUBLISHED: Metric("cost, published", -1),
}
_TITLES = {name: metric.title for name, metric in METRICS.items()} | {_ALL_COSTS: "all costs"}
# Metrics that ranks are ordered and compared by, of two classes and of several.
_MAIN = ("g_mean", "f1", "average_precision", "log_loss"), ("g_mean", "macro_ap", "log_loss", "cost_inverse")
_COSTS = ("cost_2", "cost_5", "cost_20", "cost_ir"), ("cost_inverse", "cost_ordinal", "cost_dear")
_MEANS = ("log_loss", "calibration_error", "average_precision", "macro_ap", "roc_auc", "f1", "macro_f1", "g_mean")


def span(numbers: Collection[int]) -> str:
    """The lowest to the highest of some numbers."""
    return f"{min(numbers)} to {max(numbers)}" if len(set(numbers)) > 1 else str(min(numbers))


class Results:
    """Scores of a run: rows as `RunFolder` keeps them, of one half or of all."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], half: str = "all") -> None:
        kept = [row for row in rows if row["dataset"] != "*" and half in ("all", half_of(row["dataset"]))]
        self.rows = kept
        self._by_key = {(row["peer"], row["dataset"], row["split"]): row for row in kept}
        self._tried: dict[str, set[Place]] = {}
        self._scored: dict[tuple[str, str], set[int]] = {}
        for row in kept:
            self._tried.setdefault(row["peer"], set()).add((row["dataset"], row["split"]))
            if "error" not in row:
                self._scored.setdefault((row["peer"], row["dataset"]), set()).add(row["split"])

    @cached_property
    def peers(self) -> list[str]:
        """Peers with rows, in the order of `PEERS`."""
        return [name for name in PEERS if name in self._tried]

    @cached_property
    def sets(self) -> list[str]:
        """Sets with rows, development before confirmation, in alphabetical order."""
        order = (*HALVES, "other")
        return sorted({row["dataset"] for row in self.rows}, key=lambda name: (order.index(half_of(name)), name))

    @cached_property
    def is_multiclass(self) -> bool:
        """Whether the sets have several classes."""
        return any(half_of(name) == MULTICLASS for name in self.sets)

    @cached_property
    def main(self) -> tuple[str, ...]:
        """Metrics that ranks are ordered and compared by."""
        return tuple(name for name in _MAIN[self.is_multiclass] if name in self.metrics)

    @cached_property
    def costs(self) -> tuple[str, ...]:
        """Cost columns; none if a row lacks one."""
        names = _COSTS[self.is_multiclass]
        return names if set(names) <= set(self.metrics) else ()

    @cached_property
    def complete(self) -> list[str]:
        """Peers that were tried on every split that any peer was tried on: only they can be ranked."""
        everywhere = set().union(*self._tried.values())
        return [peer for peer in self.peers if self.places(peer) == everywhere]

    @cached_property
    def partial(self) -> list[str]:
        """The other peers."""
        return [peer for peer in self.peers if peer not in self.complete]

    @cached_property
    def reference(self) -> str:
        """Ours to compare with: the committee if it is complete, else the searched network, else none."""
        return next((peer for peer in ("committee", OURS) if peer in self.complete), "")

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics that every row with scores has: rows of older versions lack some, and are not ranked by them."""
        done = [row for row in self.rows if "error" not in row]
        return [name for name in METRICS if all(row.get(name) is not None for row in done)]

    def places(self, peer: str) -> set[Place]:
        """Where a peer was tried, failures included."""
        return self._tried[peer]

    def within(self, places: set[Place]) -> "Results":
        """The same rows at some places only."""
        return Results([row for row in self.rows if (row["dataset"], row["split"]) in places])

    def coverage(self, peer: str, n_sets: int) -> str:
        """On how many of so many sets, with how many splits each, a peer was tried."""
        counts = Counter(dataset for dataset, _ in self._tried.get(peer, ())).values()
        splits = f" × {span(counts)} split{'s' * (max(counts) > 1)}" if counts else ""
        return f"{len(counts)} of {n_sets} sets{splits}"

    def cut_short(self, peers: Sequence[str], asked: int | None) -> str:
        """A sentence on searches that the time limit ended before they had tried ``asked`` settings."""
        found = []
        for peer in peers if asked is not None else ():
            rows = [row for row in self.rows if row["peer"] == peer and row.get("settings", asked) < asked]
            if rows and PEERS[peer].space:
                limits = sorted({f"{row['time_limit']:g}" for row in rows if "time_limit" in row}, key=float)
                within = f" in {' or '.join(limits)} seconds" if limits else ""
                found.append(
                    f"{PEERS[peer].label} on {len(rows)} of {len(self.places(peer))} splits "
                    f"({span([row['settings'] for row in rows])} of {asked} settings{within})"
                )
        return f" Searches cut short by the time limit: {', '.join(found)}." if found else ""

    def splits(self, dataset: str, *peers: str) -> list[int]:
        """Splits of a set on which all of these peers gave scores."""
        return sorted(set.intersection(*(self._scored.get((peer, dataset), set()) for peer in peers)))

    def values(self, peer: str, dataset: str, metric: str, splits: Iterable[int]) -> NDArray[np.float64]:
        """A peer's scores on splits of a set, NaN where it failed."""
        found = [self._by_key.get((peer, dataset, split), {}).get(metric) for split in splits]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    def mean(self, peer: str, dataset: str, metric: str) -> float:
        """Mean over the splits that gave a score; NaN if none did."""
        values = self.values(peer, dataset, metric, self.splits(dataset, peer))
        return float(values.mean()) if len(values) else float("nan")

    def table(self, metric: str, peers: Sequence[str]) -> NDArray[np.float64]:
        """Means with the sign that makes higher better, (sets, peers)."""
        sign = METRICS[metric].sign
        return np.array([[sign * self.mean(peer, name, metric) for peer in peers] for name in self.sets])

    def mean_ranks(self, peers: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Mean ranks by metric, and over the costs together."""
        found = {metric: mean_ranks(self.table(metric, peers)) for metric in self.metrics}
        if self.costs:
            found[_ALL_COSTS] = np.mean([found[metric] for metric in self.costs], axis=0)
        return found


def write_page(run: RunFolder, protocol: Mapping[str, Any]) -> list[str]:
    """Write every table into the run's folder as Markdown; returns the texts to print."""
    tables: dict[str, Table] = {}
    asked = int(protocol["settings"])
    halves = [half for half in HALVES if Results(run.rows, half).rows]
    for half in halves if len(halves) == 1 else (*halves, "all"):
        results = Results(run.rows, half)
        if not results.rows:
            continue
        title = "multiclass tables" if half == MULTICLASS else "all sets" if half == "all" else f"{half} half"
        tables[f"ranks_{half}"] = ranks(results, title, asked)
        if results.complete and results.costs:
            tables[f"means_{half}"] = means(results, title, asked)
        if results.complete and results.partial:
            tables[f"partial_{half}"] = partial_ranks(results, title, asked)
            if results.costs:
                tables[f"partial_means_{half}"] = partial_means(results, title, asked)
        if OURS in results.peers and len(results.peers) > 1:
            tables[f"versus_{half}"] = versus(results, title, protocol)
    printed = [table.markdown() for table in tables.values()]
    results = Results(run.rows)
    if results.rows:
        tables |= {metric: scores(results, metric) for metric in results.metrics}
        tables["budgets"] = budgets(results)
    if any("error" in row for row in run.rows):
        tables["failures"] = failures(run.rows)
        printed.append(tables["failures"].markdown())
    for name, table in tables.items():
        run.write(f"{name}.md", table.markdown())
    return printed


def ranks(results: Results, title: str, asked: int | None = None) -> Table:
    """Mean rank of every complete peer for each metric; ``asked`` is how many settings a search has."""
    peers = results.complete
    by_metric = results.mean_ranks(peers) if peers else {}
    lines = []
    for i in np.argsort(np.mean([by_metric[m] for m in results.main], axis=0), kind="stable") if peers else []:
        line = {"peer": PEERS[peers[i]].label, "family": PEERS[peers[i]].family}
        for metric, values in by_metric.items():
            text = f"{values[i]:.2f}"
            line[_TITLES[metric]] = f"**{text}**" if values[i] == values.min() else text
        lines.append(line)
    note = (
        f"Mean rank over {len(results.sets)} sets, 1 is best, ties averaged; a peer that failed on a set is last there."
    )
    if len(peers) > 1:
        distance = critical_difference(len(peers), len(results.sets))
        p = ", ".join(f"{_TITLES[m]} {friedman(results.table(m, peers)):.1g}" for m in results.main)
        note += f" Nemenyi's critical difference at {_LEVEL:g}: {distance:.2f}. Friedman's p: {p}."
    if results.partial:
        labels = ", ".join(PEERS[peer].label for peer in results.partial)
        note += f" Not ranked here, because they were run on some sets or splits only: {labels}."
    return Table(f"Mean ranks, {title}", lines, note + results.cut_short(peers, asked))


def means(results: Results, title: str, asked: int | None = None) -> Table:
    """Mean scores over sets of every complete peer, cheapest decisions first."""
    peers = results.complete
    order = results.mean_ranks(peers)[_ALL_COSTS]
    scored = [peer for peer in peers if any(results.splits(name, peer) for name in results.sets)]
    shared = [name for name in results.sets if all(results.splits(name, peer) for peer in scored)]
    lines = []
    priced = [name for name in results.sets if any(np.isfinite(results.mean(p, name, _PUBLISHED)) for p in peers)]
    for i in np.argsort(order, kind="stable"):
        line = {"peer": PEERS[peers[i]].label, _TITLES[_ALL_COSTS]: f"{order[i]:.2f}"}
        for metric in _mean_columns(results):
            values = [results.mean(peers[i], name, metric) for name in shared]
            line[_TITLES[metric]] = f"{np.mean(values):.4f}" if peers[i] in scored and shared else "failed"
        for name in priced:
            value = results.mean(peers[i], name, _PUBLISHED)
            line[f"{_TITLES[_PUBLISHED]}: {name}"] = f"{value:.4f}" if np.isfinite(value) else ""
        lines.append(line)
    left_out = ", ".join(name for name in results.sets if name not in shared)
    note = f"Mean over {len(shared)} sets of each set's mean over splits, and the mean rank over the costs"
    note += f" ({left_out}, where a peer failed, in the ranks only). " if left_out else ". "
    if results.is_multiclass:
        note += (
            "The cost of the decisions is divided by that of the cheapest constant decision. Peers trained with "
            "balanced class weights decide by the largest probability, all others by the least expected cost."
        )
        if priced:
            note += " Each column of published costs is a mean over the splits of one table; “all costs” omits them."
    else:
        note += (
            "Cost is c · misses + false alarms of the decisions p > 1/(1 + c), divided by that of the cheaper of "
            "“always alarm” and “never alarm”; p is the probability that the peer returns. Calibration error is the "
            "sum of |observed − expected positives| over ten groups of rows, divided by the number of positives."
        )
    return Table(f"Mean scores, {title}", lines, note + results.cut_short(peers, asked))


def _mean_columns(results: Results) -> list[str]:
    return [*results.costs, *(metric for metric in _MEANS if metric in results.metrics)]


def partial_ranks(results: Results, title: str, asked: int | None = None) -> Table:
    """Each partial peer, ranked among the complete ones on its own sets and splits."""
    lines = []
    for peer in results.partial:
        there, field = results.within(results.places(peer)), [*results.complete, peer]
        line = {**_who(results, peer), "family": PEERS[peer].family}
        for metric in results.metrics:
            found = dict(zip(field, mean_ranks(there.table(metric, field)), strict=True))
            ours = f" ({found[results.reference]:.2f})" if results.reference else ""
            line[_TITLES[metric]] = f"{found[peer]:.2f}{ours}"
        lines.append(line)
    note = (
        f"Mean rank of each of these peers among the {len(results.complete)} of the table above and itself, on the "
        f"sets and splits on which it was run"
    )
    note += f"; in brackets the rank of {PEERS[results.reference].label} there." if results.reference else "."
    note += results.cut_short(results.partial, asked)
    return Table(f"Peers run on some sets or splits only, {title}", lines, note)


def partial_means(results: Results, title: str, asked: int | None = None) -> Table:
    """Mean scores of each partial peer, beside those of ours on the same sets and splits."""
    reference, lines = results.reference, []
    for peer in results.partial:
        done = {(row["dataset"], row["split"]) for row in results.rows if row["peer"] == peer and "error" not in row}
        there, line = results.within(done), _who(results, peer)
        if n_failed := len(results.places(peer)) - len(done):
            line["run on"] += f", failed on {n_failed}"
        for metric in _mean_columns(results):
            own, ours = (
                np.nanmean([there.mean(one, name, metric) for name in there.sets]) if done and one else np.nan
                for one in (peer, reference)
            )
            line[_TITLES[metric]] = f"{own:.4f}" + (f" ({ours:.4f})" if reference else "")
        lines.append(line)
    note = "Mean over the sets and splits on which each of these peers was run"
    note += f"; in brackets the {PEERS[reference].label} on the same sets and splits." if reference else "."
    note += results.cut_short(results.partial, asked)
    return Table(f"Mean scores of peers run on some sets or splits only, {title}", lines, note)


def _who(results: Results, peer: str) -> dict[str, str]:
    return {"peer": PEERS[peer].label, "run on": results.coverage(peer, len(results.sets))}


def scores(results: Results, metric: str) -> Table:
    """Mean over splits of one metric, a line for each set."""
    lines = []
    for name in results.sets:
        found = {peer: results.mean(peer, name, metric) for peer in results.peers}
        finite = [METRICS[metric].sign * value for value in found.values() if np.isfinite(value)]
        line = {"set": name, "half": half_of(name)}
        for peer, value in found.items():
            if np.isfinite(value):
                text = f"{value:.3f}"
                line[PEERS[peer].label] = f"**{text}**" if METRICS[metric].sign * value == max(finite) else text
            else:
                line[PEERS[peer].label] = "failed" if any(d == name for d, _ in results.places(peer)) else ""
        lines.append(line)
    way = "higher" if METRICS[metric].sign > 0 else "lower"
    return Table(METRICS[metric].title, lines, f"Mean over splits of the test rows' score, {way} is better.")


def versus(results: Results, title: str, protocol: Mapping[str, Any]) -> Table:
    """Our searched network against every other peer, on the sets and splits that both have."""
    lines = []
    for peer in results.peers:
        if peer == OURS:
            continue
        shared = [name for name in results.sets if results.splits(name, OURS, peer)]
        line = {"against": PEERS[peer].label, "sets": str(len(shared))}
        for metric in results.main if shared else ():
            line |= _duel(results, peer, metric, shared, protocol)
        lines.append(line)
    note = (
        f"On the sets and splits for which both have scores. P: probabilities that crcen is better / both are "
        f"equivalent (within {ROPE:.0%} of the mean of both) / the peer is better, by Bayesian signed ranks over sets; "
        f"in bold where the peer is better with probability above {_SURE:g}. Sets: won / tied / lost by more than "
        f"{ROPE:.0%}, in brackets how many of those won and lost differ by a t-test over splits corrected for their "
        f"overlap (p < {_LEVEL:g}, not corrected for many tests)."
    )
    return Table(f"{PEERS[OURS].label} against each peer, {title}", lines, note)


def _duel(
    results: Results, peer: str, metric: str, names: Sequence[str], protocol: Mapping[str, Any]
) -> dict[str, str]:
    sign, title = METRICS[metric].sign, METRICS[metric].title
    relative, sure = [], {1: 0, -1: 0}
    for name in names:
        splits = results.splits(name, OURS, peer)
        left, right = (sign * results.values(who, name, metric, splits) for who in (OURS, peer))
        gap = relative_gap(float(left.mean()), float(right.mean()))
        relative.append(gap)
        if len(splits) > 1 and abs(gap) > ROPE:
            sure[int(np.sign(gap))] += corrected_t_test(left, right, protocol["test_size"])[1] < _LEVEL
    gaps = np.array(relative)
    won, lost = int((gaps > ROPE).sum()), int((gaps < -ROPE).sum())
    found = bayesian_signed_ranks(gaps, np.zeros_like(gaps), ROPE)
    text = f"{found.left:.2f} / {found.rope:.2f} / {found.right:.2f}"
    return {
        f"{title}: P": f"**{text}**" if found.right > _SURE else text,
        f"{title}: sets": f"{won} / {len(gaps) - won - lost} / {lost} ({sure[1]}, {sure[-1]})",
    }


def relative_gap(left: float, right: float) -> float:
    """By how much the left score is above the right one, as a share of the mean of both; 0 if both are 0."""
    size = (abs(left) + abs(right)) / 2.0
    return (left - right) / size if size > 0.0 else 0.0


def budgets(results: Results) -> Table:
    """What each peer was given and took."""
    halves = {half: part for half in HALVES if (part := Results(results.rows, half)).rows}
    lines = []
    for name in results.peers:
        peer = PEERS[name]
        own = [row for row in results.rows if row["peer"] == name]
        done = [row for row in own if "error" not in row]
        limits = sorted({row["time_limit"] for row in own if "time_limit" in row})
        line = {
            "peer": peer.label,
            "version": ", ".join(sorted({row["version"] for row in own})),
            "settings": _tried(peer, {row["settings"] for row in done}),
            **{half: part.coverage(name, len(all_sets()[half])) for half, part in halves.items()},
            "limit": ", ".join(f"{limit:g}" for limit in limits),
            "failed": str(len(own) - len(done)),
        }
        for field, title in (("processor_fit", "seconds to fit"), ("processor_predict", "seconds for 1,000 rows")):
            values = [row[field] for row in done if field in row]
            line[title] = f"{np.median(values):.3g}" if values else ""
        line["hours in all"] = f"{sum(row.get('processor_fit', row['seconds_fit']) for row in done) / 3600:.2f}"
        line["processors"] = ", ".join(sorted({str(row["processors"]) for row in own if "processors" in row}))
        line["note"] = "; ".join(part for part in (peer.note, *_where(peer, own)) if part)
        lines.append(line)
    note = (
        "Settings tried (fewer if the time limit was reached); sets and splits of each half; time limits in seconds "
        "per split; median processor seconds, on one thread, of search and refit and of predicting 1,000 rows."
    )
    return Table("Budgets and times", lines, note)


def _tried(peer: Peer, tried: set[int]) -> str:
    if tried == {1}:
        return "1" if peer.space else "defaults, no search"
    return span(tried) if tried else ""


def _where(peer: Peer, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """On which device a peer with a choice ran, and on which sets it may run at all."""
    if cards := sorted({row["device"] for row in rows if row.get("device", "cpu") != "cpu"}):
        return [f"ran on {', '.join(cards)}, so its seconds are not comparable"]
    return [f"sets of at most {peer.max_cells:,} numbers"] if peer.max_cells else []


def failures(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Peers that could not run, failed, or took too long, by their message."""
    ran = {row["peer"] for row in rows if row["dataset"] != "*"}
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "error" in row and not (row["dataset"] == "*" and row["peer"] in ran):  # installed since, or elsewhere
            where = "all sets" if row["dataset"] == "*" else f"{row['dataset']} {row['split']}"
            grouped.setdefault((row["peer"], row["error"]), []).append(where)
    lines = [
        {"peer": PEERS[peer].label, "what happened": error, "where (set and split)": ", ".join(where)}
        for (peer, error), where in sorted(grouped.items(), key=lambda item: list(PEERS).index(item[0][0]))
    ]
    return Table("Failures", lines, "A peer that was not run or gave no scores.")

"""Tables and diagrams of the benchmark, derived from its rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rivals.diagram import Ranking, draw_ranks
from bench.rivals.peer import Peer
from bench.rivals.peers import OURS, PEERS
from bench.rivals.plan import HALVES, all_sets, half_of
from bench.rivals.results import COSTS, MAIN, METRICS, Results, span
from bench.rivals.statistics import (
    bayesian_signed_ranks,
    corrected_t_test,
    critical_difference,
    friedman,
    mean_ranks,
)
from crcen.exceptions import MissingExtra
from crcen.paper.run_folder import RunFolder
from crcen.paper.tables import Table

__all__ = [
    "ROPE",
    "budgets",
    "failures",
    "means",
    "own_decisions",
    "partial_means",
    "partial_ranks",
    "ranks",
    "relative_gap",
    "scores",
    "versus",
    "write_page",
]

Array = NDArray[np.float64]

# Differences below this share of the mean of both are no difference: a loss of .05 and one of .5 are not alike.
ROPE = 0.01
_LEVEL = 0.05
_SURE = 0.95
_OWN = ("committee", "crcen_cv", "crcen")
_ALL_COSTS = "all_costs"
_TITLES = {name: metric.title for name, metric in METRICS.items()} | {_ALL_COSTS: "all costs"}
# The columns of `means`, in their order.
_MEANS = (*COSTS, "log_loss", "calibration_error", "average_precision", "roc_auc", "f1", "g_mean")


def write_page(run: RunFolder, protocol: Mapping[str, Any]) -> list[str]:
    """Write every table and diagram into the run's folder; the texts that are worth printing are returned."""
    tables: dict[str, Table] = {}
    halves = [half for half in HALVES if Results(run.rows, half).rows]
    for half in halves if len(halves) == 1 else (*halves, "all"):
        results = Results(run.rows, half)
        if not results.rows:
            continue
        asked = int(protocol["settings"])
        tables[f"ranks_{half}"] = ranks(results, half, asked)
        has_costs = bool(results.complete) and set(COSTS) <= set(results.metrics)
        if has_costs:
            tables[f"means_{half}"] = means(results, half, asked)
        if results.complete and len(results.complete) < len(results.peers):
            tables[f"partial_{half}"] = partial_ranks(results, half, asked)
            if has_costs:
                tables[f"partial_means_{half}"] = partial_means(results, half, asked)
        if OURS in results.peers and len(results.peers) > 1:
            tables[f"versus_{half}"] = versus(results, half, protocol)
        _write_diagrams(run, results, half)
    printed = [table.markdown() for table in tables.values()]
    results = Results(run.rows)
    if results.rows:
        tables |= {metric: scores(results, metric) for metric in results.metrics}
        tables["own_decisions"] = own_decisions(results)
        tables["budgets"] = budgets(results)
    if any("error" in row for row in run.rows):
        tables["failures"] = failures(run.rows)
        printed.append(tables["failures"].markdown())
    for name, table in tables.items():
        run.write(f"{name}.md", table.markdown())
        run.write(f"{name}.csv", table.csv())
    return printed


def _write_diagrams(run: RunFolder, results: Results, half: str) -> None:
    if len(results.complete) < 2:
        return
    rankings = []
    for metric in (metric for metric in MAIN if metric in results.metrics):
        values = mean_ranks(results.table(metric, results.complete)).tolist()
        labels = [PEERS[peer].label for peer in results.complete]
        rankings.append(
            Ranking(
                METRICS[metric].title,
                dict(zip(labels, values, strict=True)),
                critical_difference(len(labels), len(results.sets)),
                [PEERS[peer].label for peer in _OWN],
            )
        )
    try:
        for suffix in ("svg", "png"):
            run.write(f"ranks_{half}.{suffix}", draw_ranks(rankings, suffix))
    except MissingExtra:
        pass  # tables need no matplotlib, and can be made again where there is one


def _title(half: str) -> str:
    return "all sets" if half == "all" else f"{half} half"


def ranks(results: Results, half: str, asked: int | None = None) -> Table:
    """Mean rank of every peer that ran everywhere, for each metric; ``asked`` is how many settings a search has."""
    peers = results.complete
    by_metric = _mean_ranks(results, peers) if peers else {}
    lines = []
    for i in np.argsort(np.mean([by_metric[m] for m in MAIN], axis=0), kind="stable") if peers else []:
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
        p = ", ".join(f"{METRICS[m].title} {friedman(results.table(m, peers)):.1g}" for m in MAIN)
        note += f" Nemenyi's critical difference at {_LEVEL:g}: {distance:.2f}. Friedman's p: {p}."
    if partial := [PEERS[peer].label for peer in results.peers if peer not in peers]:
        note += f" Not ranked here, since run on some sets or splits only: {', '.join(partial)}."
    note += _cut_short(results, peers, asked)
    return Table(f"Mean ranks, {_title(half)}", lines, note)


def _mean_ranks(results: Results, peers: Sequence[str]) -> dict[str, Array]:
    """Mean ranks by metric, and over the four prices together."""
    found = {metric: mean_ranks(results.table(metric, peers)) for metric in results.metrics}
    if set(COSTS) <= set(found):
        found[_ALL_COSTS] = np.mean([found[metric] for metric in COSTS], axis=0)
    return found


def _cut_short(results: Results, peers: Sequence[str], asked: int | None) -> str:
    """A sentence on searches that the time limit ended before they had tried as many settings as were asked for."""
    found = []
    for peer in peers:
        cut = [] if asked is None or not PEERS[peer].space else results.cut_short(peer, asked)
        if cut:
            limits = sorted({f"{row['time_limit']:g}" for row in cut if "time_limit" in row}, key=float)
            found.append(
                f"{PEERS[peer].label} on {len(cut)} of {len(results.places(peer))} splits "
                f"({span([row['settings'] for row in cut])} of {asked} settings in {' or '.join(limits)} seconds)"
            )
    return f" Searches cut short by the time limit: {', '.join(found)}." if found else ""


def means(results: Results, half: str, asked: int | None = None) -> Table:
    """Mean scores over sets of every peer that ran everywhere, cheapest decisions first."""
    peers = results.complete
    columns = {metric: results.table(metric, peers) * METRICS[metric].sign for metric in results.metrics}
    order = _mean_ranks(results, peers)[_ALL_COSTS]
    lines = []
    for i in np.argsort(order, kind="stable"):
        line = {"peer": PEERS[peers[i]].label, _TITLES[_ALL_COSTS]: f"{order[i]:.2f}"}
        for metric in (m for m in _MEANS if m in columns):
            line[METRICS[metric].title] = f"{columns[metric][:, i].mean():.4f}"  # NaN where it failed on a set
        lines.append(line)
    note = (
        f"Mean over {len(results.sets)} sets of each set's mean over splits, and the mean rank over the four costs. "
        f"Cost is c · misses + false alarms of the decisions p > 1/(1 + c), over that of the cheaper of alarming "
        f"always and never; p is as the peer gives it. Calibration error is by how many positives probabilities are "
        f"off, over ten groups of rows, as a share of all positives."
    )
    note += _cut_short(results, peers, asked)
    return Table(f"What decisions cost at a price, {_title(half)}", lines, note)


def partial_ranks(results: Results, half: str, asked: int | None = None) -> Table:
    """Each peer that ran in part, ranked among those that ran everywhere where it ran."""
    reference, lines = _reference(results), []
    for peer in _in_part(results):
        there, field = results.within(results.places(peer)), [*results.complete, peer]
        line = {**_who(results, peer), "family": PEERS[peer].family}
        for metric in results.metrics:
            found = dict(zip(field, mean_ranks(there.table(metric, field)), strict=True))
            ours = f" ({found[reference]:.2f})" if reference else ""
            line[METRICS[metric].title] = f"{found[peer]:.2f}{ours}"
        lines.append(line)
    note = (
        f"Mean rank of each of these peers among the {len(results.complete)} of the table above and itself, on the "
        f"sets and splits it was run on alone"
    )
    note += f"; in brackets the rank of {PEERS[reference].label} there." if reference else "."
    note += _cut_short(results, _in_part(results), asked)
    return Table(f"Peers run on some sets or splits only, {_title(half)}", lines, note)


def partial_means(results: Results, half: str, asked: int | None = None) -> Table:
    """Mean scores of each peer that ran in part, beside those of ours on the same sets and splits."""
    reference, lines = _reference(results), []
    for peer in _in_part(results):
        done = {(row["dataset"], row["split"]) for row in results.rows if row["peer"] == peer and "error" not in row}
        there, line = results.within(done), _who(results, peer)
        if n_failed := len(results.places(peer)) - len(done):
            line["run on"] += f", failed on {n_failed}"
        for metric in (m for m in _MEANS if m in results.metrics):
            own, ours = (
                np.nanmean([there.mean(one, name, metric) for name in there.sets]) if done and one else np.nan
                for one in (peer, reference)
            )
            line[METRICS[metric].title] = f"{own:.4f}" + (f" ({ours:.4f})" if reference else "")
        lines.append(line)
    note = "Mean over the sets that each of these peers gave scores on, over the splits it was run on alone"
    note += f"; in brackets {PEERS[reference].label} on the same sets and splits." if reference else "."
    note += _cut_short(results, _in_part(results), asked)
    return Table(f"What their decisions cost there, {_title(half)}", lines, note)


def _in_part(results: Results) -> list[str]:
    return [peer for peer in results.peers if peer not in results.complete]


def _reference(results: Results) -> str:
    """Ours to compare with: the committee where it ran everywhere, else the searched network, else nobody."""
    return next((peer for peer in ("committee", OURS) if peer in results.complete), "")


def _who(results: Results, peer: str) -> dict[str, str]:
    return {"peer": PEERS[peer].label, "run on": results.coverage(peer, len(results.sets))}


def scores(results: Results, metric: str) -> Table:
    """Mean over splits of one metric, a line for each set."""
    lines = []
    for name in results.sets:
        means = {peer: results.mean(peer, name, metric) for peer in results.peers}
        finite = [METRICS[metric].sign * value for value in means.values() if np.isfinite(value)]
        line = {"set": name, "half": half_of(name)}
        for peer, value in means.items():
            if np.isfinite(value):
                text = f"{value:.3f}"
                line[PEERS[peer].label] = f"**{text}**" if METRICS[metric].sign * value == max(finite) else text
            else:
                line[PEERS[peer].label] = "failed" if any(d == name for d, _ in results.places(peer)) else ""
        lines.append(line)
    way = "higher" if METRICS[metric].sign > 0 else "lower"
    return Table(METRICS[metric].title, lines, f"Mean over splits of the test rows' score, {way} is better.")


def versus(results: Results, half: str, protocol: Mapping[str, Any]) -> Table:
    """Our searched network against every other peer, on the sets and splits that both have."""
    lines = []
    for peer in results.peers:
        if peer == OURS:
            continue
        shared = [name for name in results.sets if results.splits(name, OURS, peer)]
        line = {"against": PEERS[peer].label, "sets": str(len(shared))}
        for metric in MAIN if shared else ():
            line |= _duel(results, peer, metric, shared, protocol)
        lines.append(line)
    note = (
        f"On the sets and splits for which both have scores. P: probabilities that ours is better / both are "
        f"equivalent (within {ROPE:.0%} of the mean of both) / the peer is better, by Bayesian signed ranks over sets; "
        f"in bold where the peer is better with probability above {_SURE:g}. Sets: won / tied / lost by more than "
        f"{ROPE:.0%}, in brackets how many of those won and lost differ by a t-test over splits corrected for their "
        f"overlap (p < {_LEVEL:g}, not corrected for many tests)."
    )
    return Table(f"{PEERS[OURS].label} against each peer, {_title(half)}", lines, note)


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
    """By how much the left score is above the right one, as a share of the mean of both; 0 where both are 0."""
    size = (abs(left) + abs(right)) / 2.0
    return (left - right) / size if size > 0.0 else 0.0


def own_decisions(results: Results) -> Table:
    """Decisions of ``predict`` itself: no threshold was looked for."""
    lines = []
    for peer in results.peers:
        line = {"peer": PEERS[peer].label}
        for field, title in (("own_g_mean", "G-mean"), ("own_f1", "F1")):
            means = [results.mean(peer, name, field) for name in results.sets]
            line[title] = f"{np.nanmean(means):.3f}" if np.isfinite(means).any() else "failed"
        lines.append(line)
    note = (
        "Mean over sets of what `predict` itself decides: the balanced price for CRCEN, the package's own rule, mostly "
        "a probability of ½, for the others. Peers that ran on fewer sets are not comparable here."
    )
    return Table("Decisions without a threshold search", lines, note)


def budgets(results: Results) -> Table:
    """What each peer was given and took."""
    halves = {half: part for half in HALVES if (part := Results(results.rows, half)).rows}
    lines = []
    for name in results.peers:
        peer = PEERS[name]
        own = [row for row in results.rows if row["peer"] == name]
        done = [row for row in own if "error" not in row]
        line = {
            "peer": peer.label,
            "version": ", ".join(sorted({row["version"] for row in own})),
            "settings": _settings(peer, {row["settings"] for row in done}),
            **{half: part.coverage(name, len(all_sets()[half])) for half, part in halves.items()},
            "limit": ", ".join(
                f"{limit:g}" for limit in sorted({row["time_limit"] for row in own if "time_limit" in row})
            ),
            "failed": str(len(own) - len(done)),
        }
        for field, title in (("processor_fit", "seconds to fit"), ("processor_predict", "seconds for 1,000 rows")):
            values = [row[field] for row in done]
            line[title] = f"{np.median(values):.3g}" if values else ""
        line["hours in all"] = f"{sum(row['processor_fit'] for row in done) / 3600:.2f}"
        line["processors"] = ", ".join(sorted({str(row["processors"]) for row in own}))
        line["note"] = "; ".join(part for part in (peer.note, *_where(peer, own)) if part)
        lines.append(line)
    note = (
        "Settings tried (fewer where the time limit came first); sets and splits of each half; limits, in seconds a "
        "split, that rows were made under; median seconds to search and refit and to predict 1,000 rows: seconds of a "
        "processor, on one thread, so that other work on the machine does not count."
    )
    return Table("Budgets and times", lines, note)


def _settings(peer: Peer, tried: set[int]) -> str:
    if not tried:
        return ""
    if tried == {1}:
        return "1" if peer.space else "defaults, no search"
    return span(tried)


def _where(peer: Peer, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """On which device a peer with a choice ran, and on which sets it may run at all."""
    if cards := sorted({row["device"] for row in rows if row.get("device", "cpu") != "cpu"}):
        return [f"ran on {', '.join(cards)}, so its seconds are not comparable"]
    return [f"sets of at most {peer.max_cells:,} numbers"] if peer.max_cells else []


def failures(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Peers that could not run, failed, or took too long, by their sentence."""
    ran = {row["peer"] for row in rows if row["dataset"] != "*"}
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "error" in row and not (
            row["dataset"] == "*" and row["peer"] in ran
        ):  # it was installed since, or elsewhere
            where = "all sets" if row["dataset"] == "*" else f"{row['dataset']} {row['split']}"
            grouped.setdefault((row["peer"], row["error"]), []).append(where)
    lines = [
        {"peer": PEERS[peer].label, "what happened": error, "where (set and split)": ", ".join(where)}
        for (peer, error), where in sorted(grouped.items(), key=lambda item: list(PEERS).index(item[0][0]))
    ]
    return Table("Failures", lines, "A peer that was not run or gave no scores.")

"""Claims of the paper's text, judged by our rows."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import crcen
from crcen.paper import Rows, Settings
from crcen.paper.figure1 import expenses
from crcen.paper.table3 import METRICS, cells
from crcen.paper.tables import Table, published

Claim = tuple[str, str, str]


def claims(table1: Rows, table3: Rows, figure1: Rows, settings: Settings) -> Table:
    """Claim, verdict and number for every statement of the paper that our rows can judge."""
    found = [_simulation_claim(table1), *performance_claims(table3), *expense_claims(figure1)]
    lines = [
        {"claim of the paper": claim, "verdict here": verdict, "measured": number} for claim, verdict, number in found
    ]
    note = (
        "Verdicts are derived from the rows of Tables 1 and 3 and Figure 1, whose hyperparameters were selected by "
        f"{settings['scoring']} ({settings['selection']})."
    )
    return Table("The paper's claims", lines, note)


def _simulation_claim(rows: Rows) -> Claim:
    within, total = 0, 0
    for simulation, label in sorted({(row["simulation"], row["weighting"]) for row in rows}):
        lhs = [row["lhs"] for row in rows if (row["simulation"], row["weighting"]) == (simulation, label)]
        paper = published("table1", simulation, label, "lhs")
        if paper and len(lhs) > 1:
            total += 1
            within += abs(paper[0] - np.mean(lhs)) <= 2 * np.std(lhs, ddof=1)
    verdict = "holds" if within == total else "holds in part"
    return "simulated values match the key equation", verdict, f"{within} of {total} published means within 2 of our sd"


def performance_claims(rows: Rows) -> Iterator[Claim]:
    """What the paper says about Table 3; a method may have failed."""
    every = {key: value[0] for key, value in cells(rows).items()}
    table = {key: value for key, value in every.items() if crcen.METHODS[key[0]].in_paper}
    sets = list(dict.fromkeys(row["dataset"] for row in rows))
    columns = [(d, m) for d in sets for m in METRICS]
    methods = {key[0] for key in table}

    wins = sum(_is_best(table, c) for c in columns)
    paper = {(k, *c): cell[0] for k in methods for c in columns if (cell := published("table3", k, *c))}
    paper_wins = sum(_is_best(paper, c) for c in columns)
    number = f"best in {wins} of {len(columns)} columns of Table 3, {paper_wins} in the paper"
    verdict = "holds" if wins > len(columns) / 2 else "in part" if wins >= len(columns) / 4 else "does not hold"
    yield "CRCEN has an overall better performance than the others", verdict, number

    own = {c: table["crcen", *c] for c in columns if ("crcen", *c) in table}
    gaps = np.array([value - table["csmlp", *c] for c, value in own.items() if ("csmlp", *c) in table])
    if len(gaps):
        mean = gaps.mean()
        verdict = "holds" if mean > 0.001 else "comparable, not better" if mean > -0.02 else "does not hold"
        number = f"mean difference {mean:+.3f}, CRCEN ahead in {int((gaps > 0).sum())} of {len(gaps)} cells"
        yield "CRCEN is slightly better than CSMLP and comparable", verdict, number

    others = sorted(methods - {"mlp"})
    pairs = [(m, d) for m in others for d in sets if (m, d, "g_mean") in table and ("mlp", d, "g_mean") in table]
    above = sum(table[m, d, "g_mean"] > table["mlp", d, "g_mean"] for m, d in pairs)
    verdict = "holds" if above == len(pairs) else "holds mostly" if above > 0.8 * len(pairs) else "in part"
    number = f"{above} of {len(pairs)} method-set pairs"
    yield "every method gains over the plain MLP in G-mean", verdict, number

    yield _rusboost_claim(rows, sets)

    moved = [abs(every["mlp_threshold", *c] - value) for c, value in own.items() if ("mlp_threshold", *c) in every]
    if moved:
        number = f"mean absolute difference to CRCEN {np.mean(moved):.3f} over {len(moved)} cells"
        verdict = "holds" if np.mean(moved) < 0.03 else "does not hold"
        yield "(not in the paper) a plain MLP cut at 1−λ nearly ties", verdict, number

    for name in sets:
        of_crcen = (row for row in rows if row["dataset"] == name and row["method"] == "crcen")
        sides = [row["test_lhs"] for row in of_crcen if "test_lhs" in row]
        if sides:
            mean = float(np.mean(sides))
            verdict = "holds within a quarter" if 0.8 <= mean <= 1.25 else "misses by more than a quarter"
            number = f"left side {mean:.2f} on average ({min(sides):.2f} to {max(sides):.2f}), right side 1"
            yield f"the key equation carries over to unseen rows, α = 1: {name}", verdict, number


def _rusboost_claim(rows: Rows, sets: Sequence[str]) -> Claim:
    recall, specificity = _means(rows, "recall"), _means(rows, "specificity")
    largest = {d: max((value for (_, other), value in recall.items() if other == d), default=np.inf) for d in sets}
    count = sum(recall.get(("rusboost", d), -1.0) >= largest[d] for d in sets)
    of_rusb = [
        np.mean([table["rusboost", d] for d in sets if ("rusboost", d) in table] or [np.nan])
        for table in (recall, specificity)
    ]
    number = f"highest recall on {count} of {len(sets)} sets; mean recall {of_rusb[0]:.3f}, "
    number += f"specificity {of_rusb[1]:.3f}"
    sizes = [row["estimators"] for row in rows if row["method"] == "rusboost" and "estimators" in row]
    is_cut_short = min(sizes, default=50) < 50
    if is_cut_short:
        number += f"; it stopped after {min(sizes)} to {max(sizes)} of its 50 base classifiers"
    verdict = "holds" if count > len(sets) / 2 else "does not hold" + " with today's RUSBoost" * is_cut_short
    return "RUSBoost is highest on the minority class, at the majority's cost", verdict, number


def _is_best(table: Mapping[tuple[str, str, str], float], column: tuple[str, str]) -> bool:
    own = table.get(("crcen", *column))
    return own is not None and own >= max(value for key, value in table.items() if key[1:] == column)


def _means(rows: Rows, field: str) -> dict[tuple[str, str], float]:
    values = defaultdict(list)
    for row in rows:
        if field in row and crcen.METHODS[row["method"]].in_paper:
            values[row["method"], row["dataset"]].append(row[field])
    return {key: float(np.mean(v)) for key, v in values.items()}


def expense_claims(rows: Rows) -> Iterator[Claim]:
    """What the paper says about Figure 1."""
    steps = {(e["dataset"], e["to"]): e for e in expenses(rows) if e["curve"] == "retrained"}
    sets = list(dict.fromkeys(d for d, _ in steps))
    ends = list(dict.fromkeys(end for _, end in steps))
    paths = [[steps[name, end]["expense"] for end in ends] for name in sets]
    rising = sum(bool(np.all(np.isfinite(path)) and np.all(np.diff(path) > 0)) for path in paths)
    verdict = "holds" if rising == len(sets) else "holds mostly" if rising > len(sets) / 2 else "in part"
    yield "expense rises with α", verdict, f"at every step on {rising} of {len(sets)} sets"

    for name in ("scene", "solar_flare_m0", "satimage", "us_crime"):
        if name in sets:
            (start, _), _ = steps[name, "1.5"]["pairs"]
            _, (end, _) = steps[name, "2"]["pairs"]
            verdict = "holds" if end >= start else "nearly holds" if end >= 0.9 * start else "does not hold"
            number = f"misses {start:.0f} → {end:.0f} from α = 1 to 2, summed over splits"
            yield f"no gain on the minority class beyond α = 1: {name}", verdict, number

    for name in ("satimage", "us_crime"):
        if name in sets:
            value, low, high = (steps[name, "1"][field] for field in ("expense", "low", "high"))
            verdict = "holds" if value < 2 else "does not hold"
            number = f"{value:.2f}, where right probabilities give [{low:.2f}, {high:.2f}]"
            if np.isnan(value):
                verdict = "undefined"
                number = f"nothing more was caught; right probabilities give [{low:.2f}, {high:.2f}]"
            yield f"expense under 2 at α = 1: {name}", verdict, number

    if "abalone" in sets:
        own = [row for row in rows if row["dataset"] == "abalone" and row["curve"] == "retrained"]
        half, one = ([(row["fn"], row["fp"]) for row in own if row["weight"] == w] for w in ("0.5", "1"))
        listed = "; ".join(f"{a} → {b}" for a, b in zip(half, one, strict=True))
        step = steps["abalone", "1"]
        verdict = "in the same bracket" if step["verdict"] == "inside" else "outside its bracket"
        yield "Abalone (32, 158) → (13, 263), expense 5.53", verdict, f"{listed}; {step['expense']:.2f}"

    inside = sum(entry["verdict"] == "inside" for entry in steps.values())
    number = f"{inside} of {len(steps)} steps inside their bracket (counts summed over splits, no allowance for noise)"
    verdict = "holds mostly" if inside > 0.75 * len(steps) else "in part"
    yield "(not in the paper) expense lies in [α₁·IR, α₂·IR]", verdict, number

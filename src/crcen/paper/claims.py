"""Claims of the paper's text, judged by our rows."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

import crcen
from crcen.paper import Rows, Settings
from crcen.paper.figure1 import expenses
from crcen.paper.run_folder import Table, published
from crcen.paper.table3 import METRICS, Cell, cells, published_cells

Claim = tuple[str, str, str]  # claim, verdict, number


def claims(table1: Rows, table3: Rows, figure1: Rows, settings: Settings) -> Table:
    """Claim, verdict and number for every statement of the paper that our rows can judge."""
    found = [_simulation_claim(table1), *performance_claims(table3), *expense_claims(figure1)]
    names = ("claim of the paper", "verdict here", "measured")
    note = (
        "Verdicts are derived from the rows of Tables 1 and 3 and Figure 1, whose hyperparameters were selected by "
        f"{settings['scoring']} ({settings['selection']})."
    )
    return Table("The paper's claims", [dict(zip(names, one, strict=True)) for one in found], note)


def _simulation_claim(rows: Rows) -> Claim:
    within = []
    for (simulation, label), lhs in pd.DataFrame(list(rows)).groupby(["simulation", "weighting"])["lhs"]:
        paper = published("table1", simulation, label, "lhs")
        if paper and len(lhs) > 1:
            within.append(abs(paper[0] - lhs.mean()) <= 2 * lhs.std())
    number = f"{sum(within)} of {len(within)} published means within 2 of our sd"
    return "simulated values match the key equation", "holds" if all(within) else "holds in part", number


def _by_method(values: Mapping[Cell, float], columns: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Cells as a table with a row for each method; those that the claims name have NaN where they failed."""
    named = ["crcen", "csmlp", "mlp", "mlp_threshold"]
    found = pd.DataFrame({c: {key[0]: value for key, value in values.items() if key[1:] == c} for c in columns})
    return found.reindex([*found.index, *(name for name in named if name not in found.index)])


def performance_claims(rows: Rows) -> Iterator[Claim]:
    """What the paper says about Table 3; a method may have failed."""
    means = {key: value[0] for key, value in cells(rows).items()}
    sets = list(dict.fromkeys(row["dataset"] for row in rows))
    columns = [(name, metric) for name in sets for metric in METRICS]
    every = _by_method(means, columns)
    table = every[[crcen.METHODS[name].in_paper for name in every.index]]
    paper = _by_method(published_cells({name for name, *_ in means}, columns), columns)
    own = table.loc["crcen"]

    wins, paper_wins = (int((cells.loc["crcen"] >= cells.max()).sum()) for cells in (table, paper))
    number = f"best in {wins} of {len(columns)} columns of Table 3, {paper_wins} in the paper"
    verdict = "holds" if wins > len(columns) / 2 else "in part" if wins >= len(columns) / 4 else "does not hold"
    yield "CRCEN has an overall better performance than the others", verdict, number

    gaps = (own - table.loc["csmlp"]).dropna()
    if len(gaps):
        mean = gaps.mean()
        verdict = "holds" if mean > 0.001 else "comparable, not better" if mean > -0.02 else "does not hold"
        number = f"mean difference {mean:+.3f}, CRCEN ahead in {int((gaps > 0).sum())} of {len(gaps)} cells"
        yield "CRCEN is slightly better than CSMLP and comparable", verdict, number

    gains = (table.drop(index="mlp") - table.loc["mlp"]).xs("g_mean", axis=1, level=1).stack().dropna()
    above = int((gains > 0).sum())
    verdict = "holds" if above == len(gains) else "holds mostly" if above > 0.8 * len(gains) else "in part"
    yield "every method gains over the plain MLP in G-mean", verdict, f"{above} of {len(gains)} method-set pairs"

    yield _rusboost_claim(rows, sets)

    moved = (every.loc["mlp_threshold"] - own).abs().dropna()
    if len(moved):
        number = f"mean absolute difference to CRCEN {moved.mean():.3f} over {len(moved)} cells"
        verdict = "holds" if moved.mean() < 0.03 else "does not hold"
        yield "(not in the paper) a plain MLP cut at 1−λ nearly ties", verdict, number

    for name in sets:
        of_crcen = (row for row in rows if row["dataset"] == name and row["method"] == "crcen")
        sides = [row["test_lhs"] for row in of_crcen if "test_lhs" in row]
        if sides:
            mean = float(np.mean(sides))
            verdict = "holds within a quarter" if 0.8 <= mean <= 1.25 else "misses by more than a quarter"
            number = f"left side {mean:.2f} on average ({min(sides):.2f} to {max(sides):.2f}), right side 1"
            yield f"the key equation carries over to unseen rows, α = 1: {name}", verdict, number


def _rusboost_claim(rows: Rows, sets: list[str]) -> Claim:
    judged = [row for row in rows if "recall" in row and crcen.METHODS[row["method"]].in_paper]
    means = pd.DataFrame(judged).groupby(["method", "dataset"])[["recall", "specificity"]].mean()
    own = means.reindex([("rusboost", name) for name in sets]).droplevel(0)
    count = int((own["recall"] >= means["recall"].groupby("dataset").max().reindex(sets)).sum())
    number = f"highest recall on {count} of {len(sets)} sets; mean recall {own['recall'].mean():.3f}, "
    number += f"specificity {own['specificity'].mean():.3f}"
    sizes = [row["estimators"] for row in rows if row["method"] == "rusboost" and "estimators" in row]
    is_cut_short = min(sizes, default=50) < 50
    if is_cut_short:
        number += f"; it stopped after {min(sizes)} to {max(sizes)} of its 50 base classifiers"
    verdict = "holds" if count > len(sets) / 2 else "does not hold" + " with today's RUSBoost" * is_cut_short
    return "RUSBoost is highest on the minority class, at the majority's cost", verdict, number


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

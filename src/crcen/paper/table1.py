"""Table 1: the key equation on simulated rows that the networks did not see."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import crcen
from crcen._support.progress import steps
from crcen._support.values import attributes
from crcen.exceptions import TrainingFailed
from crcen.paper import Index, Rows, Settings, Values
from crcen.paper.run_folder import RunFolder, Table, published
from crcen.theory.price import sigmoid
from crcen.training.engines import find_engine
from crcen.training.jobs import TrainingJob

# λ = ½, N₀/(N₀+N₁), 2N₀/(2N₀+N₁): no weight, α = 1, α = 2.
WEIGHTINGS: Values = {"half": None, "balanced": "balanced", "double": crcen.Alpha(2)}
SIMULATIONS = {"sim1": crcen.make_sim1, "sim2": crcen.make_sim2}
_LABELS = {"half": "λ = 1/2", "balanced": "λ = N0/(N0+N1)", "double": "λ = 2N0/(2N0+N1)"}


def run_table1(settings: Settings, folder: Path, engine: str = "local") -> RunFolder:
    """Train what is missing, stack by stack, and write rows and table."""
    run = RunFolder(folder, settings, key=("simulation", "run", "weighting"))
    at_once, n_runs = int(settings["runs_at_once"]), int(settings["runs"])
    starts = range(0, n_runs, at_once)
    parts = [(name, range(start, min(start + at_once, n_runs))) for name in SIMULATIONS for start in starts]
    missing = [(name, runs) for name, runs in parts if not run.has(simulation=name, run=runs[-1], weighting="double")]
    with steps("table 1", len(missing)) as advance:
        for name, runs in missing:
            run.add(_simulate(name, runs, settings, engine))
            advance(f"{name} runs {runs[0]} to {runs[-1]}")
    run.write_tables({"table1": table1(run.rows)})
    return run


def _simulate(name: str, runs: Sequence[int], settings: Settings, engine: str) -> list[Values]:
    """All networks of some runs of one simulation, in one stack."""
    make, n_pos, n_neg, n_test = SIMULATIONS[name], settings["n_pos"], settings["n_neg"], settings["n_test"]
    prices = {label: crcen.resolve(weighting, n_pos, n_neg) for label, weighting in WEIGHTINGS.items()}
    train_sets, jobs, owners = [], [], []
    for i, run in enumerate(runs):
        seeds = np.random.SeedSequence([settings["seed"], list(SIMULATIONS).index(name), run]).spawn(2)
        train_sets.append(make(n_pos, n_neg, seeds[0]))
        test = make(n_test, n_test, seeds[1])
        pool = i * (n_pos + n_neg) + np.arange(n_pos + n_neg)
        jobs += [_job(name, resolved.lam, pool, run, settings) for resolved in prices.values()]
        owners += [(run, test, *price) for price in prices.items()]
    X, y = np.concatenate([d.X for d in train_sets]), np.concatenate([d.y for d in train_sets])
    rows = []
    for (run, test, label, resolved), result in zip(owners, find_engine(engine)(X, y, jobs), strict=True):
        if result.network is None:
            raise TrainingFailed(f"table 1, {name}, run {run}: {result.status.value}.")
        equation = crcen.key_equation(test.y, sigmoid(result.network.logits(test.X)), resolved)
        row = {"simulation": name, "run": run, "weighting": label, "lam": resolved.lam}
        row |= attributes(equation, "lhs rhs mean_pos mean_neg") | attributes(result, "train_residual=residual n_iter")
        rows.append(row)
    return rows


def _job(name: str, lam: float, pool: Index, run: int, settings: Settings) -> TrainingJob:
    if name == "sim1":  # logistic regression, to its optimum
        how: Values = {"hidden": (), "solver": "lbfgs", "max_epochs": 200, "tol": 1e-8}
    else:
        how = {"hidden": tuple(settings["hidden"]), "activation": "sigmoid", "seed": run, "shuffle_seed": run}
        how |= {"max_epochs": settings["epochs"], "learning_rate": settings["learning_rate"]}
    return TrainingJob((1.0 - lam, lam), rows=pool, l2=0.0, **how)


def table1(rows: Rows) -> Table:
    """Means and standard deviations over runs beside the published ones."""
    lines = []
    groups = pd.DataFrame(list(rows)).groupby(["simulation", "weighting"], sort=False) if rows else ()
    for (name, label), own in groups:
        paper, mean, sd = published("table1", name, label, "lhs"), own["lhs"].mean(), own["lhs"].std()
        lines.append(
            {
                "simulation": name.capitalize(),
                "weight": _LABELS[label],
                "theory (RHS)": f"{own['rhs'].iloc[0]:g}",
                "ours (LHS)": f"{mean:.2f} ({sd:.2f})",
                "paper (LHS)": f"{paper[0]:.2f} ({paper[1]:.2f})" if paper else "",
                "paper − ours, in our sd": f"{(paper[0] - mean) / sd:+.2f}" if paper else "",
                "largest training residual": f"{own['train_residual'].max():.1e}",
                "runs": str(len(own)),
            }
        )
    note = "Key equation (1 − q̄_pos)/q̄_neg on rows not seen in training; mean and standard deviation over runs."
    return Table("Table 1", lines, note)

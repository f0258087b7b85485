"""Time and memory of the commands on mixed and on wide tables.

python -m bench.speed.tables [--only TEXT]

Each command runs in a separate process; its processor seconds and largest memory are those of the process.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

WORDS = np.array(["red", "green", "blue", "stolen", "card", "abroad", "night", "refund", "gift", "large", "small"])


def mixed_table(n: int, seed: int, n_numbers: int = 12) -> pd.DataFrame:
    """25 columns and a target: 12 numbers, 6 categories, 2 truth values, 2 dates, a text, an id and a constant."""
    rng = np.random.default_rng(seed)
    columns = {"id": np.arange(n), "version": "v1"}
    numbers = rng.normal(size=(n, n_numbers))
    logit = -4.5 + numbers[:, :4] @ [0.9, -0.6, 0.4, 0.3] + 0.5 * numbers[:, 0] * numbers[:, 1]
    numbers[:, :3][rng.random((n, 3)) < 0.1] = np.nan
    columns |= {f"number {i}": numbers[:, i].round(4) for i in range(n_numbers)}
    for i, size in enumerate((2, 3, 5, 12, 30, 200)):
        codes = rng.integers(size, size=n)
        logit = logit + np.linspace(-0.4, 0.4, size)[codes]
        columns[f"category {i}"] = np.array([f"value {code}" for code in range(size)])[codes]
    for i in range(2):
        columns[f"flag {i}"] = rng.random(n) < 0.3
        minutes = pd.to_timedelta(rng.integers(0, 525_600, n), unit="min")
        columns[f"date {i}"] = (pd.Timestamp("2024-01-01") + minutes).strftime("%Y-%m-%d %H:%M")
    texts = WORDS[rng.integers(len(WORDS), size=(n, 6))]
    logit = logit + 0.8 * (texts == "stolen").any(axis=1)
    columns["note"] = [" ".join(words) for words in texts]
    return pd.DataFrame(columns).assign(fraud=np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"))


def run(name: str, *arguments: object) -> None:
    """Run a command and print what it took."""
    start, own = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    process = subprocess.Popen([sys.executable, "-m", "crcen", *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    passed = time.perf_counter() - start
    assert status == 0, name
    cpu = used.ru_utime + used.ru_stime
    memory = f"   {used.ru_maxrss / 1024:7.0f} MiB" if used.ru_maxrss > 1.1 * own else ""  # a fork begins with ours
    print(f"{name:42s} {passed:8.1f} s   {cpu:8.1f} processor seconds{memory}", flush=True)


def wide_table(n: int, n_columns: int, seed: int) -> pd.DataFrame:
    """Numbers alone, ten of which matter."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, n_columns)).round(4)
    score = numbers[:, :10].sum(axis=1)
    table = pd.DataFrame(numbers, columns=[f"gene {i}" for i in range(n_columns)])
    return table.assign(fraud=np.where(score > np.quantile(score, 0.75), "yes", "no"))


def main() -> None:
    """Make the tables, run the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="commands whose line contains this text")
    only = parser.parse_args().only
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{os.cpu_count()} processors{load}")
    with tempfile.TemporaryDirectory() as home:
        model, price = Path(home) / "model.crcen", ("--target", "fraud", "--budget", 20)

        def written(name: str, table: pd.DataFrame) -> Path:
            table.to_csv(path := Path(home) / name, index=False)
            return path

        def timed(name: str, *arguments: object) -> None:
            if only in name:
                run(name, *arguments)

        timed("crcen --help", "--help")
        train = written("train.csv", mixed_table(11_325, 0, 18))
        timed("crcen fit, 11,325 × 31", "fit", train, *price, "--out", model)
        train = written("train.csv", mixed_table(100_000, 0, 37))
        timed("crcen look, 100,000 × 50", "look", train, "--target", "fraud")
        timed("crcen fit, 100,000 × 50", "fit", train, *price, "--out", model)
        train = written("train.csv", wide_table(40, 20_000, 0))
        timed("crcen look, 40 × 20,000", "look", train, "--target", "fraud")
        timed("crcen fit --quick, 40 × 20,000", "fit", train, *price, "--quick", "--out", model)
        train = written("train.csv", mixed_table(7_550, 0, 125))
        new = written("new.csv", mixed_table(3_775, 1, 125))
        timed("crcen fit --quick, 7,550 × 138", "fit", train, *price, "--quick", "--out", model)
        if model.exists():
            timed("crcen report, 3,775 × 138", "report", model, new, "--out", Path(home) / "report.html")
        train = written("train.csv", mixed_table(30_000, 0))
        timed(
            "crcen fit --learner networks, 30,000 × 25", "fit", train, *price, "--learner", "networks", "--out", model
        )
        piece = mixed_table(50_000, 1)
        for copies in (1, 10) if model.exists() else ():
            new = written("new.csv", pd.concat([piece] * copies))
            timed(f"crcen predict, {copies * 50_000:,} rows", "predict", model, new, "--out", Path(home) / "s.parquet")


if __name__ == "__main__":
    main()

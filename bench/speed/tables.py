"""Time and memory of the commands on a mixed table: fit on 30,000 × 25, predict on 50,000 and 500,000 rows.

python -m bench.speed.tables [--rows 30000]

Each command runs in a process of its own; its processor seconds and largest memory are those of the process.
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


def mixed_table(n: int, seed: int) -> pd.DataFrame:
    """25 columns and a target: 12 numbers, 6 categories, 2 truth values, 2 dates, a text, an id and a constant."""
    rng = np.random.default_rng(seed)
    columns = {"id": np.arange(n), "version": "v1"}
    numbers = rng.normal(size=(n, 12))
    logit = -4.5 + numbers[:, :4] @ [0.9, -0.6, 0.4, 0.3] + 0.5 * numbers[:, 0] * numbers[:, 1]
    numbers[:, :3][rng.random((n, 3)) < 0.1] = np.nan
    columns |= {f"number {i}": numbers[:, i].round(4) for i in range(12)}
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
    memory = f"   {used.ru_maxrss / 1024:7.0f} MB" if used.ru_maxrss > 1.1 * own else ""  # a fork begins with ours
    print(f"{name:34s} {passed:8.1f} s   {cpu:8.1f} processor seconds{memory}", flush=True)


def main() -> None:
    """Make the tables, run the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30_000)
    rows = parser.parse_args().rows
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{os.cpu_count()} processors{load}")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        train, model = folder / "train.csv", folder / "model.crcen"
        mixed_table(rows, 0).to_csv(train, index=False)
        piece = mixed_table(50_000, 1)
        run("crcen --help", "--help")
        how = ("--target", "fraud", "--budget", 20, "--learner", "networks", "--out", model)
        run(f"crcen fit, {rows:,} × 25", "fit", train, *how)
        for copies in (1, 10):
            new = folder / "new.csv"
            with open(new, "w", encoding="utf-8") as file:
                for i in range(copies):
                    piece.to_csv(file, index=False, header=i == 0)
            run(f"crcen predict, {copies * 50_000:,} rows", "predict", model, new, "--out", folder / "scored.parquet")


if __name__ == "__main__":
    main()

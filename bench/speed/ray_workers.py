"""What Ray costs and brings on this machine: one process, one worker, two workers, on the same files.

    unshare -rn sh -c 'ip link set lo up && python -m bench.speed.ray_workers --out results/speed/ray_workers.txt'

Each is fitted to few and to many rows, survey and balance included. The start of a local cluster varies by seconds from
run to run, so that no speed is derived from the difference.
"""

import argparse
import os
import platform
import tempfile
import time
import warnings
from pathlib import Path

import pandas as pd

import crcen

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
COLUMNS, EPOCHS, FILES = 30, 2, 16


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs=2, default=(200_000, 2_000_000))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = {"epochs": EPOCHS, "hidden": (64,), "random_state": 0}
    fits = {
        "fit_stream": lambda folder: crcen.fit_stream(folder, "y", **settings),
        "fit_ray, 1 worker": lambda folder: crcen.fit_ray(folder, "y", workers=1, **settings),
        "fit_ray, 2 workers": lambda folder: crcen.fit_ray(folder, "y", workers=2, **settings),
    }
    few, many = options.rows
    lines = [
        f"{few:,} and {many:,} rows, {COLUMNS} columns, {FILES} files, 64 hidden units, {EPOCHS} epochs; "
        f"{os.cpu_count()} cores, {platform.system()}",
        "",
        f"{'':<20}{'few rows, s':>14}{'many rows, s':>14}{'excess log loss':>17}",
    ]
    with tempfile.TemporaryDirectory() as home:
        made = {
            n: crcen.make_rare_events(n, COLUMNS, 20, seed=1, path=Path(home) / str(n), rows_per_file=-(-n // FILES))
            for n in options.rows
        }
        crcen.fit_stream(Path(home) / str(few), "y", **settings)  # loads the libraries, which is none of its time
        for name, fit in fits.items():
            seconds = {}
            for n in options.rows:
                start = time.perf_counter()
                model = fit(Path(home) / str(n))
                seconds[n] = time.perf_counter() - start
            events = made[many]
            X, _ = events.sample(100_000)
            columns = {column: X[:, j] for j, column in enumerate(events.feature_names)}
            excess = events.excess_log_loss(X, model.predict_proba(pd.DataFrame(columns))[:, 1])
            lines.append(f"{name:<20}{seconds[few]:>14.1f}{seconds[many]:>14.1f}{excess:>17.5f}")
            print(lines[-1], flush=True)
    if options.out:
        temporary = options.out.with_suffix(".part")
        temporary.write_text("\n".join([*lines, ""]))
        temporary.replace(options.out)


if __name__ == "__main__":
    main()

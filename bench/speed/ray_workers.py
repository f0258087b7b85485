"""Overhead and speed-up of Ray on this machine: one process, one worker, two workers, on the same files.

    unshare -rn sh -c 'ip link set lo up && python -m bench.speed.ray_workers --out results/speed/ray_workers.txt'
    unshare -rn sh -c 'ip link set lo up && python -m bench.speed.ray_workers --committee --threads 4 --columns 100
        --rows 20000 2000000 --out results/speed/ray_committee.txt'

Each is fitted to few and to many rows, survey and balance included. The start of a local cluster varies by seconds from
run to run, so that no speed is derived from the difference. With ``--committee`` one cluster stays connected, and the
committee of `crcen.fit_files` (network and LightGBM, default epochs) is fitted by one and by two workers of
``--threads`` cores each: seconds of the trees, of the network and of the whole fit, and how many times as fast two
workers are. The machine must have three times as many free cores as ``--threads``: two workers and the readers.
"""

import argparse
import os
import platform
import tempfile
import time
import warnings
from pathlib import Path
from types import ModuleType

import pandas as pd

import crcen

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
EPOCHS, FILES = 2, 16


def committee(few: int, n: int, columns: int, threads: int) -> list[str]:
    """Seconds of the committee by one and by two workers."""
    import ray

    from crcen.scale import ray as cluster

    seconds: dict[str, float] = {}

    def timed(module: ModuleType, name: str) -> None:
        run = getattr(module, name)

        def measured(*args: object, **settings: object) -> object:
            start = time.perf_counter()
            found = run(*args, **settings)
            seconds[name] = time.perf_counter() - start
            return found

        setattr(module, name, measured)

    timed(cluster, "grow_trees_on_ray")
    timed(crcen, "fit_ray")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    os.environ["OMP_NUM_THREADS"] = str(threads)
    ray.init(address="local", num_cpus=max(os.cpu_count() or 1, 2 * threads + 1), **quiet)
    lines = [f"{n:,} rows, {columns} columns, {FILES} files; workers of {threads} cores of "
             f"{os.cpu_count()}", f"{'':<12}{'trees, s':>10}{'network, s':>12}{'all, s':>9}"]  # fmt: skip
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for size in (few, n):
            crcen.make_rare_events(size, columns, 20, seed=1, path=Path(home) / str(size), rows_per_file=-(-n // FILES))
        # The first fit starts processes and loads libraries, which is none of the time.
        for size, workers in ((few, 1), (n, 1), (n, 2)):
            start = time.perf_counter()
            how = {"workers": workers, "cpus_per_worker": threads, "random_state": 0}
            how["hidden"] = (64,)  # a network whose parameters are stated is trained in any case
            crcen.fit_files(str(Path(home) / str(size)), target="y", engine="ray", **how)
            found[workers] = [seconds["grow_trees_on_ray"], seconds["fit_ray"], time.perf_counter() - start]
            trees, network, whole = found[workers]
            what = f"{workers} worker{'s' * (workers > 1)}" if size == n else "few rows"
            lines.append(f"{what:<12}{trees:>10.1f}{network:>12.1f}{whole:>9.1f}")
            print(lines[-1], flush=True)
    trees, network, whole = (one / two for one, two in zip(found[1], found[2], strict=True))
    return [*lines, f"{'times as fast':<12}{trees:>9.2f}{network:>12.2f}{whole:>9.2f}"]


def save(path: Path | None, lines: list[str]) -> None:
    """Write the lines to a file, if one was asked for."""
    if path:
        temporary = path.with_suffix(".part")
        temporary.write_text("\n".join([*lines, ""]))
        temporary.replace(path)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs=2, default=(200_000, 2_000_000))
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--committee", action="store_true")
    parser.add_argument("--threads", type=int, default=1, help="cores of a worker, with --committee")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.committee:
        lines = committee(*options.rows, options.columns, options.threads)
        print(*lines, sep="\n")
        save(options.out, lines)
        return
    settings = {"epochs": EPOCHS, "hidden": (64,), "random_state": 0}
    fits = {
        "fit_stream": lambda folder: crcen.fit_stream(folder, "y", **settings),
        "fit_ray, 1 worker": lambda folder: crcen.fit_ray(folder, "y", workers=1, **settings),
        "fit_ray, 2 workers": lambda folder: crcen.fit_ray(folder, "y", workers=2, **settings),
    }
    few, many = options.rows
    lines = [
        f"{few:,} and {many:,} rows, {options.columns} columns, {FILES} files, 64 hidden units, {EPOCHS} epochs; "
        f"{os.cpu_count()} cores, {platform.system()}",
        "",
        f"{'':<20}{'few rows, s':>14}{'many rows, s':>14}{'excess log loss':>17}",
    ]
    with tempfile.TemporaryDirectory() as home:
        made = {
            n: crcen.make_rare_events(
                n, options.columns, 20, seed=1, path=Path(home) / str(n), rows_per_file=-(-n // FILES)
            )
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
    save(options.out, lines)


if __name__ == "__main__":
    main()

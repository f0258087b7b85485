"""Time of fits, searches and predictions on 20,000 rows and more, compared with LightGBM and MLPClassifier in one run.

    python -m bench.speed.size [--rows 20000 100000] [--cores 1 2] [--rival-cores 2] [--who ours rivals]
        [--parts prediction fit search command]

30 numeric columns, 5 % positives. Every line is a process of its own, bound to so many cores, each of ours followed by
its rival on the same ones:

- fit: a default CRCENClassifier, against LightGBM (200 trees) and its four-fold cross_val_predict, which is what the
  default's evidence out of fold corresponds to, and MLPClassifier at its defaults.
- search: a default CRCENClassifierCV, against 16 settings × 4 folds of LightGBM; with the cross-validated log loss.
- command: `crcen fit`, with `--learner networks` and without, on 30,000 rows of 25 mixed columns, as a CSV file.
- prediction: one row as an array (best of several, wall clock) and rows a processor second of a large batch, on one
  core; a row as a dict to a TableClassifier; what loading a model and one prediction take in a fresh process.

Only ratios within one run are comparable; on a machine under load, only those of processor seconds.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import make_classification

BATCH = 20_000
# Loops are short, and the best of many counts: on a busy machine some of them have a core to themselves.
ONE_ROW_CALLS, ONE_ROW_LOOPS, REPEATS = 10, 100, 7
PARTS = ("fit", "search", "command", "prediction")
COMMAND_ROWS, COMMAND_NUMBERS, COMMAND_WORDS = 30_000, 17, 8

FRESH = """
import sys, time
start = time.perf_counter()
import numpy as np
import crcen
crcen.load(sys.argv[1]).predict_proba(np.zeros((1, 30)))
peak = next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(f"{time.perf_counter() - start:.2f} s, {peak:.0f} MB, torch imported: {'torch' in sys.modules}")
"""


def rows_of(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The made-up table."""
    return make_classification(n, 30, weights=[0.95], random_state=0)


# -- one measurement a process -----------------------------------------------------------------------------------------


def fit_ours(n: int) -> str:
    """A default fit."""
    import crcen

    X, y = rows_of(n)
    crcen.CRCENClassifier(None, max_epochs=1, random_state=0).fit(X[:500], y[:500])  # torch loaded, an epoch compiled
    return str(seconds(lambda: crcen.CRCENClassifier(None, random_state=0).fit(X, y)))


def fit_lightgbm(n: int) -> str:
    """A fit, and its predictions out of fold."""
    from lightgbm import LGBMClassifier
    from sklearn.model_selection import cross_val_predict

    X, y = rows_of(n)
    model = LGBMClassifier(n_estimators=200, n_jobs=own_cores(), verbose=-1, random_state=0)
    alone = seconds(lambda: model.fit(X, y))
    folds = seconds(lambda: cross_val_predict(model, X, y, cv=4, method="predict_proba"))
    return f"{alone + folds} ({alone.wall:.2f} s the fit, {folds.wall:.2f} s its cross_val_predict)"


def fit_mlp(n: int) -> str:
    """A fit at scikit-learn's defaults."""
    from sklearn.neural_network import MLPClassifier

    X, y = rows_of(n)
    return str(seconds(lambda: MLPClassifier(random_state=0).fit(X, y)))


def search_ours(n: int) -> str:
    """A default search."""
    import crcen

    X, y = rows_of(n)
    crcen.CRCENClassifier(None, max_epochs=1, random_state=0).fit(X[:500], y[:500])
    model = crcen.CRCENClassifierCV(None, random_state=0)
    taken = seconds(lambda: model.fit(X, y))
    chosen = ", ".join(f"{name} {model.best_params_[name]}" for name in ("hidden", "l2", "encoding"))
    return f"{taken}, log loss {-model.best_score_:.5f} ({chosen}, {model.best_epochs_} epochs)"


def search_lightgbm(n: int) -> str:
    """16 settings × 4 folds, and the best one fitted."""
    from lightgbm import LGBMClassifier
    from sklearn.model_selection import GridSearchCV

    X, y = rows_of(n)
    model = LGBMClassifier(n_estimators=200, n_jobs=own_cores(), verbose=-1, random_state=0)
    grid = {"num_leaves": [7, 15, 31, 63], "learning_rate": [0.02, 0.05, 0.1, 0.2]}
    search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=4)
    taken = seconds(lambda: search.fit(X, y))
    return f"{taken}, log loss {-search.best_score_:.5f} ({search.best_params_})"


def command_networks(n: int) -> str:
    """The command on a CSV file of mixed columns, networks alone."""
    return _by_command("--learner", "networks")


def command_committee(n: int) -> str:
    """The same as it is: a committee of networks and trees."""
    return _by_command()


def _by_command(*options: str) -> str:
    X, y = make_classification(COMMAND_ROWS, COMMAND_NUMBERS, weights=[0.95], random_state=0)
    words = np.random.default_rng(0).integers(0, 12, (COMMAND_ROWS, COMMAND_WORDS))
    names = [f"n{i}" for i in range(COMMAND_NUMBERS)] + [f"w{i}" for i in range(COMMAND_WORDS)] + ["label"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w") as file:
            file.write(",".join(names) + "\n")
            for numbers, own, label in zip(X, words, y, strict=True):
                cells = [*(f"{number:.6g}" for number in numbers), *(f"word{word}" for word in own)]
                file.write(",".join([*cells, "yes" if label else "no"]) + "\n")
        arguments = ["fit", str(path), "--target", "label", "--budget", "10", *options]
        run = [sys.executable, "-m", "crcen", *arguments, "--out", str(Path(folder) / "model.crcen")]
        return str(seconds(lambda: subprocess.run(run, check=True, capture_output=True)))


MEASURED: dict[str, tuple[tuple[str, Callable[[int], str]], ...]] = {
    "fit": (("ours, default", fit_ours), ("LightGBM", fit_lightgbm), ("MLPClassifier", fit_mlp)),
    "search": (("ours, 16 settings × 4 folds", search_ours), ("LightGBM, 16 × 4", search_lightgbm)),
    "command": (
        ("crcen fit --learner networks", command_networks),
        ("crcen fit, a committee", command_committee),
    ),
}


class Seconds(NamedTuple):
    """Of the wall clock, and of all processors."""

    wall: float
    processor: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall + other.wall, self.processor + other.processor)

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.processor:.1f} s of processors"


def seconds(run: Callable[[], object]) -> Seconds:
    """What a call takes, processes that it started included."""
    start = time.perf_counter(), sum(os.times()[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
    return Seconds(time.perf_counter() - start[0], sum(os.times()[:4]) - start[1])


def own_cores() -> int:
    """Cores that this process is bound to."""
    return len(os.sched_getaffinity(0))


def in_own_process(part: str, name: str, rows: int, cores: int) -> str:
    """What a measurement prints, by a process that has so many cores."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    threads = {name: str(cores) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-m", "bench.speed.size", "--one", part, name, "--rows", str(rows)]
    done = subprocess.run(
        command,
        env=os.environ | threads,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    return done.stdout.strip() or f"failed: {done.stderr.strip().splitlines()[-1:]}"


# -- prediction --------------------------------------------------------------------------------------------------------


def seconds_a_row(predict: Callable, row: object, calls: int = ONE_ROW_CALLS) -> float:
    """Wall clock of one row, the best of many loops."""
    predict(row)
    found = []
    for _ in range(ONE_ROW_LOOPS):
        start = time.perf_counter()
        for _ in range(calls):
            predict(row)
        found.append((time.perf_counter() - start) / calls)
    return min(found)


def rows_a_processor_second(predict: Callable, X: np.ndarray) -> float:
    """Rows of a batch by the time of all processors, the best of several."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        predict(X)
        found.append(time.process_time() - start)
    return len(X) / min(found)


def models(X: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """Fitted, name by name; the first is what ratios are taken to."""
    from lightgbm import LGBMClassifier
    from sklearn.neural_network import MLPClassifier

    import crcen

    mlp_shape = {"hidden": (100,), "n_members": 1, "encoding": "standard", "max_epochs": 5}
    few, labels = X[:2000], y[:2000]
    three = crcen.CRCENClassifierCV(None, search=crcen.Search(n_settings=3), max_epochs=5, random_state=0)
    return {
        "MLPClassifier": MLPClassifier(max_iter=5, random_state=0).fit(X, y),
        "LightGBM": LGBMClassifier(n_jobs=1, verbose=-1, random_state=0).fit(X, y),
        "ours, MLPClassifier's shape": crcen.CRCENClassifier(None, **mlp_shape, random_state=0).fit(X, y),
        "ours, default": crcen.CRCENClassifier(None, max_epochs=5, random_state=0).fit(X, y),
        "ours, three settings": three.fit(few, labels),
        "ours, a committee": crcen.CommitteeClassifier(random_state=0).fit(few, labels),
    }


def prediction(n: int) -> None:
    """Print the table of predictions."""
    import pandas as pd

    import crcen

    X, y = rows_of(n)
    batch = np.resize(X, (BATCH, X.shape[1]))
    fitted = models(X, y)
    print(f"\n{'prediction, one core':30} {'one row':>10} {'ratio':>6} {'rows a processor second':>25} {'ratio':>6}")
    first: tuple[float, float] | None = None
    for name, model in fitted.items():
        row = seconds_a_row(model.predict_proba, X[:1].copy())
        rate = rows_a_processor_second(model.predict_proba, batch)
        first = first or (row, rate)
        print(f"{name:30} {1e6 * row:7.0f} µs {row / first[0]:6.2f} {rate:25,.0f} {rate / first[1]:6.2f}", flush=True)
    frame = pd.DataFrame(X[:2000], columns=[f"n{i}" for i in range(30)])
    words = np.random.default_rng(0).integers(0, 5, (2000, 3)).astype(str)
    frame[["w0", "w1", "w2"]] = np.char.add("word", words)
    network = crcen.CRCENClassifier(None, max_epochs=5, random_state=0)
    table = crcen.TableClassifier(estimator=network).fit(frame, y[:2000])
    for name, row in (("a dict", frame.iloc[0].to_dict()), ("a one-row frame", frame.iloc[:1])):
        taken = seconds_a_row(table.predict_proba, row, calls=3)
        print(f"{'TableClassifier, 33 columns, one row as ' + name:55} {1e3 * taken:6.2f} ms", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = crcen.save(fitted["ours, default"], Path(folder) / "model.crcen")
        done = subprocess.run([sys.executable, "-c", FRESH, str(path)], capture_output=True, text=True, check=True)
        print(f"a fresh process that loads a model and predicts one row: {done.stdout.strip()}")


# -- all of it ---------------------------------------------------------------------------------------------------------


def processor() -> str:
    """Its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rival-cores", type=int, nargs="+", help="cores of the rivals, where those are fewer counts")
    parser.add_argument("--who", nargs="+", choices=("ours", "rivals"), default=("ours", "rivals"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--one", nargs=2, metavar=("PART", "NAME"), help="one measurement, in this process")
    options = parser.parse_args()
    if options.one:
        part, name = options.one
        if part == "prediction":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                prediction(options.rows[0])
        else:
            print(dict(MEASURED[part])[name](options.rows[0]))
        return
    import sklearn
    import torch

    print(f"{processor()}, {own_cores()} cores; torch {torch.__version__}, numpy {np.__version__}, ", end="")
    print(f"scikit-learn {sklearn.__version__}; 30 columns, 5 % positives", flush=True)
    for part in [part for part in MEASURED if part in options.parts]:
        for rows in options.rows if part != "command" else [COMMAND_ROWS]:
            for name, _ in MEASURED[part]:
                is_ours = name.startswith(("ours", "crcen"))
                if ("ours" if is_ours else "rivals") not in options.who:
                    continue
                for cores in options.cores if is_ours or not options.rival_cores else options.rival_cores:
                    label = f"{part}, {rows:,} rows, {cores} {'core' if cores == 1 else 'cores'}"
                    print(f"{label:32} {name:30} {in_own_process(part, name, rows, cores)}", flush=True)
    if "prediction" in options.parts:
        print(in_own_process("prediction", "all", options.rows[0], 1))


if __name__ == "__main__":
    main()

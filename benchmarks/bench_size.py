"""Prediction of fitted models beside MLPClassifier and LightGBM, in one run.

    OMP_NUM_THREADS=1 python benchmarks/bench_size.py [--rows 20000]

30 numeric columns, 5 % positives. Prints the time of one row given as an array (best of several, wall clock) and rows
a processor second of a large batch: a network of MLPClassifier's shape, the default of CRCENClassifier, and both rivals
at their defaults. Then what loading a saved model and one prediction take in a fresh process. Only ratios mean anything
here.
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

import numpy as np
import sklearn
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.neural_network import MLPClassifier

import crcen

BATCH = 20_000
ONE_ROW_CALLS, REPEATS = 300, 7

FRESH = """
import sys, time
start = time.perf_counter()
import numpy as np
import crcen
crcen.load(sys.argv[1]).predict_proba(np.zeros((1, 30)))
peak = next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(f"{time.perf_counter() - start:.2f} s, {peak:.0f} MB, torch imported: {'torch' in sys.modules}")
"""


def seconds_a_row(predict: Callable, row: np.ndarray) -> float:
    """Wall clock of one row, the best of several loops."""
    predict(row)
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(ONE_ROW_CALLS):
            predict(row)
        found.append((time.perf_counter() - start) / ONE_ROW_CALLS)
    return min(found)


def rows_a_processor_second(predict: Callable, X: np.ndarray) -> float:
    """Rows of a batch by the time of all processors, the best of several."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        predict(X)
        found.append(time.process_time() - start)
    return len(X) / min(found)


def processor() -> str:
    """Its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def models(X: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """Fitted, name by name; the first is what ratios are taken to."""
    mlp_shape = {"hidden": (100,), "n_members": 1, "encoding": "standard", "max_epochs": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "MLPClassifier": MLPClassifier(max_iter=5, random_state=0).fit(X, y),
            "LightGBM": LGBMClassifier(n_jobs=1, verbose=-1, random_state=0).fit(X, y),
            "ours, MLPClassifier's shape": crcen.CRCENClassifier(None, **mlp_shape, random_state=0).fit(X, y),
            "ours, default": crcen.CRCENClassifier(None, max_epochs=5, random_state=0).fit(X, y),
        }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    X, y = make_classification(options.rows, 30, weights=[0.95], random_state=0)
    batch = np.resize(X, (BATCH, X.shape[1]))
    fitted = models(X, y)
    print(f"{processor()}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}")
    print(f"numpy {np.__version__}, scikit-learn {sklearn.__version__}, {options.rows:,} training rows of 30 columns")
    print(f"\n{'prediction':30} {'one row':>10} {'ratio':>6} {'rows a processor second':>25} {'ratio':>6}")
    first: tuple[float, float] | None = None
    for name, model in fitted.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = seconds_a_row(model.predict_proba, X[:1].copy())
            rate = rows_a_processor_second(model.predict_proba, batch)
        first = first or (row, rate)
        print(f"{name:30} {1e6 * row:7.0f} µs {row / first[0]:6.2f} {rate:25,.0f} {rate / first[1]:6.2f}")
    with tempfile.TemporaryDirectory() as folder:
        path = crcen.save(fitted["ours, default"], Path(folder) / "model.crcen")
        done = subprocess.run([sys.executable, "-c", FRESH, str(path)], capture_output=True, text=True, check=True)
        print(f"\na fresh process that loads a model and predicts one row: {done.stdout.strip()}")


if __name__ == "__main__":
    main()

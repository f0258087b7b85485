"""64 networks as one stack compared with a two-process loop of scikit-learn's MLPClassifier, in one run.

    python -m bench.speed.core [--data-home DIR] [--sets abalone us_crime]

Hidden 8/16/32/64 × l2 1e-5..1e-2 × 4 folds, balanced weights, the same standardised folds. There are two kinds of
comparison: scikit-learn with its defaults, and the same work (its `alpha` is divided by the batch's weight sum, so
alpha = l2 × batch_size; same batch, epochs and peak rate), the latter also for networks with two layers. Prints
seconds, their ratio, and the cross-validated weighted log loss of both; then time by the number of networks, and peak
memory. Only ratios are comparable between machines.
"""

import argparse
import os
import resource
import statistics
import time
import warnings

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold

import crcen
from crcen.training.engine import train as train_jobs
from crcen.training.jobs import TrainingJob

HIDDEN = (8, 16, 32, 64)
SHALLOW = tuple((h,) for h in HIDDEN)
DEEP = ((8, 8), (16, 16), (32, 32), (64, 64))
L2 = (1e-5, 1e-4, 1e-3, 1e-2)
EPOCHS = 30
BATCH = 128
RATE = 0.01
SETS = ("abalone", "satimage", "us_crime", "coil_2000")


def weighted_log_loss(y: np.ndarray, logits: np.ndarray, w: np.ndarray) -> float:
    """Mean weighted cross entropy from logits."""
    return float((w * (np.logaddexp(0, logits) - y * logits)).sum() / w.sum())


def best_score(losses: np.ndarray) -> float:
    """Cross-validated loss of the best setting: losses (settings, folds)."""
    return float(losses.mean(axis=1).min())


def jobs_for(folds: list, lam: float, shapes: tuple) -> list[TrainingJob]:
    """The 64 jobs, setting by setting."""
    return [
        TrainingJob(
            (1 - lam, lam),
            rows=train,
            hidden=hidden,
            l2=l2,
            max_epochs=EPOCHS,
            batch_size=BATCH,
            learning_rate=RATE,
            seed=7,
        )
        for hidden in shapes
        for l2 in L2
        for train, _ in folds
    ]


def ours(X: np.ndarray, y: np.ndarray, folds: list, lam: float, shapes: tuple) -> tuple[float, float]:
    """Seconds and best cross-validated weighted log loss of the stack."""
    w = np.where(y, lam, 1 - lam)
    start = time.perf_counter()
    results = train_jobs(X, y, jobs_for(folds, lam, shapes), device="cpu")
    losses = [
        weighted_log_loss(y[test], result.network.logits(X[test]), w[test])
        for result, (_, test) in zip(results, folds * (len(shapes) * len(L2)), strict=True)
    ]
    return time.perf_counter() - start, best_score(np.reshape(losses, (-1, len(folds))))


def fit_rival(X: np.ndarray, y: np.ndarray, w: np.ndarray, train: np.ndarray, test: np.ndarray, params: dict) -> float:
    """One MLPClassifier on one fold, standardised by its training rows."""
    from sklearn.neural_network import MLPClassifier

    mean, scale = X[train].mean(0), X[train].std(0)
    scale[scale == 0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier(random_state=7, **params)
        model.fit((X[train] - mean) / scale, y[train], sample_weight=w[train] / w[train].mean())
    q = np.clip(model.predict_proba((X[test] - mean) / scale)[:, 1], 1e-15, 1 - 1e-15)
    return weighted_log_loss(y[test], np.log(q) - np.log1p(-q), w[test])


def rival(
    X: np.ndarray, y: np.ndarray, folds: list, lam: float, same_work: bool, shapes: tuple = SHALLOW
) -> tuple[float, float]:
    """Seconds and best cross-validated weighted log loss of the loop."""
    w = np.where(y, lam, 1 - lam)
    start = time.perf_counter()
    grid = []
    for hidden in shapes:
        for l2 in L2:
            params: dict = {"hidden_layer_sizes": hidden, "alpha": l2}
            if same_work:
                params |= {"alpha": l2 * BATCH, "batch_size": BATCH, "max_iter": EPOCHS, "learning_rate_init": RATE}
                params |= {"tol": 0, "n_iter_no_change": EPOCHS + 1}
            grid += [(train, test, params) for train, test in folds]
    losses = Parallel(n_jobs=2)(delayed(fit_rival)(X, y, w, *item) for item in grid)
    return time.perf_counter() - start, best_score(np.reshape(losses, (-1, len(folds))))


def compare(name: str, data_home: str | None, kinds: tuple[str, ...]) -> dict[str, float]:
    """Print one set's comparison; return its ratios."""
    data = crcen.load_dataset(name, data_home)
    lam = data.n_neg / (data.n_neg + data.n_pos)
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(data.X, data.y))
    ratios = {}
    for kind in kinds:
        shapes = DEEP if kind == "two layers" else SHALLOW
        seconds, loss = min(ours(data.X, data.y, folds, lam, shapes) for _ in range(3))
        other_seconds, other_loss = rival(data.X, data.y, folds, lam, kind != "defaults", shapes)
        ratios[kind] = other_seconds / seconds
        print(
            f"{name:12s} {kind:12s} crcen {seconds:7.2f} s  MLPClassifier {other_seconds:8.2f} s  "
            f"ratio {ratios[kind]:6.1f}x  weighted log loss {loss:.4f} against {other_loss:.4f}",
            flush=True,
        )
    return ratios


def growth(data_home: str | None) -> None:
    """Print time against the number of networks (32 hidden units, abalone)."""
    data = crcen.load_dataset("abalone", data_home)
    lam = data.n_neg / (data.n_neg + data.n_pos)
    print("networks  seconds  times the time of one (abalone, 32 hidden units, 30 epochs, median of 3)")
    one = 0.0
    for count in (1, 4, 16, 64, 256):
        jobs = [TrainingJob((1 - lam, lam), hidden=(32,), l2=1e-3, seed=seed) for seed in range(count)]
        times = []
        for _ in range(3):
            start = time.perf_counter()
            train_jobs(data.X, data.y, jobs, device="cpu")
            times.append(time.perf_counter() - start)
        seconds = statistics.median(times)
        one = one or seconds
        print(f"{count:8d}  {seconds:7.2f}  {seconds / one:6.1f}", flush=True)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--kinds", nargs="+", default=["defaults", "same work", "two layers"])
    parser.add_argument("--growth-only", action="store_true")
    args = parser.parse_args()
    if not args.growth_only:
        train_jobs(np.random.default_rng(0).normal(size=(64, 2)), np.arange(64) % 2, [TrainingJob((0.5, 0.5))])
        ratios = [compare(name, args.data_home, tuple(args.kinds)) for name in args.sets]
        for kind in args.kinds:
            print(f"{kind}: geometric mean ratio {statistics.geometric_mean(r[kind] for r in ratios):.1f}x")
    growth(args.data_home)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process (stack side, data and libraries included): {peak:.0f} MiB")


if __name__ == "__main__":
    main()

"""False alarms and delays of `KeyEquationMonitor` for K classes, on simulated streams with a known posterior.

    python -m bench.validity.class_monitor [--streams 2000] [--drifted 500] [--classes 4 8] [--out FILE]

Normal features in four dimensions around a centre for each class, so that the posterior is known and softmax regression
is of the right form. Every stream is 12,000 rows, looked at 60 times, against 3,000 reference rows. The model is the
posterior itself, or a softmax regression of the weights' own kind fitted to 3,000 rows, with its out-of-fold rows as
reference. The drift is +0.5 in the log-odds of the rarest class, 3 % of rows, from the first row or after 6,000 rows.
Beside the monitor stands the plain mixture of one comparison, from the first row on, over all classes at once.
"""

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import softmax

from crcen._support.files import write_atomic
from crcen.decisions.monitor.drift_tests import DriftTest, Tally, comparison, stacked
from crcen.theory.balance import class_shifts
from crcen.theory.price import Price
from crcen.theory.sequential import stream_sums

SHARES = {
    3: np.array([0.988, 0.01, 0.002]),
    4: np.array([0.75, 0.15, 0.07, 0.03]),
    8: np.array([0.55, 0.15, 0.1, 0.06, 0.05, 0.03, 0.03, 0.03]),
}
WEIGHTS = {"natural": {k: np.ones(k) for k in SHARES}}
WEIGHTS["1 to 40"] = {
    3: np.array([1.0, 10, 40]),
    4: np.array([1.0, 5, 12, 40]),
    8: np.array([1.0, 2, 3, 5, 8, 12, 20, 40]),
}
LOOKS, ROWS, REFERENCE, SCALE, DRIFT = 60, 200, 3000, 0.3, 0.5
RATE = 0.05
MODELS = ("posterior", "softmax regression")
Array = np.ndarray


def centres(n_classes: int) -> Array:
    """The same in every run."""
    return np.random.default_rng(99).normal(0, 1.2, (n_classes, 4))


def drawn(rng: np.random.Generator, n: int, n_classes: int, drift: Array) -> tuple[Array, Array, Array]:
    """Features, labels at the posterior moved by a drift, and the log posterior."""
    mu, shares = centres(n_classes), SHARES[n_classes]
    X = mu[rng.choice(n_classes, n, p=shares)] + rng.standard_normal((n, 4))
    logits = -0.5 * ((X[:, None] - mu) ** 2).sum(2) + np.log(shares)
    truth = softmax(logits + drift, axis=1)
    y = (truth.cumsum(1) < rng.random((n, 1))).sum(1)
    return X, np.minimum(y, n_classes - 1), logits


def softmax_regression(X: Array, y: Array, w: Array, start: Array) -> Array:
    """Weights of a softmax regression, (5, K), by Newton's method; a whisper of l2 keeps them finite."""
    design, n_classes = np.column_stack([np.ones(len(X)), X]), len(w)
    mass, beta = w[y] / w[y].sum(), start.copy()
    own, ridge = np.eye(n_classes)[y], 1e-6
    for _ in range(50):
        q = softmax(design @ beta, axis=1)
        gradient = design.T @ (mass[:, None] * (own - q)) - ridge * beta
        curvature = np.einsum("n,nk,kl->nkl", mass, q, np.eye(n_classes)) - np.einsum("n,nk,nl->nkl", mass, q, q)
        hessian = np.einsum("ni,nkl,nj->ikjl", design, curvature, design).reshape(beta.size, beta.size)
        step = np.linalg.solve(hessian + ridge * np.eye(beta.size), gradient.ravel()).reshape(beta.shape)
        beta = beta + step
        if np.abs(step).max() < 1e-5:
            return beta
    raise RuntimeError("Newton's method did not converge")


def fitted(rng: np.random.Generator, n_classes: int, w: Array) -> tuple[Array, Array, Array]:
    """Coefficients, solved on the out-of-fold logits of four folds, those logits and their labels."""
    while True:
        X, y, _ = drawn(rng, REFERENCE, n_classes, np.zeros(n_classes))
        if np.bincount(y, minlength=n_classes).min() >= 8:
            break
    mu = centres(n_classes)
    truth = np.vstack([np.log(SHARES[n_classes]) - 0.5 * (mu**2).sum(1) + np.log(w), mu.T])
    beta, logits = softmax_regression(X, y, w, truth), np.empty((len(y), n_classes))
    fold = np.empty(len(y), dtype=int)
    for k in range(n_classes):
        fold[y == k] = np.arange((y == k).sum()) % 4
    for one in range(4):
        own = softmax_regression(X[fold != one], y[fold != one], w, beta)
        logits[fold == one] = np.column_stack([np.ones((fold == one).sum()), X[fold == one]]) @ own
    shift = class_shifts(y, logits, w, None)
    beta[0] += shift
    return beta, logits + shift, y


def stream(task: tuple[int, int, str, str, float, int]) -> tuple[float, float, float, bool]:
    """Looks until the monitor and the plain mixture alarm (NaN: never), the drift, whether the class is right."""
    seed, n_classes, kind, weights, drift, start = task
    rng, w = np.random.default_rng(seed), WEIGHTS[weights][n_classes]
    weighting = Price(w, np.ones(n_classes))
    if kind == "posterior":
        _, y, logits = drawn(rng, REFERENCE, n_classes, np.zeros(n_classes))
        reference, beta = stream_sums(y, softmax(logits + np.log(w), axis=1), weighting), None
    else:
        beta, logits, y = fitted(rng, n_classes, w)
        reference = stream_sums(y, softmax(logits, axis=1), weighting)
    spread = reference.dispersion
    first, total = Tally.of(reference, spread), Tally.none(n_classes)
    test = DriftTest(first, SCALE, 0.0)
    moved = np.zeros(n_classes)
    at, plain, size, right = math.nan, math.nan, math.nan, False
    for look in range(1, LOOKS + 1):
        moved[-1] = drift if look > start else 0.0
        X, y, logits = drawn(rng, ROWS, n_classes, moved)
        outputs = logits + np.log(w) if beta is None else np.column_stack([np.ones(ROWS), X]) @ beta
        tally = Tally.of(stream_sums(y, softmax(outputs, axis=1), weighting), spread)
        test.add(tally, look)
        total = total + tally
        if math.isnan(at) and test.log_evidence() >= -math.log(RATE):
            at, change = look, test.change()
            size, right = change.drift, change.test == n_classes - 1
        if math.isnan(plain) and mixture(first, total) >= -math.log(RATE):
            plain = look
        if not (math.isnan(at) or math.isnan(plain)):
            break
    return at, plain, size, right


def mixture(before: Tally, since: Tally) -> float:
    """Log of the plain mixture."""
    moved, clock, _ = comparison(stacked([before]), stacked([since]), np.zeros((1, len(before.score))))
    spread = np.eye(moved.shape[1]) + SCALE**2 * clock[0]
    gain = moved[0] @ np.linalg.solve(spread, moved[0])
    return 0.5 * SCALE**2 * gain - 0.5 * np.linalg.slogdet(spread)[1]


def share(hits: Array) -> str:
    """A share with its Monte-Carlo standard error."""
    p = float(np.mean(hits))
    return f"{p:.4f} ± {math.sqrt(max(p * (1 - p), 1e-12) / len(hits)):.4f}"


def rows_to(looks: Array) -> str:
    """Median rows to an alarm."""
    middle = np.median(np.where(np.isnan(looks), np.inf, looks))
    return f"{ROWS * middle:,.0f}" if np.isfinite(middle) else "not found"


def main() -> None:
    """Measure, and write as it goes."""
    options = argparse.ArgumentParser()
    options.add_argument("--streams", type=int, default=2000)
    options.add_argument("--drifted", type=int, default=500)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--classes", type=int, nargs="*", choices=SHARES, default=list(SHARES))
    options.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    began = time.perf_counter()
    lines = [
        f"False alarms of K classes at nominal {RATE}, {LOOKS * ROWS:,} rows looked at {LOOKS} times, "
        f"{chosen.streams} streams each",
        f"{'classes':>8}  {'weights':<8}  {'model':<18}  {'monitor':>16}  {'plain mixture':>16}",
    ]
    cells = [(k, kind, w) for kind in chosen.models for k in chosen.classes for w in WEIGHTS]
    with ProcessPoolExecutor(chosen.processes) as pool:

        def measured(count: int, k: int, kind: str, w: str, drift: float, start: int) -> Array:
            tasks = [(1_000_003 * k + 7919 * start + seed, k, kind, w, drift, start) for seed in range(count)]
            return np.array(list(pool.map(stream, tasks, chunksize=10)), dtype=float)

        def say(line: str) -> None:
            lines.append(line)
            print(line, flush=True)
            if chosen.out is not None:
                write_atomic(chosen.out, "\n".join(lines) + "\n")

        for k, kind, w in cells:
            found = measured(chosen.streams, k, kind, w, 0.0, 0)
            alarms = [share(~np.isnan(found[:, column])) for column in (0, 1)]
            say(f"{k:>8}  {w:<8}  {kind:<18}  {alarms[0]:>16}  {alarms[1]:>16}")
        say("")
        say(f"+{DRIFT} in the log-odds of the rarest class (3 %), {chosen.drifted} streams each; rows are the median")
        say(
            f"{'classes':>8}  {'weights':<8}  {'from row':>8}  {'monitor: rows':>14}  {'found':>6}  {'named':>6}  "
            f"{'drift':>6}  {'plain mixture: rows':>20}  {'found':>6}"
        )
        for start in (0, LOOKS // 2):
            for k, kind, w in cells:
                if kind != MODELS[0]:
                    continue
                found = measured(chosen.drifted, k, kind, w, DRIFT, start)
                true = found[:, 0] > start  # an alarm before the drift is a false one
                at, plain = np.where(true, found[:, 0] - start, np.nan), found[:, 1] - start
                plain = np.where(plain > 0, plain, np.nan)
                say(
                    f"{k:>8}  {w:<8}  {ROWS * start:>8,}  {rows_to(at):>14}  {true.mean():>6.3f}  "
                    f"{found[true, 3].mean():>6.3f}  {found[true, 2].mean():>6.2f}  {rows_to(plain):>20}  "
                    f"{np.mean(~np.isnan(plain)):>6.3f}"
                )
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

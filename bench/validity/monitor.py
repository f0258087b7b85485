"""False alarms and delays of `KeyEquationMonitor` with fitted models, on simulated streams with a known posterior.

    python -m bench.validity.monitor [--streams 2000] [--drifted 500] [--networks 100] [--out FILE]

Five normal features, true log-odds linear in them, 10 % or 2 % positives. A model is a logistic regression at
weighting="balanced" without penalty, fitted by Newton's method as `CRCENClassifier(hidden=(), l2=0)` would be, its bias
then solved on the logits of four folds as `CRCENClassifierCV` does. Every stream has a model of its own.

False alarms: streams without drift, ten times as long as the training rows, looked at 100 times. Delays: +0.3 log-odds
on every row, 5,000 rows a month, looked at every week (a quarter of a month), from the first row or after six months.
The last part repeats the false alarms with networks of `CRCENClassifierCV` and `KeyEquationMonitor` itself.
"""

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

import crcen
from crcen._support.files import write_atomic
from crcen.decisions.monitor.drift_tests import DriftTest, Tally, log_evidence
from crcen.theory.decision import sigmoid
from crcen.theory.price import Price
from crcen.theory.sequential import GRID, GRID_SIZE
from crcen.theory.sequential import stream_sums as reference_sums

RATES = (0.05, 0.01)
COEF = np.array([1.0, -0.8, 0.5, 0.0, 0.3])
BIAS = {0.10: -2.874, 0.02: -4.791}  # by share of positives
FOLDS, SCALE = 4, 0.3
DRIFT, WEEK, MONTHS = 0.3, 1250, 36
Array = np.ndarray


def draw_training(rng: np.random.Generator, n_models: int, n: int, bias: float) -> tuple[Array, Array]:
    """(models, rows, 1 + features) and labels, with at least a few positives in every fold."""
    X = np.ones((n_models, n, 1 + COEF.size))
    X[..., 1:] = rng.standard_normal((n_models, n, COEF.size))
    y = rng.random((n_models, n)) < sigmoid(bias + X[..., 1:] @ COEF)
    return X, y


def newton(X: Array, y: Array, w: Array, start: Array) -> Array:
    """Coefficients of weighted logistic regressions, (models, 1 + features); a whisper of l2 keeps them finite."""
    beta = start.copy()
    ridge = 1e-6 * np.eye(X.shape[-1])
    total = w.sum(1)[:, None]
    for _ in range(20):
        q = _chance((X @ beta[..., None])[..., 0])
        gradient = ((w * (y - q))[:, None] @ X)[:, 0] / total - beta @ ridge
        hessian = np.swapaxes(X * (w * q * (1 - q))[..., None], 1, 2) @ X / total[..., None] + ridge
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        beta = beta + step
        if np.abs(step).max() < 1e-4:  # the next step, which is not taken, is of the order of its square
            return beta
    raise RuntimeError("Newton's method did not converge")


def fit(X: Array, y: Array, bias: float) -> tuple[Array, Array, Array]:
    """Coefficients, λ and out-of-fold logits of balanced models, their bias solved on those logits."""
    lam = 1 - y.mean(1)  # α = 1: cost ratio n_neg / n_pos
    w = np.where(y, lam[:, None], 1 - lam[:, None])
    truth = np.tile(np.r_[bias, COEF], (len(X), 1))
    truth[:, 0] += np.log(lam / (1 - lam))
    beta = newton(X, y, w, truth)  # a start; the optimum is unique
    logits = np.empty(y.shape)
    rank = np.where(y, np.cumsum(y, 1), np.cumsum(~y, 1)) % FOLDS  # stratified folds: each class is dealt out in turn
    for fold in range(FOLDS):
        own = newton(X, y, w * (rank != fold), beta)
        np.copyto(logits, (X @ own[..., None])[..., 0], where=rank == fold)
    for m in range(len(X)):
        shift = crcen.balance_shift(y[m], logits[m], float(lam[m]))
        logits[m] += shift
        beta[m, 0] += shift
    return beta, lam, logits


def stream_sums(rng: np.random.Generator, beta: Array, lam: Array, bias: float, drifts: ArrayLike, rows: int) -> Array:
    """Residual sums and likelihood of each look, one stream per model: (7 + GRID_SIZE, models, looks).

    With normal features a row's true and fitted log-odds are two correlated normals, so that only these are drawn.
    """
    size, cost = np.linalg.norm(COEF), (lam / (1 - lam))
    along = beta[:, 1:] @ COEF / size
    across = np.sqrt(np.maximum((beta[:, 1:] ** 2).sum(1) - along**2, 0.0))
    drifts = np.asarray(drifts)
    sums = np.empty((7 + GRID_SIZE, len(beta), drifts.size))
    for look, drift in enumerate(drifts):
        u, v = rng.standard_normal((2, len(beta), rows), dtype=np.float32)
        y = rng.random((len(beta), rows), dtype=np.float32) < _chance(np.float32(bias + drift) + np.float32(size) * u)
        q = _chance(_column(beta[:, 0]) + _column(along) * u + _column(across) * v)
        p = q / (q + _column(cost) * (1 - q))
        miss, alarm = _column(lam) * (1 - q), _column(1 - lam) * q
        hit, fell = np.where(y, miss, 0), np.where(y, 0, alarm)
        second = miss * miss * p + alarm * alarm * (1 - p)
        for row, values in enumerate((y, hit, fell, miss * p, second, hit * hit + fell * fell), start=1):
            sums[row, :, look] = values.sum(1, dtype=np.float64)
        # Σ log(1 + p(e^d − 1)) over probabilities in narrow bins of log-odds.
        place = np.clip(np.log(p / (1 - p)) * 20 + 300, 0, 499).astype(np.int64) + 500 * np.arange(len(beta))[:, None]
        binned = np.bincount(place.ravel(), minlength=500 * len(beta)).reshape(len(beta), 500)
        sums[7:, :, look] = (sums[1, :, look, None] * GRID - binned @ _BINS).T
    sums[0] = rows
    return sums


_BINS = np.log1p(sigmoid((np.arange(500) - 299.5) / 20)[:, None] * np.expm1(GRID))


def tally(column: Array, dispersion: float) -> Tally:
    """What the monitor takes of the sums of one look."""
    missed, alarmed, slope, variance = column[2:6]
    ratio = slope / (dispersion * variance) if variance > 0.0 else 0.0
    return Tally.binary(ratio * (missed - alarmed), ratio * slope, column[7:] / dispersion, missed, alarmed)


def _column(values: Array) -> Array:
    return values.astype(np.float32)[:, None]


def _chance(logits: Array) -> Array:
    return 1 / (1 + np.exp(-logits))


def models(rng: np.random.Generator, n_models: int, n: int, bias: float) -> Iterator[tuple[Array, ...]]:
    """Fitted models in chunks that fit in memory: coefficients, λ, out-of-fold logits, labels."""
    chunk = max(1, min(n_models, 100_000 // n))
    for first in range(0, n_models, chunk):
        X, y = draw_training(rng, min(chunk, n_models - first), n, bias)
        yield (*fit(X, y, bias), y)


def drift_test(y: Array, logits: Array, lam: float) -> tuple[DriftTest, float]:
    """The monitor's test with its out-of-fold reference, and the dispersion found there."""
    q = sigmoid(logits)
    sums = reference_sums(y.astype(np.int64), np.column_stack([1 - q, q]), Price.binary(float(lam), 1, 1))
    return DriftTest(Tally.of(sums, sums.dispersion), SCALE, 0.0), sums.dispersion


def evidence_path(test: DriftTest, dispersion: float, sums: Array) -> Array:
    """Log evidence after each look."""
    path = np.empty(sums.shape[1])
    for look, column in enumerate(sums.T):
        test.add(tally(column, dispersion), look)
        path[look] = test.log_evidence()
    return path


def false_alarms(seed: int, n_streams: int, n: int, bias: float) -> dict[str, list[float]]:
    """Share of streams without drift with an alarm at any of 100 looks, for each way to test and each rate."""
    rng = np.random.default_rng(seed)
    largest: dict[str, list[float]] = {"naive": [], "exact": [], "monitor": []}
    for beta, lam, logits, y in models(rng, n_streams, n, bias):
        sums = stream_sums(rng, beta, lam, bias, np.zeros(100), n // 10)
        _, _, missed, alarmed, slope, variance, _ = np.cumsum(sums[:7], axis=2)
        z = (missed - alarmed) / np.sqrt(variance)
        information = slope**2 / variance
        trusting = log_evidence(z / np.sqrt(information), information, np.zeros_like(z), SCALE)
        largest["naive"] += np.abs(z).max(1).tolist()
        largest["exact"] += trusting.max(1).tolist()
        for m in range(len(beta)):
            test, dispersion = drift_test(y[m], logits[m], lam[m])
            largest["monitor"].append(float(evidence_path(test, dispersion, sums[:, m]).max()))
    bars = {"naive": [NormalDist().inv_cdf(1 - rate / 2) for rate in RATES]}
    return {
        name: [float(np.mean(np.array(peaks) >= bar)) for bar in bars.get(name, [-math.log(rate) for rate in RATES])]
        for name, peaks in largest.items()
    }


def delays(seed: int, n_streams: int, n: int, bias: float, quiet_weeks: int) -> tuple[float, float, float]:
    """Median months from the start of the drift to an alarm at .05, the share found at all, and of alarms before it."""
    rng = np.random.default_rng(seed)
    drifts = np.r_[np.zeros(quiet_weeks), np.full(4 * MONTHS, DRIFT)]
    found, early = [], 0
    for beta, lam, logits, y in models(rng, n_streams, n, bias):
        for m in range(len(beta)):
            test, dispersion = drift_test(y[m], logits[m], lam[m])
            week = math.inf
            for look, drift in enumerate(drifts):
                sums = stream_sums(rng, beta[m : m + 1], lam[m : m + 1], bias, [drift], WEEK)[:, 0, 0]
                test.add(tally(sums, dispersion), look)
                if test.log_evidence() >= -math.log(RATES[0]):
                    week = look - quiet_weeks
                    break
            early += week < 0
            if week >= 0:
                found.append((week + 1) / 4)
    return float(np.median(found)), float(np.isfinite(found).mean()), early / n_streams


def network_false_alarms(seed: int, n_fits: int, n: int, bias: float) -> list[int]:
    """Streams with an alarm of `KeyEquationMonitor` over `CRCENClassifierCV` networks, ten times the training rows."""
    rng = np.random.default_rng(seed)
    alarms = [0, 0]
    for trial in range(n_fits):
        X = rng.standard_normal((11 * n, COEF.size))
        y = (rng.random(11 * n) < sigmoid(bias + X @ COEF)).astype(int)
        model = crcen.CRCENClassifierCV(hidden=[(8,)], l2=[1e-3, 1e-2], random_state=trial, device="cpu")
        model.fit(X[:n], y[:n])
        monitors = [crcen.KeyEquationMonitor(model, y_reference=y[:n], false_alarm_rate=rate) for rate in RATES]
        q = model.weighted_proba(X[n:])[:, 1]
        for rows in np.array_split(np.arange(10 * n), 100):
            for monitor in monitors:
                monitor.update(q=q[rows], y=y[n:][rows])
        alarms = [count + bool(monitor.alarms) for count, monitor in zip(alarms, monitors, strict=True)]
    return alarms


def _with_error(share: float, n: int) -> str:
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / n):.3f}"


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--drifted", type=int, default=500)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.10, 0.02])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    began = time.perf_counter()
    say(
        f"False alarms over a whole stream without drift, 10 times the training rows, 100 looks, {args.streams} streams"
    )
    say("(share of streams with an alarm, ± its Monte-Carlo standard error)")
    say(f"{'':26}{'nominal .05':^48}{'nominal .01':^48}")
    names = f"{'repeated Z':>15} {'no model error':>15} {'monitor':>15}"
    say(f"{'positives':>9} {'training rows':>14}  {names} {names}")
    for share in args.shares:
        for n in args.sizes:
            rates = false_alarms(n, args.streams, n, BIAS[share])
            cells = [_with_error(rates[w][i], args.streams) for i in (0, 1) for w in ("naive", "exact", "monitor")]
            say(f"{share:>9.0%} {n:>14,}  " + " ".join(f"{cell:>15}" for cell in cells))
    say("")
    say(f"Months to an alarm (nominal .05) after +{DRIFT} log-odds, 5,000 rows a month, {args.drifted} streams")
    say(f"{'':26}{'drift from the first row':^31} {'drift after 6 months':^47}")
    say(f"{'positives':>9} {'training rows':>14}  {'median':>12} {'found in 3 years':>17}"
        f"  {'median':>12} {'found in 3 years':>17} {'alarm before':>15}")  # fmt: skip
    for share in args.shares:
        for n in args.sizes:
            cells = []
            for quiet in (0, 24):
                median, found, early = delays(n + 1, args.drifted, n, BIAS[share], quiet)
                cells += [f"{'not found' if math.isinf(median) else f'{median:.2f}':>12} {found:>17.3f}"]
                cells += [f" {_with_error(early, args.drifted):>14}"] if quiet else []
            say(f"{share:>9.0%} {n:>14,}  " + "  ".join(cells))
    if args.networks:
        counts = network_false_alarms(7, args.networks, 1000, BIAS[0.10])
        say("")
        say(f"{args.networks} networks of CRCENClassifierCV (8 hidden units), 1,000 training rows, 10 % positives:")
        shares = [_with_error(count / args.networks, args.networks) for count in counts]
        say(f"false alarms of KeyEquationMonitor {shares[0]} at nominal .05, {shares[1]} at nominal .01")
    print(f"{time.perf_counter() - began:.0f} s")
    if args.out:
        write_atomic(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

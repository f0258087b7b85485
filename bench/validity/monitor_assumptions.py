"""False alarms of `KeyEquationMonitor` if its assumptions fail: label delays that depend on the class, covariate shift.

    python -m bench.validity.monitor_assumptions [--streams 100] [--networks 40] [--out FILE]

Labels: 60 days of 200 rows with the true posterior as the model and without drift; negatives are known at once,
positives after 1 to 10 days. Shift: five normal features, true log-odds linear in them, 10 % positives, 1,000 training
rows; then 10,000 rows, tested 100 times, whose first two features are shifted by one standard deviation, towards more
positives, while P(y | x) does not change. The overfitted networks have 64 hidden units, almost no penalty and 200
epochs; the others are searched. The reference rows are 1,000 rows that were not used in training.
"""

import argparse
import math
import time
import warnings
from pathlib import Path

import numpy as np

import crcen
from crcen._support.files import write_atomic
from crcen.theory.price import sigmoid

COEF, BIAS = np.array([1.0, -0.8, 0.5, 0.0, 0.3]), -2.874
DAYS, ROWS, LAG = 60, 200, 10
N_TRAIN, LOOKS = 1000, 100


def late_positives(n_streams: int) -> dict[str, int]:
    """Streams with an alarm: fed as labels come, and held back until their day is complete."""
    alarms = {"as labels come": 0, "delay=10": 0}
    for seed in range(n_streams):
        rng = np.random.default_rng(seed)
        p = rng.beta(1, 9, 10000 + DAYS * ROWS)
        y = (rng.random(p.size) < p).astype(int)
        reference = {"y_reference": y[:10000], "q_reference": p[:10000]}
        p, y = p[10000:], y[10000:]
        day = np.repeat(np.arange(DAYS), ROWS)
        known = day + np.where(y == 1, rng.integers(1, LAG + 1, y.size), 0)
        hasty = crcen.KeyEquationMonitor(**reference)
        patient = crcen.KeyEquationMonitor(**reference, delay=LAG)
        for now in range(DAYS):
            rows = known == now
            hasty.update(q=p[rows], y=y[rows])
            patient.update(q=p[rows], y=y[rows], cohort=day[rows], now=now)
        alarms["as labels come"] += bool(hasty.alarms)
        alarms["delay=10"] += bool(patient.alarms)
    return alarms


def draw(rng: np.random.Generator, n: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first two features have moved, with labels by the same P(y | x)."""
    X = rng.standard_normal((n, COEF.size)) + shift * np.array([1.0, -1.0, 0, 0, 0])
    return X, (rng.random(n) < sigmoid(BIAS + X @ COEF)).astype(int)


def overfitted(seed: int) -> crcen.CRCENClassifier:
    """A network that nobody held back."""
    settings = {"hidden": (64,), "l2": 1e-6, "max_epochs": 200, "encoding": "standard", "n_members": 1}
    settings |= {"calibration": "paper"}
    return crcen.CRCENClassifier(**settings, random_state=seed, device="cpu")


def searched(seed: int) -> crcen.CRCENClassifierCV:
    """Penalty and epochs by cross-validation."""
    return crcen.CRCENClassifierCV(hidden=[(8,)], l2=[1e-3, 1e-2, 1e-1], random_state=seed, device="cpu")


MODELS = {"overfitted": overfitted, "searched": searched}


def reference(model: crcen.CRCENClassifier, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Labelled rows that the model was not fitted on, as a monitor takes them."""
    return {"y_reference": y, "q_reference": model.weighted_proba(X)[:, 1]}


def shifted_rows(n_fits: int, kind: str) -> dict[str, int]:
    """Streams with an alarm, by what came and how the monitor was made."""
    counts = dict.fromkeys(["same rows", "shifted", "shifted, tolerance .3", "shifted, reference of such rows"], 0)
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        X, y = draw(rng, N_TRAIN, 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MODELS[kind](seed).fit(X, y)
        own, theirs = (reference(model, *draw(rng, N_TRAIN, shift)) for shift in (0.0, 1.0))
        makers = [(0.0, own, {}), (1.0, own, {}), (1.0, own, {"tolerance": 0.3}), (1.0, theirs, {})]
        streams = {shift: draw(rng, 10 * N_TRAIN, shift) for shift in (0.0, 1.0)}
        for name, (shift, rows, settings) in zip(counts, makers, strict=True):
            monitor = crcen.KeyEquationMonitor(model, **rows, **settings)
            X_new, y_new = streams[shift]
            q = model.weighted_proba(X_new)[:, 1]
            for part in np.array_split(np.arange(len(y_new)), LOOKS):
                monitor.update(q=q[part], y=y_new[part])
            counts[name] += bool(monitor.alarms)
    return counts


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    def share(count: int, n: int) -> str:
        return f"{count / n:.3f} ± {math.sqrt(count * (n - count) / n**3):.3f}"

    began = time.perf_counter()
    say("Share of streams with an alarm at nominal .05 (± Monte-Carlo standard error); P(y | x) stays what it was")
    say("")
    say(f"Positives known 1 to {LAG} days late, {args.streams} streams")
    for name, count in late_positives(args.streams).items():
        say(f"  {name:<34}{share(count, args.streams)}")
    say("")
    say(f"Two features moved by one standard deviation, {args.networks} networks of each kind on {N_TRAIN:,} rows")
    found = {kind: shifted_rows(args.networks, kind) for kind in ("overfitted", "searched")}
    say(f"  {'':<34}{'overfitted':<16}{'searched':<16}")
    for name in found["searched"]:
        cells = "".join(f"{share(found[kind][name], args.networks):<16}" for kind in found)
        say(f"  {name:<34}{cells}".rstrip())
    print(f"{time.perf_counter() - began:.0f} s")
    if args.out:
        write_atomic(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Four classes with a known posterior: what class weights do to probabilities, decisions and the key equations.

    python -m bench.validity.class_simulation [--runs 20] [--out FILE]

Normal classes of one covariance with shares .75, .15, .07 and .03, weights 1, 5, 12 and 40; 3,000 rows to fit on and
20,000 new ones a run. Softmax regression is the right model here, a network of 32 units is not told so.
"""

import argparse
from pathlib import Path

import numpy as np

import crcen
from crcen._support.files import write_atomic
from crcen.theory.key_equation import judge_equations
from crcen.theory.price import Price

SHARES = np.array([0.75, 0.15, 0.07, 0.03])
WEIGHTS = np.array([1.0, 5.0, 12.0, 40.0])
CENTRES = np.random.default_rng(99).normal(0.0, 1.2, (4, 4))
N_FIT, N_NEW = 3_000, 20_000
FACTOR = 1.0 + N_NEW / N_FIT  # by which the error of a fitted model raises the variance on new rows
AT_PRICE = {"calibration": "paper"}
OUT_OF_FOLD = {"calibration": "out_of_fold"}
WAYS = (
    ("unweighted", None, AT_PRICE),
    ("weighted, weights taken out", WEIGHTS, AT_PRICE),
    ("unweighted, solved at the weights out of fold", WEIGHTS, OUT_OF_FOLD),
)


def rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, class numbers and true posterior."""
    y = rng.choice(4, n, p=SHARES)
    X = CENTRES[y] + rng.standard_normal((n, 4))
    logits = -0.5 * ((X[:, None] - CENTRES) ** 2).sum(2) + np.log(SHARES)
    p = np.exp(logits - logits.max(1, keepdims=True))
    return X, y, p / p.sum(1, keepdims=True)


def judged(p: np.ndarray, y: np.ndarray, truth: np.ndarray, factor: float) -> list[float]:
    """Log loss, cost a row of decisions at the weights, and the p-value of the key equations together."""
    chosen = (WEIGHTS * p).argmax(1)
    cost = (truth * WEIGHTS).sum(1) - (truth * WEIGHTS)[np.arange(len(y)), chosen]
    weights = Price(WEIGHTS, np.bincount(y))
    test = judge_equations(y, p, weights, noise=factor)
    return [-np.log(p[np.arange(len(y)), y]).mean(), cost.mean(), test.p_value]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found: dict[tuple[str, str], list[list[float]]] = {}
    for run in range(asked.runs):
        rng = np.random.default_rng(run)
        X, y, _ = rows(rng, N_FIT)
        new, label, truth = rows(rng, N_NEW)
        found.setdefault(("", "true posterior"), []).append(judged(truth, label, truth, 1.0))
        for model, hidden in (("softmax regression", ()), ("network, 32 units", (32,))):
            for way, weighting, how in WAYS:
                fitted = crcen.CRCENClassifier(
                    weighting, hidden=hidden, l2=1e-3, n_members=2, encoding="standard", random_state=run, **how
                ).fit(X, y)
                found.setdefault((model, way), []).append(judged(fitted.predict_proba(new), label, truth, FACTOR))
    lines = [
        f"Mean of {asked.runs} runs, {N_FIT:,} rows to fit on, {N_NEW:,} new ones; weights 1, 5, 12, 40.",
        "Log loss beside that of unweighted training; cost a row of decisions at the weights, by the true posterior;",
        "share of runs in which the key equations at the weights are rejected on new rows at .05.",
        "",
        f"{'':66s} log loss   ratio    cost  rejected",
    ]
    for (model, way), values in found.items():
        loss, cost, _ = np.mean(values, axis=0)
        plain = np.mean(found.get((model, "unweighted"), values), axis=0)[0]
        rejected = np.mean(np.array(values)[:, 2] < 0.05)
        name = f"{model:20s}{way}"
        lines.append(f"{name:66s} {loss:8.4f}  {loss / plain:6.4f}  {cost:6.4f}  {rejected:8.2f}")
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.out:
        write_atomic(asked.out, text.encode())


if __name__ == "__main__":
    main()

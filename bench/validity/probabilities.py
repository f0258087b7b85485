"""Whether probabilities stay right under a weight: log loss and Brier score of weighted networks.

    python -m bench.validity.probabilities [--data-home DIR] [--splits 2] [--sets abalone us_crime]
        [--processes 2]

Every benchmark set at hand, stratified 75/25 splits (of more than 4,000 training rows, 4,000 at random), and Sim1 and
Sim2 with fresh rows, at λ = ½ and at α = ½, 1, 2: `CRCENClassifier` and `CRCENClassifierCV` with their defaults, on the
first split alone, and a single network of 16 units with a weak penalty, which overfits. Scores on the test rows of q as
it comes and of the natural probability by each ``probability=``, as a ratio to the same estimator at λ = ½ with the
plain shift (geometric mean over set-splits). All maps of a model are fitted on the same out-of-fold logits.
"""

from copy import copy
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split

import crcen
from bench.harness import done, in_processes, options
from crcen.datasets.simulated import sim1_posterior, sim2_posterior
from crcen.models.probability import PROBABILITIES, fit_map

WEIGHTS = {"λ = ½": None, "α = ½": crcen.Alpha(0.5), "α = 1": crcen.Alpha(1), "α = 2": crcen.Alpha(2)}
SIMULATED = {"Sim1": (crcen.make_sim1, sim1_posterior), "Sim2": (crcen.make_sim2, sim2_posterior)}
N_POS, N_NEG = 1000, 10000
MOST_ROWS = 4000
UNCORRECTED = "none: q itself"

Scores = dict[tuple[str, str], tuple[float, float]]
Shares = dict[tuple[str, str], float]


def fit_with_every_map(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The fitted model under every map, all of which are fitted on the out-of-fold logits of one training."""
    seen: list[tuple[np.ndarray, ...]] = []

    def recorded(kind: str, *rows: np.ndarray) -> np.ndarray:
        seen.append(rows)
        return fit_map(kind, *rows)

    with patch("crcen.models.fitting.fit_map", recorded):
        model.fit(X, y)
    found = {}
    for kind in PROBABILITIES:
        found[kind] = copy(model)
        found[kind].ensemble_ = model.ensemble_.mapped(fit_map(kind, *seen[-1]))
    return found


SINGLE = "one network of 16 units, l2 = 1e-4"
KINDS = {
    SINGLE: (crcen.CRCENClassifier, {"hidden": (16,), "l2": 1e-4, "n_members": 1, "encoding": "standard"}),
    "CRCENClassifier": (crcen.CRCENClassifier, {}),
    "CRCENClassifierCV": (crcen.CRCENClassifierCV, {}),
}
SIMULATED_TOO = (SINGLE, "CRCENClassifier")  # kinds that are also fitted on simulated rows


def score(y: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Log loss and Brier score."""
    return float(log_loss(y, p)), float(brier_score_loss(y, p))


def evaluate(kind: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> tuple[Scores, Shares]:
    """Scores of every weight and correction, and the share of test rows that each map decides otherwise."""
    scores: Scores = {}
    shares: Shares = {}
    estimator, params = KINDS[kind]
    for name, weighting in WEIGHTS.items():
        calibration = crcen.Calibration(probability="balance", training_weighting="price")
        model = estimator(weighting, calibration=calibration, device="cpu", random_state=0, **params)
        models = fit_with_every_map(model, X, y)
        plain = models["shift"].predict(X_test)
        scores[name, UNCORRECTED] = score(y_test, models["shift"].weighted_proba(X_test)[:, 1])
        for probability, model in models.items():
            p = model.predict_proba(X_test)[:, 1]
            scores[name, probability] = score(y_test, p)
            decided = model.predict(X_test)
            shares[name, probability] = float((decided != plain).mean())
    return scores, shares


def evaluate_split(task: tuple[str, str, str | None, int]) -> tuple[Scores, Shares, float]:
    """`evaluate` on one split of a set; for a simulation also the log loss over that of the true posterior."""
    kind, name, data_home, split = task
    if name in SIMULATED:
        make, posterior = SIMULATED[name]
        train, test = make(N_POS, N_NEG, seed=2 * split), make(N_POS, N_NEG, seed=2 * split + 1)
        scores, shares = evaluate(kind, train.X, train.y, test.X, test.y)
        return scores, shares, scores["λ = ½", "shift"][0] / score(test.y, posterior(test.X, N_NEG / N_POS))[0]
    data = crcen.load_dataset(name, data_home)
    X, X_test, y, y_test = train_test_split(data.X, data.y, stratify=data.y, random_state=split)
    if len(y) > MOST_ROWS:
        X, _, y, _ = train_test_split(X, y, train_size=MOST_ROWS, stratify=y, random_state=split)
    return *evaluate(kind, X, y, X_test, y_test), float("nan")


def print_ratios(title: str, found: list[Scores], column: int) -> None:
    """Ratios to the unweighted network, geometric means."""
    print(f"\n{title}")
    print("| trained at | " + " | ".join((UNCORRECTED, *PROBABILITIES)) + " |")
    print("|---" * (len(PROBABILITIES) + 2) + "|")
    for name in WEIGHTS:
        cells = []
        for correction in (UNCORRECTED, *PROBABILITIES):
            ratios = [one[name, correction][column] / one["λ = ½", "shift"][column] for one in found]
            cells.append(f"{np.exp(np.mean(np.log(ratios))):.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def print_shares(title: str, found: list[Shares]) -> None:
    """Percentages of rows that the map decides otherwise."""
    print(f"\n{title}")
    print("| trained at | " + " | ".join(PROBABILITIES) + " |")
    print("|---" * (len(PROBABILITIES) + 1) + "|")
    for name in WEIGHTS:
        means = [100 * np.mean([one[name, p] for one in found]) for p in PROBABILITIES]
        print(f"| {name} | " + " | ".join(f"{share:.2f}" for share in means) + " |")


def named(task: tuple[str, str, str | None, int]) -> tuple[tuple[str, str, str | None, int], Any]:
    """A task with its result."""
    return task, evaluate_split(task)


def main() -> None:
    """Run and print."""
    args = options(__doc__, data_home=True, splits=2, sets=[""], processes=2).parse_args()
    known = [row.name for row in crcen.list_datasets(args.data_home) if row.available != "download"]
    names = known if args.sets == [""] else args.sets
    # The longest first.
    tasks = [(kind, name, args.data_home, 0) for kind in ("CRCENClassifierCV", "CRCENClassifier") for name in names]
    tasks += [(kind, name, None, split) for kind in SIMULATED_TOO for name in SIMULATED for split in range(args.splits)]
    tasks += [(SINGLE, name, args.data_home, split) for name in names for split in range(args.splits)]
    found: dict[tuple[str, bool], list[Any]] = {}
    for (kind, name, *_), result in sorted(in_processes(named, tasks, args.processes), key=lambda one: str(one[0])):
        found.setdefault((kind, name in SIMULATED), []).append((name, *result))
    for kind in SIMULATED_TOO:
        rows = found[kind, True]
        truth = [f"{name} {np.mean([row[3] for row in rows if row[0] == name]):.3f}" for name in SIMULATED]
        title = f"Sim1 and Sim2, {N_POS} and {N_NEG} rows, {kind}, log loss"
        print_ratios(f"{title} (λ = ½ against the true posterior: {', '.join(truth)})", [row[1] for row in rows], 0)
    for kind in KINDS if names else ():
        rows = found[kind, False]
        title = f"{len(names)} sets, {len(rows) // len(names)} splits, {kind}"
        print_ratios(f"{title}, log loss", [row[1] for row in rows], 0)
        print_ratios(f"{title}, Brier score", [row[1] for row in rows], 1)
        print_shares(f"{title}, test rows decided otherwise than with the shift, in %", [row[2] for row in rows])
    done()


if __name__ == "__main__":
    main()

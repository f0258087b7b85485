"""Accuracy of probabilities after weighted training: log loss and Brier score of weighted networks.

    python -m bench.validity.probabilities [--data-home DIR] [--splits 2] [--sets abalone us_crime]
        [--processes 2]
    python -m bench.validity.probabilities --simulate 4 [--runs 20] [--out FILE]

Every available benchmark set, with stratified 75/25 splits (of more than 4,000 training rows, 4,000 at random), and
Sim1 and Sim2 with new rows, at λ = ½ and at α = ½, 1, 2. The models are `CRCENClassifier` and `CRCENClassifierCV` with
their defaults, on the first split only, and a single network with 16 units and a weak penalty, which overfits. q and
the natural probability by each ``probability=`` are scored on the test rows, as a ratio to the same estimator at λ = ½
with the shift only (geometric mean over set-splits). All maps of a model are fitted on the same out-of-fold logits.

--simulate K uses the first K of four normal classes with one covariance, whose posterior is known, with shares .75,
.15, .07 and .03 and weights 1, 5, 12 and 40; each run has 3,000 training rows and 20,000 new rows. Probabilities,
decisions and the key equations are scored. Softmax regression has the right form here; a network with 32 units must
learn it.
"""

from copy import copy
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import softmax
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split

import crcen
from bench.harness import Printer, done, in_processes, options
from crcen.datasets.simulated import sim1_posterior, sim2_posterior
from crcen.models.ensemble import PROBABILITIES, fit_map
from crcen.theory.key_equation import judge_equations
from crcen.theory.price import Price

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


# -- K classes with a known posterior ----------------------------------------------------------------------------------

CLASS_SHARES = np.array([0.75, 0.15, 0.07, 0.03])
CLASS_WEIGHTS = np.array([1.0, 5.0, 12.0, 40.0])
CENTRES = np.random.default_rng(99).normal(0.0, 1.2, (4, 4))
N_FIT, N_NEW = 3_000, 20_000
FACTOR = 1.0 + N_NEW / N_FIT  # by which the error of a fitted model raises the variance on new rows


def rows_of_classes(rng: np.random.Generator, n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, class numbers and true posterior."""
    shares, centres = CLASS_SHARES[:n_classes] / CLASS_SHARES[:n_classes].sum(), CENTRES[:n_classes]
    y = rng.choice(n_classes, n, p=shares)
    X = centres[y] + rng.standard_normal((n, 4))
    return X, y, softmax(-0.5 * ((X[:, None] - centres) ** 2).sum(2) + np.log(shares), axis=1)


def judged(p: np.ndarray, y: np.ndarray, truth: np.ndarray, factor: float) -> list[float]:
    """Log loss, cost a row of decisions at the weights, and the p-value of the key equations together."""
    weights = CLASS_WEIGHTS[: p.shape[1]]
    chosen = (weights * p).argmax(1)
    cost = (truth * weights).sum(1) - (truth * weights)[np.arange(len(y)), chosen]
    test = judge_equations(y, p, Price(weights, np.bincount(y)), noise=factor)
    return [-np.log(p[np.arange(len(y)), y]).mean(), cost.mean(), test.p_value]


def simulate(n_classes: int, runs: int, say: Printer) -> None:
    """Fit and judge models of so many classes, and print."""
    weights = CLASS_WEIGHTS[:n_classes]
    ways = (
        ("unweighted", None, "paper"),
        ("weighted, weights taken out", weights, "paper"),
        ("unweighted, solved at the weights out of fold", weights, "out_of_fold"),
    )
    found: dict[tuple[str, str], list[list[float]]] = {}
    for run in range(runs):
        rng = np.random.default_rng(run)
        X, y, _ = rows_of_classes(rng, N_FIT, n_classes)
        new, label, truth = rows_of_classes(rng, N_NEW, n_classes)
        found.setdefault(("", "true posterior"), []).append(judged(truth, label, truth, 1.0))
        for model, hidden in (("softmax regression", ()), ("network, 32 units", (32,))):
            for way, weighting, calibration in ways:
                how = {"hidden": hidden, "l2": 1e-3, "n_members": 2, "encoding": "standard", "random_state": run}
                fitted = crcen.CRCENClassifier(weighting, calibration=calibration, **how).fit(X, y)
                found.setdefault((model, way), []).append(judged(fitted.predict_proba(new), label, truth, FACTOR))
    listed = ", ".join(f"{weight:g}" for weight in weights)
    say(
        f"Mean of {runs} runs, {N_FIT:,} rows to fit on, {N_NEW:,} new ones; weights {listed}.",
        "Log loss beside that of unweighted training; cost a row of decisions at the weights, by the true posterior;",
        "share of runs in which the key equations at the weights are rejected on new rows at .05.",
        "",
        f"{'':66s} log loss   ratio    cost  rejected",
    )
    for (model, way), values in found.items():
        loss, cost, _ = np.mean(values, axis=0)
        plain = np.mean(found.get((model, "unweighted"), values), axis=0)[0]
        rejected = np.mean(np.array(values)[:, 2] < 0.05)
        name = f"{model:20s}{way}"
        say(f"{name:66s} {loss:8.4f}  {loss / plain:6.4f}  {cost:6.4f}  {rejected:8.2f}")


def named(task: tuple[str, str, str | None, int]) -> tuple[tuple[str, str, str | None, int], Any]:
    """A task with its result."""
    return task, evaluate_split(task)


def main() -> None:
    """Run and print."""
    args = options(__doc__, data_home=True, splits=2, sets=[""], processes=2, simulate=0, runs=20).parse_args()
    if args.simulate:
        simulate(args.simulate, args.runs, Printer(args.out))
        return
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

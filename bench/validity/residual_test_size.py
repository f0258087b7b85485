"""How often the tests of the key equations reject a fitted model on new rows of the same kind.

    python -m bench.validity.residual_test_size [--classes 2] [--quick] [--seconds 420] [--processes 12]
        [--rows size.jsonl]
    python -m bench.validity.residual_test_size --classes 3 4 --rows size_of_classes.jsonl

Five normal features, true log-odds linear in them; 3 or 10 % positives, or three or four classes of which the rarest
has 5 or 4 % of rows. Every fitted model is tested on 50 samples of new rows (20 for several classes), ⅓, 1 and 5 times
as many as its training rows: the key equation of two classes, or the K − 1 key equations together and all pairs of
classes. The variants differ in how they include the model uncertainty: not at all; by 1 + n_new/n_train; by 1 + 2 ·
n_new/n_train, which an evaluation uses for models without an estimate; and by the estimate of `crcen.training_error`
with 6 refits, as `crcen fit` saves it. A sample with fewer than 20 positives gives "too few", which is no rejection;
cells in which most samples do so are left out. Intervals are over fits. The last columns for two classes are the true
error of the model in mean log-odds over fits: its mean (a bias, for which no test should correct), its standard
deviation, and the root mean square of its estimates.

Cells are fitted in turn, small ones more often, until each has 200 fits (100 for several classes) or the time is over.
An interrupted run resumes from its rows. --quick uses 1,000 training rows and 12 (8) fits.
"""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import crcen
from bench.harness import columns, draw_classes, logistic_rows, options, rows_of
from crcen.theory.key_equation import judge_equations
from crcen.theory.price import Price
from crcen.theory.residual_test import joint_residual_sums

RATIOS, LEVELS, SHARES = (1 / 3, 1.0, 5.0), (0.05, 0.01, 0.001), (0.10, 0.03)
# Intercepts for shares of about .80 .15 .05 and .70 .17 .09 .04.
COEF = np.random.default_rng(7).normal(0.0, 0.6, (5, 4))
BIAS = {3: np.array([2.9, 1.0, -0.3]), 4: np.array([2.9, 1.3, 0.6, -0.5])}
WAYS = ("no allowance", "1 + new/train", "1 + 2 new/train", "measured")
SHOWN_OF_CLASSES = [0, 2, 3]  # ways
DRAWS = {True: 50, False: 20}  # of two classes, and of more
# A fit of how many is of this size, or of this model.
EVERY = {1000: 1, 3000: 2, 10000: 6, "LightGBM": 1, "trees": 1, "networks": 1, "committee": 3}
JUDGED_ON = 20_000  # rows on which the true error of a model is found


def made(name: str, seed: int) -> Any:
    """An unfitted model; LightGBM by scikit-learn's histogram boosting where it is not installed."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if name == "networks":
        return crcen.CRCENClassifierCV(hidden=[(16,)], l2=[1e-3, 1e-2, 1e-1], n_members=2, random_state=seed)
    if name == "committee":
        return crcen.CommitteeClassifier(n_jobs=1, random_state=seed, device="cpu")
    if name == "trees":
        return HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=7, learning_rate=0.1, random_state=seed)
    try:
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=60, num_leaves=7, verbose=-1, n_jobs=1, random_state=seed)
    except ImportError:
        return HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=7, random_state=seed)


def draw(rng: np.random.Generator, n: int, kind: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and true probabilities; of several classes every one is there three times at least."""
    if kind in SHARES:
        return logistic_rows(rng, n, kind)
    while True:
        X = rng.standard_normal((n, 5))
        p = softmax(BIAS[int(kind)] + X @ COEF[:, : int(kind)], axis=1)
        y = draw_classes(rng, p)
        if np.bincount(y, minlength=int(kind)).min() >= 3:
            return X, y, p


def true_error(rng: np.random.Generator, model: Any, trained: Price, share: float) -> float:
    """A model's error in mean log-odds, at the price that it was trained at, by true probabilities of new rows."""
    X, _, p = draw(rng, JUDGED_ON, share)
    q, lam = trained.weighted(model.predict_proba(X)[:, 1]), trained.lam
    slope = joint_residual_sums(np.ones(JUDGED_ON, np.int64), columns(q), trained).of_class(1).slope
    return float(np.sum(lam * p * (1 - q) - (1 - lam) * (1 - p) * q)) / slope


def one_fit(task: tuple[str, int, float, int]) -> dict[str, Any]:
    """One fitted model of a kind (a share of positives, or a number of classes), and shares of draws rejected.

    These are [ratio][way][level] for two classes and [ratio][way][equations, pairs] for more.
    """
    name, n, kind, seed = task
    is_binary, n_draws = kind in SHARES, DRAWS[kind in SHARES]
    rng = np.random.default_rng([seed, n, round(100 * kind) if is_binary else int(kind)])
    X, y, _ = draw(rng, n, kind)
    model = made(name, seed).fit(X, y)
    error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
    counts = np.bincount(y).astype(float)
    equal = Price.binary(0.5, counts[1], counts[0]) if is_binary else Price(np.ones(len(counts)), counts)
    trained = getattr(model, "weighting_", None) or equal
    row = {"model": name, "n": n, "kind": kind, "seed": seed}
    if is_binary:
        row |= {"true": true_error(rng, model, trained, kind), "measured": error.size}
    rejected = np.zeros((len(RATIOS), len(WAYS), 3 if is_binary else 2))
    tested = np.zeros(len(RATIOS))
    for (place, ratio), _ in product(enumerate(RATIOS), range(n_draws)):
        X_new, y_new, _ = draw(rng, round(ratio * n), kind)
        p = model.predict_proba(X_new)
        for way, how in enumerate(({"noise": 1.0}, {"noise": 1.0 + ratio}, {}, {"error": error})):
            judged = judge_equations(y_new, p, trained, **how)
            p_value = judged.equations.p_value
            below = [p_value < level for level in LEVELS]
            rejected[place, way] += below if is_binary else (below[0], judged.pairs.p_value < LEVELS[0])
        tested[place] += not np.isnan(p_value)
    return row | {"rejected": (rejected / n_draws).tolist(), "tested": (tested / n_draws).tolist()}


# -- tables ------------------------------------------------------------------------------------------------------------


def cells(means: np.ndarray, errors: np.ndarray, is_binary: bool) -> str:
    """Shares rejected at the first level, each with its error; of two classes those of the last way at other levels."""
    shown = (part[:, 0] if is_binary else part[SHOWN_OF_CLASSES].T.ravel() for part in (means, errors))
    text = "".join(f"{f'{mean:.3f} ± {error:.3f}':>17}" for mean, error in zip(*shown, strict=True))
    return text + (f"{means[-1, 1]:>7.3f}{means[-1, 2]:>7.3f}" if is_binary else "")


def table(rows: list[dict[str, Any]], kinds: tuple[float, ...], sizes: tuple[int, ...]) -> str:
    """One line for each model, size, kind (share of positives or number of classes) and ratio; then all of a model."""
    is_binary = kinds == SHARES
    title = (
        f"Share of draws of new rows on which the test{'' if is_binary else 's'} reject{'s' if is_binary else ''} at "
    )
    lines = [f"{title}{LEVELS[0]} (± standard error over fits)"]
    if is_binary:
        lines[0] += f"; at {LEVELS[1]} and {LEVELS[2]} for what was measured"
        ways = "".join(f"{way:>17}" for way in WAYS) + f"{'.01':>7}{'.001':>7}{'mean':>8}{'sd':>7}{'meas.':>7}"
    else:
        lines.append(f"{'':<10}{'':>7}{'':>8}{'':>10}{'':>5}{'key equations':^51}{'pairs of classes':^51}")
        ways = "".join(f"{WAYS[way]:>17}" for way in SHOWN_OF_CLASSES * 2)
    name, width = ("pos", 5) if is_binary else ("classes", 8)
    lines.append(f"{'model':<10}{'rows':>7}{name:>{width}}{'new/train':>10}{'fits':>5}{ways}")
    for name in dict.fromkeys(row["model"] for row in rows):
        pooled: list[np.ndarray] = []
        for n, kind in product(sizes, kinds):
            own = [row for row in rows if (row["model"], row["n"], row["kind"]) == (name, n, kind)]
            true, measured = (np.array([row.get(field, 0.0) for row in own]) for field in ("true", "measured"))
            for place, ratio in enumerate(RATIOS):
                if len(own) < 2 or np.mean([row["tested"][place] for row in own]) < 0.5:
                    continue
                known = np.array([row["rejected"][place] for row in own])
                pooled.append(known)
                shown = cells(known.mean(axis=0), known.std(axis=0, ddof=1) / math.sqrt(len(known)), is_binary)
                if is_binary:
                    shown += f"{true.mean():>+8.3f}{true.std(ddof=1):>7.3f}{math.sqrt(np.mean(measured**2)):>7.3f}"
                kind_shown = f"{kind:>5.0%}" if is_binary else f"{kind:>8}"
                lines.append(f"{name:<10}{n:>7,}{kind_shown}{ratio:>10.2f}{len(known):>5}{shown}")
        if pooled:
            # Every cell counts alike, however many fits there was time for.
            means = np.mean([known.mean(axis=0) for known in pooled], axis=0)
            variances = np.sum([known.var(axis=0, ddof=1) / len(known) for known in pooled], axis=0)
            shown = cells(means, np.sqrt(variances) / len(pooled), is_binary)
            lines.append(f"{name:<10}{'all':>7}{'':>{width}}{'':>10}{sum(map(len, pooled)):>5}{shown}")
    return "\n".join(lines)


def main() -> None:
    """Measure until the time is over, print."""
    defaults = {"classes": [2], "models": [""], "fits": 0, "seconds": math.inf, "processes": 2}
    parser = options(__doc__, **defaults, rows="residual_test_size.jsonl")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    is_binary = args.classes == [2]
    kinds = SHARES if is_binary else tuple(args.classes)
    sizes = (1000, 3000, 10000) if is_binary else (1000, 3000)
    models = ("LightGBM" if is_binary else "trees", "networks", "committee")
    fits = (12 if is_binary else 8) if args.quick else args.fits or (200 if is_binary else 100)
    # Every cell's fits, so mixed that a run that is cut has some of each.
    tasks = product(
        models if args.models == [""] else args.models, sizes[: 1 if args.quick else None], kinds, range(fits)
    )
    in_turn = sorted(tasks, key=lambda task: (task[3] * EVERY[task[0]] * EVERY[task[1]], task))

    key = ("model", "n", "kind", "seed")
    work = (one_fit, in_turn, lambda row: tuple(row[name] for name in key), Path(args.rows))
    rows = rows_of(*work, args.processes, args.seconds)
    text = table(rows, kinds, sizes)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

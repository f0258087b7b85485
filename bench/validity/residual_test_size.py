"""How often the tests of the key equations reject a fitted model on new rows of the same kind.

    python -m bench.validity.residual_test_size [--classes 2] [--quick] [--seconds 420] [--processes 12]
        [--rows size.jsonl]
    python -m bench.validity.residual_test_size --classes 3 4 --rows size_of_classes.jsonl

Five normal features, true log-odds linear in them; 3 or 10 % positives, or three or four classes of which the rarest
has 5 or 4 % of rows. Every fitted model is tested on 50 draws of new rows (20 of several classes), ⅓, 1 and 5 times as
many as it was trained on: the residual test of two classes, the K − 1 key equations together and all pairs of classes
of more. What varies is how the model's own error is allowed for: not at all; by 1 + n_new/n_train; by
1 + 2 · n_new/n_train, which an evaluation takes for models that were not measured; and as `crcen.training_error`
measures it with 6 refits, as `crcen fit` keeps it in the file. A draw with fewer than 20 positives is answered "too
few", which is no rejection; cells where most draws are so are left out. Intervals are over fits. The last columns for
two classes are the model's true error in mean log-odds over fits: its mean, which is a model that is wrong and no test
should allow for, its standard deviation, and what was measured of that, as a root mean square.

Fits are drawn cell by cell in turn, the small ones more often, until there are 200 a cell (100 of several classes) or
the time is over; a run that was cut goes on from its rows. --quick has 1,000 training rows and 12 (8) fits.
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
from crcen.theory.price import Price, resolve
from crcen.theory.residual_test import FEWEST_TO_TEST, ResidualSums, TrainingError, joint_residual_sums, two_sided

RATIOS, LEVELS, SHARES = (1 / 3, 1.0, 5.0), (0.05, 0.01, 0.001), (0.10, 0.03)
# Intercepts for shares of about .80 .15 .05 and .70 .17 .09 .04.
COEF = np.random.default_rng(7).normal(0.0, 0.6, (5, 4))
BIAS = {3: np.array([2.9, 1.0, -0.3]), 4: np.array([2.9, 1.3, 0.6, -0.5])}
WAYS = ("no allowance", "1 + new/train", "1 + 2 new/train", "measured")
WAYS_OF_CLASSES = (WAYS[0], *WAYS[2:])
DRAWS, DRAWS_OF_CLASSES = 50, 20
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


# -- two classes -------------------------------------------------------------------------------------------------------


def residual_sums(y: np.ndarray, q: np.ndarray, weighting: object) -> ResidualSums:
    """Sums of the residual test of the positive class."""
    return joint_residual_sums(y.astype(np.int64), columns(q), resolve(weighting, 1, 1)).of_class(1)


def fit_of_two(name: str, n: int, share: float, seed: int) -> dict[str, Any]:
    """One fitted model: its true error, what refits say of it, and Z, slope and positives of every draw of new rows."""
    rng = np.random.default_rng([seed, n, round(100 * share)])
    X, y, _ = logistic_rows(rng, n, share)
    model = made(name, seed).fit(X, y)
    weighting = crcen.CostRatio(model.weighting_.cost_ratio) if hasattr(model, "weighting_") else None
    answer = model.weighted_proba if hasattr(model, "weighted_proba") else model.predict_proba
    error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
    X_new, _, p_new = logistic_rows(rng, JUDGED_ON, share)
    q = answer(X_new)[:, 1]
    lam = 0.5 if weighting is None else resolve(weighting, 1, 1).lam
    slope = residual_sums(np.ones(JUDGED_ON), q, weighting).slope
    true = float(np.sum(lam * p_new * (1 - q) - (1 - lam) * (1 - p_new) * q)) / slope
    draws: list[list[list[float]]] = [[] for _ in RATIOS]
    for (place, ratio), _ in product(enumerate(RATIOS), range(DRAWS)):
        X_new, y_new, _ = logistic_rows(rng, round(ratio * n), share)
        sums = residual_sums(y_new, answer(X_new)[:, 1], weighting)
        draws[place].append([round(sums.z, 4), round(sums.slope / math.sqrt(sums.variance), 4), sums.n_pos])
    found = {"log_odds": error.log_odds, "degrees": error.degrees, "least": error.least}
    return {"model": name, "n": n, "share": share, "seed": seed, "true": true, "error": found, "draws": draws}


def rejected_of_two(row: dict[str, Any], place: int) -> tuple[list[list[float]], float]:
    """Shares of all draws rejected, [way][level], and of draws with enough positives: too few is no rejection."""
    error, ratio = TrainingError(**row["error"]), RATIOS[place]
    p_values = [
        [
            *(two_sided(z / math.sqrt(1 + kappa * ratio)) for kappa in (0, 1, 2)),
            error.test(max(z, 0.0), max(-z, 0.0), 1.0, slope, n_pos)[1],
        ]
        for z, slope, n_pos in row["draws"][place]
        if n_pos >= FEWEST_TO_TEST
    ]
    ways = np.array(p_values).reshape(-1, len(WAYS))
    return [[float((way < level).sum()) / DRAWS for level in LEVELS] for way in ways.T], len(ways) / DRAWS


# -- more classes ------------------------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels; every class is there three times at least."""
    while True:
        X = rng.standard_normal((n, 5))
        y = draw_classes(rng, softmax(BIAS[n_classes] + X @ COEF[:, :n_classes], axis=1))
        if np.bincount(y, minlength=n_classes).min() >= 3:
            return X, y


def fit_of_classes(name: str, n: int, n_classes: int, seed: int) -> dict[str, Any]:
    """One fitted model: rejections [ratio][way][equations, pairs] of all draws."""
    rng = np.random.default_rng([seed, n, n_classes])
    X, y = draw(rng, n, n_classes)
    model = made(name, seed).fit(X, y)
    error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
    counts = np.bincount(y, minlength=n_classes).astype(float)
    trained = getattr(model, "weighting_", None) or Price(np.ones(n_classes), counts)
    found = np.zeros((len(RATIOS), len(WAYS_OF_CLASSES), 2))
    for (place, ratio), _ in product(enumerate(RATIOS), range(DRAWS_OF_CLASSES)):
        X_new, y_new = draw(rng, round(ratio * n), n_classes)
        p = model.predict_proba(X_new)
        for way, how in enumerate(({"noise": 1.0}, {}, {"error": error})):
            judged = judge_equations(y_new, p, trained, range(n_classes), **how)
            found[place, way] += [value < LEVELS[0] for value in (judged.equations.p_value, judged.pairs.p_value)]
    rejected = (found / DRAWS_OF_CLASSES).tolist()
    return {"model": name, "n": n, "classes": n_classes, "seed": seed, "rejected": rejected}


# -- tables ------------------------------------------------------------------------------------------------------------


def one_fit(task: tuple[str, int, float, int]) -> dict[str, Any]:
    """One fitted model of two classes with a share of positives, or of a number of classes."""
    return fit_of_two(*task) if task[2] < 1 else fit_of_classes(*task)


def cells(means: np.ndarray, errors: np.ndarray, is_binary: bool) -> str:
    """Shares rejected at the first level, each with its error; of two classes those of the last way at other levels."""
    shown = (means[:, 0], errors[:, 0]) if is_binary else (means.T.ravel(), errors.T.ravel())
    text = "".join(f"{f'{mean:.3f} ± {error:.3f}':>17}" for mean, error in zip(*shown, strict=True))
    return text + (f"{means[-1, 1]:>7.3f}{means[-1, 2]:>7.3f}" if is_binary else "")


def true_errors(own: list[dict[str, Any]]) -> str:
    """The last columns for two classes."""
    true = np.array([row["true"] for row in own])
    measured = np.array([TrainingError(**row["error"]).size for row in own])
    return f"{true.mean():>+8.3f}{true.std(ddof=1):>7.3f}{math.sqrt(np.mean(measured**2)):>7.3f}"


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
        ways = "".join(f"{way:>17}" for way in WAYS_OF_CLASSES * 2)
    name, width = ("pos", 5) if is_binary else ("classes", 8)
    lines.append(f"{'model':<10}{'rows':>7}{name:>{width}}{'new/train':>10}{'fits':>5}{ways}")
    for name in dict.fromkeys(row["model"] for row in rows):
        pooled: list[np.ndarray] = []
        for n, kind in product(sizes, kinds):
            key = (name, n, kind)
            own = [row for row in rows if (row["model"], row["n"], row.get("share", row.get("classes"))) == key]
            for place, ratio in enumerate(RATIOS):
                found = [rejected_of_two(row, place) if is_binary else (row["rejected"][place], 1.0) for row in own]
                if len(own) < 2 or np.mean([tested for _, tested in found]) < 0.5:
                    continue
                known = np.array([shares for shares, _ in found])
                pooled.append(known)
                shown = cells(known.mean(axis=0), known.std(axis=0, ddof=1) / math.sqrt(len(known)), is_binary)
                shown += true_errors(own) if is_binary else ""
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

    def task_of(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["model"], row["n"], row.get("share", row.get("classes")), row["seed"]

    rows = rows_of(one_fit, in_turn, task_of, Path(args.rows), args.processes, args.seconds)
    text = table(rows, kinds, sizes)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

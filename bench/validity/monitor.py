"""False alarms and delays of `KeyEquationMonitor` for K ≥ 2 classes, on simulated streams with a known posterior.

    python -m bench.validity.monitor [--classes 2 3 4 8] [--streams 2000] [--drifted 500] [--networks 100]
        [--models fitted posterior] [--processes 2] [--out FILE]

Normal features in four dimensions around a centre for each class, so that the posterior is known and softmax regression
is of the right form. A model is the posterior itself, or a softmax regression at the class weights without penalty,
its output biases then solved on the logits of four folds as `CRCENClassifierCV` does; every stream has a model of its
own, and as many reference rows as training rows.

False alarms: streams without drift, ten times as long as the training rows, tested 50 times. Delays: the log-odds of
the rarest class rise from the first row, or after 25 tests without drift. "repeated test" is the test of the key
equations at every update, "no model error" a mixture over normal residuals that assumes that the model is true. The
last part repeats the false alarms with networks of `CRCENClassifierCV` and `KeyEquationMonitor` itself.
"""

import math
from itertools import product

import numpy as np
from scipy.special import chdtrc, softmax

import crcen
from bench.harness import Printer, Replicates, normal_classes, options, share
from crcen.decisions.drift import DriftTest, Tally
from crcen.theory.balance import class_shifts
from crcen.theory.price import Price
from crcen.theory.sequential import StreamSums, stream_sums

Array = np.ndarray
# Class shares, class weights and training rows.
SETTINGS = (
    ((0.9, 0.1), (1, 9), 1000),
    ((0.9, 0.1), (1, 9), 5000),
    ((0.98, 0.02), (1, 49), 1000),
    ((0.98, 0.02), (1, 49), 5000),
    ((0.988, 0.01, 0.002), (1, 1, 1), 10000),
    ((0.988, 0.01, 0.002), (1, 10, 40), 10000),
    ((0.75, 0.15, 0.07, 0.03), (1, 1, 1, 1), 3000),
    ((0.75, 0.15, 0.07, 0.03), (1, 5, 12, 40), 3000),
    ((0.55, 0.15, 0.1, 0.06, 0.05, 0.03, 0.03, 0.03), (1, 2, 3, 5, 8, 12, 20, 40), 3000),
)
LOOKS, QUIET, SCALE, FOLDS = 50, 25, 0.3, 4
RATES = (0.05, 0.01)
MODELS = ("fitted", "posterior")
DRIFT = {2: 0.3}
DRIFT_OF_MORE = 0.5


def softmax_regression(X: Array, y: Array, w: Array, start: Array) -> Array:
    """Weights of a softmax regression, (5, K), by Newton's method; a small l2 keeps them finite."""
    design, n_classes = np.column_stack([np.ones(len(X)), X]), len(w)
    mass, beta = w[y] / w[y].sum(), start.copy()
    own, ridge = np.eye(n_classes)[y], 1e-5
    for _ in range(100):
        q = softmax(design @ beta, axis=1)
        gradient = design.T @ (mass[:, None] * (own - q)) - ridge * beta
        hessian = np.zeros((n_classes, 5, n_classes, 5))
        for k in range(n_classes):
            for other in range(k, n_classes):
                block = design.T @ ((mass * q[:, k] * ((k == other) - q[:, other]))[:, None] * design)
                hessian[k, :, other], hessian[other, :, k] = block, block
        curvature = hessian.reshape(beta.size, -1) + ridge * np.eye(beta.size)
        step = np.linalg.solve(curvature, gradient.T.ravel()).reshape(n_classes, 5).T
        beta = beta + step * min(1.0, 2.0 / np.abs(step).max())
        if np.abs(step).max() < 1e-5:
            return beta
    raise RuntimeError("Newton's method did not converge")


def fitted(rng: np.random.Generator, shares: Array, w: Array, n: int) -> tuple[Array, Array, Array]:
    """Coefficients, solved on the out-of-fold logits of four folds, those logits and their labels."""
    while True:
        X, y, _ = normal_classes(rng, n, shares)
        if np.bincount(y, minlength=len(w)).min() >= 2 * FOLDS:
            break
    beta = softmax_regression(X, y, w, np.zeros((5, len(w))))
    logits, fold = np.empty((n, len(w))), np.empty(n, dtype=int)
    for k in range(len(w)):  # stratified folds: each class is dealt out in turn
        fold[y == k] = np.arange((y == k).sum()) % FOLDS
    for one in range(FOLDS):
        own = softmax_regression(X[fold != one], y[fold != one], w, beta)
        logits[fold == one] = own[0] + X[fold == one] @ own[1:]
    shift = class_shifts(y, logits, w, None)
    beta[0] += shift
    return beta, logits + shift, y


def trusting(sums: StreamSums, spread: float) -> tuple[float, float]:
    """P-value of all residuals, and the log mixture of drifts, both with the model taken for the truth."""
    weights = sums.slope[1:, 1:] @ np.linalg.pinv(spread * sums.variance[1:, 1:], hermitian=True)
    score, information = weights @ sums.residuals[1:], weights @ sums.slope[1:, 1:]
    p_value = chdtrc(len(score), score @ np.linalg.pinv(information, hermitian=True) @ score)
    width = np.eye(len(score)) + SCALE**2 * information
    gain = score @ np.linalg.solve(width, score)
    return float(p_value), 0.5 * SCALE**2 * gain - 0.5 * np.linalg.slogdet(width)[1]


def stream(
    rng: np.random.Generator, setting: tuple[tuple[float, ...], tuple[float, ...], int], is_fitted: bool,
    drift: float, quiet: int,
) -> list[float]:  # fmt: skip
    """Looks until an alarm at each rate (NaN: none) of each test; then what the monitor states at its alarm.

    That is the drift, whether its interval covers, and whether the class is right.
    """
    shares, w, n = np.array(setting[0]), np.array(setting[1], dtype=float), setting[2]
    price, n_classes = Price(w, np.ones(len(w))), len(w)
    if is_fitted:
        beta, logits, y = fitted(rng, shares, w, n)
    else:
        _, y, logits = normal_classes(rng, n, shares)
        logits = logits + np.log(w)
    reference = stream_sums(y, softmax(logits, axis=1), price)
    spread = reference.dispersion
    test = DriftTest(Tally.of(reference, spread), SCALE, 0.0)
    alarms, stated, total = np.full((len(RATES), 3), math.nan), [math.nan] * 3, StreamSums.none(n_classes)
    moved = np.zeros(n_classes)
    for look in range(1, LOOKS + 1 + (quiet if drift else 0)):
        moved[-1] = drift if look > quiet else 0.0
        X, y, logits = normal_classes(rng, n * 10 // LOOKS, shares, moved)
        outputs = beta[0] + X @ beta[1:] if is_fitted else logits + np.log(w)
        sums = stream_sums(y, softmax(outputs, axis=1), price)
        total = total + sums
        test.add(Tally.of(sums, spread), look)
        (p_value, mixed), known = trusting(total, spread), test.log_evidence()
        for place, rate in enumerate(RATES):
            bar = -math.log(rate)
            if not place and known >= bar and math.isnan(alarms[0, 2]):
                change = test.change()
                stated = [
                    change.drift,
                    change.low <= drift <= change.high,
                    n_classes == 2 or change.test == n_classes - 1,
                ]
            hits = np.array([p_value < rate, mixed >= bar, known >= bar])
            alarms[place] = np.where(np.isnan(alarms[place]) & hits, look, alarms[place])
        if drift and not np.isnan(alarms[0, 2]):
            break
    return [*alarms.ravel(), *stated]


def network(rng: np.random.Generator, setting: tuple[tuple[float, ...], tuple[float, ...], int]) -> list[bool]:
    """Whether `KeyEquationMonitor` over a network of `CRCENClassifierCV` alarms at each rate."""
    shares, n = np.array(setting[0]), setting[2]
    X, y, _ = normal_classes(rng, 11 * n, shares)
    model = crcen.CRCENClassifierCV(hidden=[(8,)], l2=[1e-3, 1e-2], random_state=int(rng.integers(2**31)), device="cpu")
    model.fit(X[:n], y[:n])
    q = model.weighted_proba(X[n:])
    q = q[:, 1] if len(shares) == 2 else q
    monitors = [crcen.KeyEquationMonitor(model, y_reference=y[:n], false_alarm_rate=rate) for rate in RATES]
    for rows in np.array_split(np.arange(10 * n), LOOKS):
        for monitor in monitors:
            monitor.update(q=q[rows], y=y[n:][rows])
    return [bool(monitor.alarms) for monitor in monitors]


def title(setting: tuple[tuple[float, ...], tuple[float, ...], int], is_fitted: bool) -> str:
    """Classes, share of the rarest, weights, training rows and model."""
    shares, w, n = setting
    weights = f"1 to {w[-1]:g}" if w[-1] > 1 else "equal"
    return f"{len(w):>7} {shares[-1]:>7.1%} {weights:>8} {n:>7,} {MODELS[not is_fitted]:>10}"


def middle(looks: Array, n: int) -> str:
    """Median rows to an alarm."""
    found = float(np.median(np.where(np.isnan(looks), np.inf, looks)))
    return f"{n * 10 // LOOKS * found:,.0f}" if math.isfinite(found) else "not found"


def main() -> None:
    """Measure, print, save."""
    defaults = {"streams": 2000, "drifted": 500, "networks": 100, "classes": [2, 3, 4, 8]}
    args = options(__doc__, **defaults, models=[*MODELS], processes=2).parse_args()
    replicates, say = Replicates(args.processes), Printer(args.out)
    settings = [setting for setting in SETTINGS if len(setting[0]) in args.classes]
    names = f"{'classes':>7} {'rarest':>7} {'weights':>8} {'rows':>7} {'model':>10}"
    say(
        f"False alarms over streams without drift, 10 times the training rows, {LOOKS} looks, {args.streams} streams",
        "(share of streams with an alarm, ± its Monte-Carlo standard error)",
        f"{'':>43}{'nominal .05':^48}{'nominal .01':^16}",
        names + "".join(f"{name:>16}" for name in ("repeated test", "no model error", "monitor", "monitor")),
    )
    for model, setting in product(args.models, settings):
        is_fitted = model == MODELS[0]
        found = ~np.isnan(replicates(stream, args.streams, setting, is_fitted, 0.0, 0)[:, :6])
        cells = "".join(f"{share(found[:, place]):>16}" for place in (0, 1, 2, 5))
        say(title(setting, is_fitted) + cells)
    say(
        "",
        f"Drift of the rarest class (+{DRIFT[2]} in log-odds with two classes, +{DRIFT_OF_MORE} with more), "
        f"fitted models, {args.drifted} streams",
        "(median rows to an alarm at nominal .05, share found within 10 times the training rows)",
        f"{names} {'from row':>9}{'monitor':>12} {'found':>6} {'drift':>7} {'covered':>8} {'named':>6}"
        f" {'alarm before':>15}",
    )
    for quiet in (0, QUIET):
        for setting in settings:
            drift = DRIFT.get(len(setting[0]), DRIFT_OF_MORE)
            found = replicates(stream, args.drifted, setting, True, drift, quiet)
            late = found[:, 2] - quiet
            early, true = late <= 0, late > 0
            late = np.where(true, late, np.nan)
            cells = f"{middle(late, setting[2]):>12} {np.mean(true):>6.3f} "
            stated = found[true, 6:].mean(axis=0) if true.any() else np.full(3, math.nan)
            say(
                f"{title(setting, True)} {quiet * setting[2] * 10 // LOOKS:>9,}{cells}"
                f"{stated[0]:>7.2f} {stated[1]:>8.3f} {stated[2]:>6.3f} {share(early):>15}"
            )
    if args.networks:
        say("", f"Networks of CRCENClassifierCV (8 hidden units) and KeyEquationMonitor, {args.networks} fits each")
        for setting in {len(one[0]): one for one in reversed(settings) if one[2] <= 3000}.values():
            found = replicates(network, args.networks, setting)
            say(f"{title(setting, True)}   nominal .05: {share(found[:, 0])}, nominal .01: {share(found[:, 1])}")
    replicates.done()


if __name__ == "__main__":
    main()

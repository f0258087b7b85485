"""CRCENClassifierCV compared with loops over the same 64 fits, in one run.

    python -m bench.speed.search [--data-home DIR] [--sets abalone us_crime] [--rivals defaults same torch skorch]

Hidden 8/16/32/64 × l2 1e-5..1e-2 × 4 folds, balanced weights. Compared on two processes each: `MLPClassifier` with its
defaults, `MLPClassifier` with the same work (penalty rescaled, same batch, epochs and rate), a plain PyTorch loop over
the networks with the same epochs, batch and rate, and a skorch loop likewise. The time of crcen includes the whole of
`CRCENClassifierCV.fit`: search, selection of epochs, out-of-fold results and refit; that of the others only the 64
fits. crcen is timed before and after the others, best of three each, and the slower time counts, because machines
change their speed. Prints seconds, ratios and the cross-validated weighted log loss of the best setting.
"""

import argparse
import os
import statistics
import time

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold

import crcen
from bench.speed.core import BATCH, EPOCHS, HIDDEN, L2, RATE, best_score, rival, weighted_log_loss

SETS = ("abalone", "satimage", "us_crime", "coil_2000", "scene")


def ours(X: np.ndarray, y: np.ndarray, folds: list) -> tuple[float, float, int]:
    """Seconds of the whole search, its weighted log loss and the epochs it chose; best of three."""
    best = None
    for _ in range(3):
        start = time.perf_counter()
        model = crcen.CRCENClassifierCV(
            hidden=[(h,) for h in HIDDEN], l2=list(L2), encoding="standard", n_members=1, cv=folds,
            schedule=crcen.Schedule(learning_rate=RATE), device="cpu", random_state=0,
            calibration=crcen.Calibration(balance="oof", probability="shift", training_weighting="price"),
        ).fit(X, y)  # fmt: skip
        seconds = time.perf_counter() - start
        best = min(best or (np.inf, 0, 0), (seconds, -model.best_score_, model.best_epochs_))
    return best


def standardised(X: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Columns standardised by the training rows."""
    scale = X[train].std(0)
    scale[scale == 0] = 1
    return ((X - X[train].mean(0)) / scale).astype(np.float32)


def fit_torch(
    X: np.ndarray, y: np.ndarray, w: np.ndarray, train: np.ndarray, test: np.ndarray, h: int, l2: float
) -> float:
    """One network the usual way: nn.Sequential, Adam, one-cycle rate, a loop over batches."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(7)
    z = torch.from_numpy(standardised(X, train))
    t, weight = (torch.from_numpy(a.astype(np.float32)) for a in (y, w / w[train].mean()))
    model = torch.nn.Sequential(torch.nn.Linear(X.shape[1], h), torch.nn.ReLU(), torch.nn.Linear(h, 1))
    weights = [p for p in model.parameters() if p.ndim == 2]
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    rows = torch.from_numpy(train)
    steps = EPOCHS * -(-len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.2)
    for _ in range(EPOCHS):
        for batch in rows[torch.randperm(len(rows))].split(BATCH):
            optimiser.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(z[batch])[:, 0], t[batch], weight[batch])
            (loss + 0.5 * l2 * sum((p**2).sum() for p in weights)).backward()
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        logits = model(z[torch.from_numpy(test)])[:, 0].double().numpy()
    return weighted_log_loss(y[test], logits, w[test])


def fit_skorch(
    X: np.ndarray, y: np.ndarray, w: np.ndarray, train: np.ndarray, test: np.ndarray, h: int, l2: float
) -> float:
    """One network through skorch, class weight as pos_weight, Adam's weight decay as penalty."""
    import skorch
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(7)
    z = standardised(X, train)
    ratio = float(w[y == 1][0] / w[y == 0][0])
    net = skorch.NeuralNetBinaryClassifier(
        torch.nn.Sequential(
            torch.nn.Linear(X.shape[1], h), torch.nn.ReLU(), torch.nn.Linear(h, 1), torch.nn.Flatten(0)
        ),
        criterion__pos_weight=torch.tensor(ratio),
        optimizer=torch.optim.Adam,
        optimizer__weight_decay=l2,
        lr=RATE,
        max_epochs=EPOCHS,
        batch_size=BATCH,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=0,
    ).fit(z[train], y[train].astype(np.float32))
    with torch.no_grad():
        logits = net.forward(z[test]).double().numpy()
    return weighted_log_loss(y[test], logits, w[test])


def loop(fit: object, X: np.ndarray, y: np.ndarray, folds: list, lam: float) -> tuple[float, float]:
    """Seconds and best weighted log loss of 64 separate fits on two processes."""
    w = np.where(y, lam, 1 - lam)
    start = time.perf_counter()
    tasks = [(train, test, h, l2) for h in HIDDEN for l2 in L2 for train, test in folds]
    losses = Parallel(n_jobs=2)(delayed(fit)(X, y, w, *task) for task in tasks)
    return time.perf_counter() - start, best_score(np.reshape(losses, (-1, len(folds))))


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--rivals", nargs="+", default=["defaults", "same", "torch", "skorch"])
    args = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    for name in args.sets:
        data = crcen.load_dataset(name, args.data_home)
        lam = data.n_neg / data.n_samples
        folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(data.X, data.y))
        before, loss, epochs = ours(data.X, data.y, folds)
        found: dict[str, tuple[float, float]] = {}
        for kind in args.rivals:
            try:
                if kind in ("defaults", "same"):
                    found[kind] = rival(data.X, data.y, folds, lam, same_work=kind == "same")
                else:
                    fit = fit_torch if kind == "torch" else fit_skorch
                    found[kind] = loop(fit, data.X, data.y, folds, lam)
            except ImportError as error:
                print(f"  {kind}: left out, {error}")
        seconds = max(before, ours(data.X, data.y, folds)[0])
        print(f"{name}: CRCENClassifierCV {seconds:.2f} s, weighted log loss {loss:.4f} at epoch {epochs}")
        for kind, (other, other_loss) in found.items():
            ratios.setdefault(kind, []).append(other / seconds)
            print(
                f"  {kind}: {other:.2f} s, ratio {other / seconds:.1f}x, weighted log loss {other_loss:.4f}", flush=True
            )
    for kind, values in ratios.items():
        print(f"{kind}: geometric mean {statistics.geometric_mean(values):.1f}x, smallest {min(values):.1f}x")


if __name__ == "__main__":
    main()

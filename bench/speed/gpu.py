"""Thousands of networks on one GPU.

    python -m bench.speed.gpu [--data-home DIR]

Prints seconds for 1 to 8,192 networks of abalone's shape (64 hidden units, 30 epochs, batch 128), set-up and results
included; what an epoch alone takes on the device; a plain PyTorch loop that trains one network at a time; 10,000
networks of mixed sizes over the paper's sets that are at hand; the difference to the CPU on the same seeds; and peak
memory against the bound.
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import torch

import crcen
from crcen.datasets.benchmark import Dataset
from crcen.training.engine import StackRun, train
from crcen.training.jobs import TrainingJob
from crcen.training.rows import TrainingData

PAPER_SETS = ("abalone", "coil_2000", "satimage", "scene", "solar_flare_m0", "us_crime")
EPOCHS, BATCH, HIDDEN = 30, 128, 64
MANY = 8192
PEAK_FLOPS = 67e12  # of an H200 in float32, by its data sheet


def seconds_of(run: Callable[[], object]) -> float:
    """Wall time of a call, the device idle before and after."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def plain_loop(X: np.ndarray, y: np.ndarray, lam: float) -> None:
    """One network the usual way: nn.Sequential, Adam, a Python loop over batches."""
    device = torch.device("cuda")
    x = torch.as_tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32, device=device)
    t = torch.as_tensor(y, dtype=torch.float32, device=device)
    w = torch.where(t > 0, lam, 1 - lam)
    layers = (torch.nn.Linear(X.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))
    model = torch.nn.Sequential(*layers).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), device=device).split(BATCH):
            optimiser.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x[rows])[:, 0], t[rows], w[rows])
            loss.backward()
            optimiser.step()


def growth(data: Dataset, lam: float) -> float:
    """Time against the number of networks; returns that of the most."""
    seconds = 0.0
    for count in (1, 8, 64, 512, 2048, MANY):
        jobs = [TrainingJob((1 - lam, lam), hidden=(HIDDEN,), l2=1e-3, seed=s, balance=False) for s in range(count)]
        times = [seconds_of(lambda jobs=jobs: train(data.X, data.y, jobs, device="cuda")) for _ in range(3)]
        seconds = min(times)
        print(f"{count:6d} networks  {seconds:7.3f} s  ({', '.join(f'{t:.3f}' for t in times)})", flush=True)
    balanced = [TrainingJob((1 - lam, lam), hidden=(HIDDEN,), l2=1e-3, seed=s) for s in range(MANY)]
    times = [seconds_of(lambda: train(data.X, data.y, balanced, device="cuda")) for _ in range(3)]
    print(f"  {MANY} networks, balance solve included  {min(times):.3f} s  ({', '.join(f'{t:.3f}' for t in times)})")
    return seconds


def epochs_alone(data: Dataset, lam: float) -> None:
    """What an epoch of many networks takes on the device, and which share of its arithmetic that is."""
    rows = TrainingData(data.X, data.y.astype(np.int64), np.ones(data.n_samples), 2, torch.device("cuda"))
    jobs = [TrainingJob((1 - lam, lam), hidden=(HIDDEN,), l2=1e-3, seed=s) for s in range(MANY)]
    run = StackRun((tuple(range(MANY)),), jobs, rows)
    # A row: the first layer's product and its gradient; the output's product, its gradient and the one behind it.
    flops = MANY * data.n_samples * HIDDEN * (4 * (data.X.shape[1] + 1) + 6)
    with torch.no_grad():
        solver = run.solver()
        for _ in range(2):
            solver.step()
        taken = seconds_of(lambda: [solver.step() for _ in range(10)]) / 10
    print(f"  an epoch of {MANY} networks: {1e3 * taken:.2f} ms, ", end="")
    print(f"{flops / taken / 1e12:.1f} TFLOP/s, {flops / taken / PEAK_FLOPS:.0%} of the peak", flush=True)


def mixed(data_home: str | None) -> None:
    """10,000 networks of four widths over the paper's sets."""
    sets = []
    for name in PAPER_SETS:
        try:
            sets.append(crcen.load_dataset(name, data_home))
        except crcen.CrcenError as error:
            print(f"left out: {error}")
    each, total = 10000 // len(sets), 0.0
    torch.cuda.reset_peak_memory_stats()
    bound = 8 * 2**30
    for data in sets:
        lam = data.n_neg / data.n_samples
        sizes = (8, 16, 32, 64)
        jobs = [
            TrainingJob((1 - lam, lam), hidden=(sizes[i % 4],), l2=1e-3, seed=i, balance=False) for i in range(each)
        ]
        taken = seconds_of(lambda data=data, jobs=jobs: train(data.X, data.y, jobs, device="cuda", memory_bytes=bound))
        total += taken
        print(f"  {data.name}: {each} networks {taken:.2f} s", flush=True)
    peak = torch.cuda.max_memory_allocated()
    print(f"mixed sizes: {each * len(sets)} networks on {len(sets)} sets in {total:.2f} s; ", end="")
    print(f"peak {peak / 2**30:.2f} GiB, bound on a stack {bound / 2**30:.0f} GiB")


def weighted_log_loss(data: Dataset, lam: float, logits: np.ndarray) -> float:
    """Of the training rows."""
    weights = np.where(data.y == 1, lam, 1 - lam)
    return float(np.average(np.logaddexp(0.0, np.where(data.y == 1, -logits, logits)), weights=weights))


def agreement(data: Dataset, lam: float) -> None:
    """Largest differences between CPU and GPU on the same seeds, of logits and, after a whole schedule, of losses."""
    deep = [TrainingJob((1 - lam, lam), hidden=h, seed=s, max_epochs=5) for h in ((16, 8), ()) for s in range(3)]
    flat = [TrainingJob((1 - lam, lam), hidden=(h,), seed=s, max_epochs=5) for h in (16, 32, HIDDEN) for s in range(3)]
    whole = [TrainingJob((1 - lam, lam), hidden=(HIDDEN,), l2=1e-3, seed=s, max_epochs=EPOCHS) for s in range(8)]

    def logits(jobs: list[TrainingJob], device: str) -> list[np.ndarray]:
        return [result.network.logits(data.X) for result in train(data.X, data.y, jobs, device=device)]

    on_cpu, found = (
        {part: logits(jobs, device) for part, jobs in (("deep", deep), ("flat", flat), ("whole", whole))}
        for device in ("cpu", "cuda")
    )
    short = [np.abs(np.subtract(on_cpu[part], found[part])).max() for part in ("deep", "flat")]
    losses = [[weighted_log_loss(data, lam, o) for o in part["whole"]] for part in (on_cpu, found)]
    print(f"CPU and GPU, same seeds and batches, 5 epochs: logits differ by at most {max(short):.1e}")
    print(f"  {EPOCHS} epochs: weighted log loss differs by at most {np.abs(np.subtract(*losses)).max():.1e}, ", end="")
    print(f"between seeds by {np.ptp(losses[0]):.1e}", flush=True)


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    args = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    data = crcen.load_dataset("abalone", args.data_home)
    lam = data.n_neg / data.n_samples
    agreement(data, lam)
    stacked = growth(data, lam)
    epochs_alone(data, lam)
    plain_loop(data.X, data.y, lam)
    loop = min(seconds_of(lambda: plain_loop(data.X, data.y, lam)) for _ in range(3))
    print(f"plain PyTorch loop, one network: {loop:.3f} s; per network {loop / (stacked / MANY):.0f} times the stack's")
    mixed(args.data_home)


if __name__ == "__main__":
    main()

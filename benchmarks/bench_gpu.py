"""Thousands of networks on one GPU.

    python benchmarks/bench_gpu.py [--data-home DIR]

Prints seconds for 1 to 8,192 networks of abalone's shape (64 hidden units, 30 epochs, batch 128), set-up and results
included; a plain PyTorch loop that trains one network at a time; 10,000 networks of mixed sizes over the paper's sets
that are at hand; the difference to the CPU's logits on the same seeds; and peak memory against the bound.
"""

import argparse
import os
import time

import numpy as np
import torch

import crcen

PAPER_SETS = ("abalone", "coil_2000", "satimage", "scene", "solar_flare_m0", "us_crime")
EPOCHS, BATCH, HIDDEN = 30, 128, 64


def seconds_of(run: object) -> float:
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


def growth(data: crcen.Dataset, lam: float) -> float:
    """Time against the number of networks; returns that of 8,192."""
    seconds = 0.0
    for count in (1, 8, 64, 512, 2048, 8192):
        jobs = [crcen.TrainingJob(lam=lam, hidden=(HIDDEN,), l2=1e-3, seed=s, balance=False) for s in range(count)]
        times = [seconds_of(lambda jobs=jobs: crcen.train(data.X, data.y, jobs, device="cuda")) for _ in range(3)]
        seconds = min(times)
        print(f"{count:6d} networks  {seconds:7.3f} s  ({', '.join(f'{t:.3f}' for t in times)})", flush=True)
    balanced = [crcen.TrainingJob(lam=lam, hidden=(HIDDEN,), l2=1e-3, seed=s) for s in range(8192)]
    print(f"  8192 networks, balance solve included  {seconds_of(lambda: crcen.train(data.X, data.y, balanced)):.3f} s")
    return seconds


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
        jobs = [crcen.TrainingJob(lam=lam, hidden=(sizes[i % 4],), l2=1e-3, seed=i, balance=False) for i in range(each)]
        taken = seconds_of(
            lambda data=data, jobs=jobs: crcen.train(data.X, data.y, jobs, device="cuda", memory_bytes=bound)
        )
        total += taken
        print(f"  {data.name}: {each} networks {taken:.2f} s", flush=True)
    peak = torch.cuda.max_memory_allocated()
    print(f"mixed sizes: {each * len(sets)} networks on {len(sets)} sets in {total:.2f} s; ", end="")
    print(f"peak {peak / 2**30:.2f} GiB, bound on a stack {bound / 2**30:.0f} GiB")


def agreement(data: crcen.Dataset, lam: float) -> None:
    """Largest difference between CPU and GPU logits on the same seeds."""
    shapes = ((16,), (32,), (16, 8), ())
    jobs = [crcen.TrainingJob(lam=lam, hidden=h, seed=s, max_epochs=5) for h in shapes for s in range(3)]
    pairs = zip(*(crcen.train(data.X, data.y, jobs, device=d) for d in ("cpu", "cuda")), strict=True)
    worst = max(np.abs(a.network.logits(data.X) - b.network.logits(data.X)).max() for a, b in pairs)
    print(f"CPU and GPU, same seeds and batches, 5 epochs: logits differ by at most {worst:.1e}")


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
    plain_loop(data.X, data.y, lam)
    loop = min(seconds_of(lambda: plain_loop(data.X, data.y, lam)) for _ in range(3))
    print(f"plain PyTorch loop, one network: {loop:.3f} s; per network {loop / (stacked / 8192):.0f} times the stack's")
    mixed(args.data_home)


if __name__ == "__main__":
    main()

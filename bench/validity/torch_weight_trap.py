"""The effective cost ratio of torch's weighted mean compared with the requested one, by batch size and imbalance.

    python -m bench.validity.torch_weight_trap [--quick] [--out FILE]

``nn.CrossEntropyLoss(weight=w)`` divides by the weight sum of each batch. Over batches drawn by chance, a positive row
then weighs E[c / (c·K + B − K)] given that it is in the batch, a negative row E[1 / (c·K + B − K)], K binomial; their
ratio is the cost ratio that training aims at. The first table computes it for balanced weights, c = IR. The second
trains a linear model on made rows with either divisor and reads the ratio off the key equation after training.
Dividing by rows gives 1 everywhere. The rate of SGD falls to 0: one that stays leaves noise that moves the ratio by
itself (.85 to .93 where 1 is right, at IR 50 and batches of 32).
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

import crcen
from crcen._support.files import write_atomic
from crcen.torch import ClassWeightedLoss

BATCHES = (8, 16, 32, 64, 128, 256, 512, 1024)
RATIOS = (10, 20, 50, 100, 200, 500, 1000)
N_POS, LEAST_STEPS = 400, 6000
TRAINED = ((10, 32), (50, 8), (50, 32), (50, 128), (50, 512), (100, 32), (100, 128))


def binomial(n: int, share: float) -> np.ndarray:
    """Probabilities of 0 … n positives among n rows."""
    k = np.arange(n + 1)
    steps = np.log((n - k[:-1]) / (k[:-1] + 1)) + np.log(share / (1 - share))
    logs = n * np.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    return np.exp(logs)


def effective_share(ratio: float, size: int) -> float:
    """Effective over asked cost ratio of batches of a size, for weights 1 and c = ratio."""
    others = binomial(size - 1, 1.0 / (1.0 + ratio))
    k = np.arange(size)
    of_positive = others @ (1.0 / (ratio * (k + 1) + size - k - 1))
    of_negative = others @ (1.0 / (ratio * k + size - k))
    return float(of_positive / of_negative)


def trained_share(ratio: int, size: int, divide_by: str, epochs: int, seed: int = 0) -> float:
    """The same, read off the key equation of a linear model after plain SGD; its last quarter is averaged."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.arange(N_POS * (ratio + 1)) < N_POS).long()
    x = torch.randn(len(y), 2, generator=generator) + y[:, None] * torch.tensor([1.0, 0.0])
    ones = torch.cat([torch.ones(len(y), 1), x], 1)
    weights = torch.tensor([1.0, float(ratio)])
    loss = nn.CrossEntropyLoss(weights) if divide_by == "weights" else ClassWeightedLoss(weights)
    scale = 1.0 if divide_by == "weights" else 0.5 * (1 + ratio) / ratio  # the mean weight of a row is 1 in both
    beta = torch.zeros(3, requires_grad=True)
    total, taken = torch.zeros(3, dtype=torch.float64), 0
    batches = [part for _ in range(epochs) for part in torch.randperm(len(y), generator=generator).split(size)]
    for step, part in enumerate(batches):
        outputs = ones[part] @ torch.stack([0 * beta, beta], 1)
        (slope,) = torch.autograd.grad(scale * loss(outputs, y[part]), beta)
        rate = 0.1 * min(1.0, size / 128) * (1.0 - step / len(batches))
        beta = (beta - rate * slope).detach().requires_grad_()
        if step >= 3 * len(batches) // 4:
            total, taken = total + beta.detach(), taken + 1
    q = torch.sigmoid(ones.double() @ (total / taken)).numpy()
    # The left side is n_neg / (n_pos · effective cost ratio), and 1 at the one asked for.
    return float(1.0 / crcen.key_equation(y.numpy(), q, "balanced").lhs)


def tables(quick: bool) -> str:
    """Both tables as text."""
    lines = [
        "Effective over asked cost ratio of nn.CrossEntropyLoss(weight=w), mean, balanced weights.",
        "1 is right, and what ClassWeightedLoss has in every place.",
        "",
        "IR \\ batch" + "".join(f"{size:>8}" for size in BATCHES),
    ]
    for ratio in RATIOS:
        lines.append(f"{ratio:<10}" + "".join(f"{effective_share(ratio, size):>8.2f}" for size in BATCHES))
    lines += [
        "",
        "The same, read off the key equation of a linear model after training (400 positives, SGD):",
        "",
        f"{'IR':<6}{'batch':>6}{'computed':>12}{'torch':>12}{'ClassWeightedLoss':>20}",
    ]
    for ratio, size in TRAINED[2:3] if quick else TRAINED:
        rows = N_POS * (ratio + 1)
        epochs = 6 if quick else max(10, math.ceil(LEAST_STEPS * size / rows))
        found = [trained_share(ratio, size, how, epochs) for how in ("weights", "rows")]
        lines.append(f"{ratio:<6}{size:>6}{effective_share(ratio, size):>12.2f}{found[0]:>12.2f}{found[1]:>20.2f}")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, and keep them where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one trained model instead of seven")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = tables(options.quick)
    print(text)
    if options.out:
        write_atomic(options.out, text + "\n")


if __name__ == "__main__":
    main()

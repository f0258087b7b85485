"""Imbalanced images: Fashion-MNIST with a long tail or one rare class, a small residual network, eight losses.

    python -m bench.choices.fashion_mnist --out rows.jsonl [--data FOLDER] [--seeds 5] [--jobs 4] [--minutes 7]
    python -m bench.choices.fashion_mnist --out rows.jsonl --table [--text results/choices/fashion_mnist.txt]

The images are those of Debian's package ``dataset-fashion-mnist`` (``apt-get download``, ``dpkg -x``); FOLDER holds its
four files. Training rows: class k of the tail keeps 6,000 · IR^(−k/9) images (IR 10, 50, 100); the rare class is Shirt,
300 images against 30,000 of the others. Test rows: all 10,000, weighed so that the classes have the training shares.
Every method has the same network, images, epochs, rate and augmentation (flips, shifts by two pixels). Weights are
n_k^(−τ) for τ = 0, ¼, ½, ¾, 1; natural probabilities are the softmax less log w. Rows already in the file are kept.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crcen._support.files import write_atomic
from crcen.paper.losses import FocalLoss, LDAMLoss, LogitAdjustedLoss, effective_number_weights
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.key_equation import key_equation_of_logits
from crcen.torch import ClassWeightedLoss, balance_

DEFAULT = Path("/usr/share/datasets/fashion-mnist")
TASKS = ("tail 100", "rare", "tail 50", "tail 10")
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
WEIGHTED = tuple(f"weights n^-{tau:g}" for tau in STRENGTHS)
PLAIN = WEIGHTED[0]
SOFTMAX, LDAM, FOCAL = "balanced softmax", "LDAM-DRW", "focal"
ADJUSTED = "logit adjustment"  # plain, decided by the largest p_k / share_k: no training of its own
METHODS = (*WEIGHTED, SOFTMAX, LDAM, FOCAL)
SHIRT, RARE, COMMON = 6, 300, 30_000
GROUPS = np.array([0, 1, 0, 0, 0, 2, 0, 2, 3, 2])  # tops, trousers, shoes, bags
BATCH, EPOCHS, PEAK, DECAY = 128, 12, 3e-3, 1e-2


def read(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (n, 28, 28) and labels of the training and the test half, as bytes."""
    found = []
    for half in ("train", "t10k"):
        for kind, skip in (("images-idx3", 16), ("labels-idx1", 8)):
            data = gzip.decompress((folder / f"{half}-{kind}-ubyte.gz").read_bytes())
            values = torch.frombuffer(bytearray(data), dtype=torch.uint8)[skip:]
            found.append(values.reshape(-1, 28, 28) if kind.startswith("images") else values)
    return found[0], found[1], found[2], found[3]


def training_rows(task: str, labels: Tensor, seed: int, share: float) -> tuple[Tensor, Tensor]:
    """Which images are kept, drawn by the seed, and their classes."""
    generator = np.random.default_rng([seed, TASKS.index(task)])
    y = labels.numpy().astype(np.int64)
    if task == "rare":
        y = (y == SHIRT).astype(np.int64)
        sizes = [COMMON, RARE]
    else:
        ratio = float(task.split()[1])
        sizes = [round(6000 * ratio ** (-k / 9)) for k in range(10)]
    kept = [
        generator.choice(np.flatnonzero(y == k), max(4, round(size * share)), replace=False)
        for k, size in enumerate(sizes)
    ]
    rows = np.concatenate(kept)
    return torch.from_numpy(rows), torch.from_numpy(y[rows])


class Block(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.around = nn.Identity() if n_in == n_out else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images in, images out."""
        return torch.relu(self.body(x) + self.around(x))


class Cosines(nn.Module):
    """A head that answers cosines, as LDAM wants it."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) / n_in**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Cosines (rows, classes)."""
        return nn.functional.normalize(x) @ nn.functional.normalize(self.weight).T


def network(n_classes: int, has_cosines: bool, width: int) -> nn.Module:
    """A residual network with seven convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        Cosines(4 * width, n_classes) if has_cosines else nn.Linear(4 * width, n_classes),
    )


def as_input(images: Tensor) -> Tensor:
    """Bytes as numbers around 0, (n, 1, 28, 28)."""
    return (images.float()[:, None] - 72.9) / 90.0


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image flipped or not, and moved by up to two pixels."""
    n, device = len(images), images.device
    moves = torch.randint(0, 5, (n, 2), generator=generator).to(device)
    flips = (torch.rand(n, generator=generator) < 0.5).to(device)
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    line = torch.arange(28, device=device)
    columns = torch.where(flips[:, None], 27 - line, line) + moves[:, 1:]
    at = ((line + moves[:, :1])[:, :, None] * 32 + columns[:, None, :]).reshape(n, -1)
    return padded.reshape(n, -1).gather(1, at).reshape(n, 28, 28)


def loss_of(method: str, counts: np.ndarray, is_late: bool) -> nn.Module:
    """The loss of a method; LDAM's classes are weighed in the last fifth of the epochs."""
    if method == SOFTMAX:
        return LogitAdjustedLoss(counts)
    if method == FOCAL:
        return FocalLoss(2.0)
    if method == LDAM:
        return LDAMLoss(counts, scale=30.0, weights=effective_number_weights(counts) if is_late else None)
    return ClassWeightedLoss(class_weights(method, counts), counts)


def class_weights(method: str, counts: np.ndarray) -> np.ndarray:
    """n_k^(−τ), with the mean 1 over rows; equal for methods without weights."""
    tau = float(method.split("^-")[1]) if method in WEIGHTED else 0.0
    weights = counts.astype(np.float64) ** -tau
    return weights * counts.sum() / (weights @ counts)


def fitted(method: str, images: Tensor, y: Tensor, counts: np.ndarray, seed: int, epochs: int, width: int) -> nn.Module:
    """A network trained by one cycle of AdamW; weights decay, biases and norms do not."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    net = network(len(counts), method == LDAM, width).to(images.device)
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}])
    steps = epochs * -(-len(y) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK, total_steps=steps)
    for epoch in range(epochs):
        loss = loss_of(method, counts, epoch >= 0.8 * epochs).to(images.device)
        for part in torch.randperm(len(y), generator=generator).to(images.device).split(BATCH):
            optimiser.zero_grad()
            loss(net(as_input(augmented(images[part], generator))), y[part]).backward()
            optimiser.step()
            schedule.step()
    return net.eval()


@torch.no_grad()
def answers(net: nn.Module, images: Tensor) -> np.ndarray:
    """Logits of images, float64."""
    return torch.cat([net(as_input(part)).double().cpu() for part in images.split(1000)]).numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities."""
    moved = logits - logits.max(1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(1, keepdims=True))


def cost_matrices(task: str, counts: np.ndarray) -> dict[str, CostMatrix]:
    """Three matrices of a task; the third of the tails is not one of class weights."""
    if task == "rare":
        return {f"miss {c}": CostMatrix([[0, 1], [c, 0]]) for c in (5, 20, 100)}
    apart = 1.0 - np.eye(10)
    worth = counts.max() / counts
    between = np.where(GROUPS[:, None] == GROUPS, 1.0, 5.0) * apart
    return {
        "1/n": CostMatrix(worth[:, None] * apart),
        "1/√n": CostMatrix(np.sqrt(worth)[:, None] * apart),
        "groups": CostMatrix(np.sqrt(worth)[:, None] * between),
    }


def measured(
    task: str, method: str, logits: np.ndarray, y: np.ndarray, counts: np.ndarray, balanced: np.ndarray | None
) -> Iterator[tuple[str, dict[str, float]]]:
    """Numbers of new images under each name: as trained, and with the bias solved for on the training rows."""
    shares = counts / counts.sum()
    sizes = (shares / (np.bincount(y) / len(y)))[y]
    weights = class_weights(method, counts)
    offset = np.log(shares) if method == SOFTMAX else -np.log(weights)
    forms = {method: logits * (30.0 if method == LDAM else 1.0)}
    if balanced is not None:
        forms[f"{method}, balanced"] = balanced
    for name, outputs in forms.items():
        natural = log_softmax(outputs + offset)
        found = {"log loss": float(-(sizes * natural[np.arange(len(y)), y]).sum() / sizes.sum())}
        if method in WEIGHTED:
            key = key_equation_of_logits(y, outputs, weights, sizes)
            found["key"] = float(np.abs(np.log(key.lhs / key.rhs)).max())
            found["key of the last"] = float(key.lhs[-1] / key.rhs[-1])
        decided = {name: np.exp(natural)}
        if method == PLAIN and name == PLAIN:
            decided[ADJUSTED] = np.exp(natural)
        for who, p in decided.items():
            numbers = dict(found)
            for title, matrix in cost_matrices(task, counts).items():
                chosen = (p / shares).argmax(1) if who == ADJUSTED else matrix.choose(p)
                numbers[title] = float(sizes @ matrix.realised(y, chosen) / sizes.sum())
            yield who, numbers


def one_run(task: str, method: str, seed: int, halves: tuple[Tensor, ...], settings: Any) -> list[dict[str, Any]]:
    """Train one network and give its rows."""
    began = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows, y = training_rows(task, halves[1], seed, settings.share)
    images = halves[0][rows].to(device)
    counts = np.bincount(y.numpy())
    net = fitted(method, images, y.to(device), counts, seed, settings.epochs, settings.width)
    test = halves[3].numpy().astype(np.int64)
    test = (test == SHIRT).astype(np.int64) if task == "rare" else test
    new = halves[2].to(device)
    logits, balanced = answers(net, new), None
    if method in WEIGHTED:
        batches = ((as_input(a), b) for a, b in zip(images.split(1000), y.split(1000), strict=True))
        balance_(net, batches, class_weights(method, counts))
        balanced = answers(net, new)
    seconds = time.perf_counter() - began
    return [
        {"task": task, "method": who, "run": method, "seed": seed, "seconds": seconds, **numbers}
        for who, numbers in measured(task, method, logits, test, counts, balanced)
    ]


def runs(settings: Any) -> list[tuple[str, str, int]]:
    """All runs in order: whole seeds first, so that a cut run compares like with like."""
    seeds, methods = range(settings.seeds), settings.methods
    return [(task, method, seed) for seed in seeds for task in settings.tasks for method in methods]


def work(settings: Any) -> None:
    """Every so many-th run that is not in the file yet, until time is up."""
    began = time.monotonic()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    halves = read(settings.data)
    done = {(row["task"], row["run"], row["seed"]) for row in load(settings.out)}
    part, parts = settings.part
    for number, run in enumerate(runs(settings)):
        if number % parts != part or run in done:
            continue
        if time.monotonic() - began > 60 * settings.minutes:
            print("time is up", flush=True)
            return
        lines = "".join(json.dumps(row) + "\n" for row in one_run(*run, halves, settings))
        with settings.out.open("a") as file:  # one write: processes share the file
            file.write(lines)
        print(*run, f"{time.monotonic() - began:.0f} s", flush=True)


def load(file: Path) -> list[dict[str, Any]]:
    """Rows of earlier runs."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds: log loss, key equation, and costs over those of plain cross entropy cut at the price."""
    lines = [
        "Fashion-MNIST made imbalanced, a small residual network, new images at the training shares.",
        "log loss of natural probabilities; key: largest |log (flow out / flow in)| over classes, 0 is right;",
        "cost over that of plain cross entropy decided at the costs (below 1 is cheaper), ± standard error.",
    ]
    for task in [t for t in TASKS if any(r["task"] == t for r in rows)]:
        own = [r for r in rows if r["task"] == task]
        titles = [
            k for k in own[0] if k not in ("task", "method", "run", "seed", "seconds", "log loss") and "key" not in k
        ]
        plain = {r["seed"]: r for r in own if r["method"] == PLAIN}
        lines += [
            "",
            f"{task}, {len(plain)} seeds",
            f"{'method':<28}{'log loss':>9}{'ratio':>7}{'key':>7}" + "".join(f"{t:>14}" for t in titles),
        ]
        for method in dict.fromkeys(r["method"] for r in sorted(own, key=lambda r: METHODS.index(r["run"]))):
            mine = [r for r in own if r["method"] == method and r["seed"] in plain]
            if not mine:
                continue
            ratio = np.mean([r["log loss"] / plain[r["seed"]]["log loss"] for r in mine])
            key = f"{np.mean([r['key'] for r in mine]):.2f}" if "key" in mine[0] and method != ADJUSTED else ""
            cells = []
            for title in titles:
                ratios = np.array([r[title] / plain[r["seed"]][title] for r in mine])
                error = ratios.std(ddof=1) / len(ratios) ** 0.5 if len(ratios) > 1 else np.nan
                cells.append(f"{ratios.mean():.3f} ±{error:.3f}".replace("nan", "-"))
            shown = f"{np.mean([r['log loss'] for r in mine]):>9.4f}{ratio:>7.3f}" if method != ADJUSTED else " " * 16
            lines.append(f"{method:<28}{shown}{key:>7}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Train, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of rows, JSON lines; kept and added to")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FASHION_MNIST", DEFAULT)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--share", type=float, default=1.0, help="of each class's training images")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no run after that")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs, a twentieth of the images")
    parser.add_argument("--table", action="store_true", help="print the table of the rows there are")
    parser.add_argument("--text", type=Path, help="write it to a file as well")
    settings = parser.parse_args(arguments)
    if settings.quick:
        settings.seeds, settings.epochs, settings.share, settings.width = 1, 2, 0.05, 4
    if not settings.table:
        if settings.jobs > 1:
            own = sys.argv[1:] if arguments is None else arguments
            started = [
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "bench.choices.fashion_mnist",
                        *own,
                        "--jobs",
                        "1",
                        "--part",
                        str(k),
                        str(settings.jobs),
                    ]
                )
                for k in range(settings.jobs)
            ]
            if any([one.wait() for one in started]):
                sys.exit("a process failed; what it finished is in the file")
        else:
            work(settings)
    if settings.table or settings.part[1] == 1:
        text = table(load(settings.out))
        print(text)
        if settings.text is not None:
            write_atomic(settings.text, text + "\n")


if __name__ == "__main__":
    main()

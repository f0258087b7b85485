"""Rare topics in news (Reuters, Corn and Grain), by word counts and by a small embedding network, at three weights.

    python -m bench.choices.reuters_text [--data FOLDER] [--seeds 5] [--quick] [--out FILE]

The files are those of Debian's package ``weka`` (``apt-get download weka``, ``dpkg -x``; folder
``usr/share/doc/weka/examples``, plain or packed by gzip): 1,554 stories of the ModApte split to train on, 604 to test
on. Both models are trained at the weights 1, √IR and IR of the rare topic, with the bias solved for on the training
rows or out of fold. Natural probabilities of new stories are scored by log loss, and decide at the prices 5, 20 and IR.
"""

import argparse
import gzip
import os
import re
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn

import crcen
from crcen import Calibration, CostRatio, CRCENClassifier, Inputs, ModuleClassifier, Schedule
from crcen._support.files import write_atomic

DEFAULT = Path("/usr/share/doc/weka/examples")
TOPICS = ("Corn", "Grain")
WORDS, LENGTH, WIDTH = 5000, 200, 32
_STORY = re.compile(r"^'((?:[^'\\]|\\.)*)',([01])\s*$", re.MULTILINE)


def read(folder: Path, topic: str, half: str) -> tuple[list[str], np.ndarray]:
    """Stories and whether they are of the topic."""
    file = folder / f"Reuters{topic}-{half}.arff"
    text = (
        file.read_text("latin-1")
        if file.exists()
        else gzip.decompress(Path(f"{file}.gz").read_bytes()).decode("latin-1")
    )
    found = _STORY.findall(text.partition("@data")[2])
    return [story.replace("\\n", " ").replace("\\'", "'") for story, _ in found], np.array([int(y) for _, y in found])


def numbered(stories: list[str], words: dict[str, int]) -> np.ndarray:
    """The first words of every story as numbers, 0 after its end and for words that are not known."""
    rows = np.zeros((len(stories), LENGTH), dtype=np.int64)
    for row, story in zip(rows, stories, strict=True):
        known = [words[word] for word in re.findall(r"[a-z]{2,}", story.lower()) if word in words][:LENGTH]
        row[: len(known)] = known
    return rows


class Story(nn.Module):
    """The mean of its words' embeddings, and one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH, padding_idx=0)
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(WIDTH, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (rows, 1) of word numbers (rows, length)."""
        return self.head(self.words(x).sum(1) / (x > 0).sum(1, keepdim=True).clamp(min=1))


def models(weight: float, balance: object, seed: int, epochs: int) -> dict[str, object]:
    """Both models, trained at a weight."""
    calibration = Calibration(balance=balance, probability="shift", training_weighting="price")
    return {
        "counted words": CRCENClassifier(
            CostRatio(weight), hidden=(), l2=1e-4, n_members=1, encoding=Inputs(standardize=False),
            calibration=calibration, device="cpu", random_state=seed,
        ),
        "embeddings": ModuleClassifier(
            Story, CostRatio(weight), max_epochs=epochs, schedule=Schedule(batch_size=64, learning_rate=0.02),
            calibration=calibration, device="cpu", random_state=seed,
        ),
    }  # fmt: skip


def measure(folder: Path, topic: str, seeds: int, epochs: int) -> list[str]:
    """Lines of one topic."""
    stories, y = read(folder, topic, "train")
    new_stories, new_y = read(folder, topic, "test")
    counter = TfidfVectorizer(max_features=WORDS, token_pattern=r"[a-z]{2,}", sublinear_tf=True).fit(stories)
    words = {word: number + 1 for number, word in enumerate(sorted(counter.vocabulary_))}
    rows = {
        "counted words": (counter.transform(stories).toarray(), counter.transform(new_stories).toarray()),
        "embeddings": (numbered(stories, words), numbered(new_stories, words)),
    }
    ratio = (y == 0).sum() / (y == 1).sum()
    prices = [5.0, 20.0, round(ratio)]
    head = [f"{topic}: {y.sum()} of {len(y)} stories, {new_y.sum()} of {len(new_y)} new ones"]
    title = f"{'model':<15}{'weight':>7}  {'solved on':<14}{'log loss':>9}{'ratio':>7}{'lhs':>8}{'rhs':>8}"
    head.append(title + "".join(f"{f'cost {c:g}':>10}" for c in prices))
    lines, plain = [], {}
    for weight in (1.0, ratio**0.5, ratio):
        for balance in (True, "oof"):
            for name in rows:
                found = []
                for seed in range(seeds if name == "embeddings" else 1):
                    model = models(weight, balance, seed, epochs)[name].fit(rows[name][0], y)
                    p = model.predict_proba(rows[name][1])[:, 1]
                    key = crcen.key_equation(new_y, model.weighted_proba(rows[name][1])[:, 1], model.weighting_)
                    loss = -np.log(np.clip(np.where(new_y == 1, p, 1 - p), 1e-12, None)).mean()
                    costs = []
                    for price in prices:
                        counts = crcen.confusion_counts(new_y, crcen.decide(p, CostRatio(price)))
                        costs.append(1000 * (price * counts.fn + counts.fp) / len(new_y))
                    found.append([loss, key.lhs, key.rhs, *costs])
                mean = np.mean(found, axis=0)
                plain.setdefault((name, balance), mean[0])
                solved = "training rows" if balance is True else "out of fold"
                lines.append(
                    f"{name:<15}{weight:>7.1f}  {solved:<14}{mean[0]:>9.4f}{mean[0] / plain[name, balance]:>7.2f}"
                    f"{mean[1]:>8.3f}{mean[2]:>8.3f}" + "".join(f"{cost:>10.1f}" for cost in mean[3:])
                )
    return [*head, *sorted(lines, key=lambda line: line[:15])]


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WEKA_EXAMPLES", DEFAULT)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs, Corn alone")
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    seeds, epochs, topics = (1, 2, TOPICS[:1]) if settings.quick else (settings.seeds, 30, TOPICS)
    lines = [
        "Rare topics in Reuters news. log loss of natural probabilities, and over that of weight 1; lhs and rhs of the",
        "key equation on new stories; cost of decisions at three prices, in false alarms for 1,000 new stories.",
    ]
    for topic in topics:
        lines += ["", *measure(settings.data, topic, seeds, epochs)]
        print("\n".join(lines), flush=True)
    if settings.out is not None:
        write_atomic(settings.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

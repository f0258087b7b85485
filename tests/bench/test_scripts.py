"""Scripts of bench/ import the current package; small runs on images, stories and torch's weighted mean."""

import gzip
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bench.choices import fashion_mnist as images
from bench.choices import reuters_text as text
from bench.validity import torch_weight_trap as trap

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("speed", "validity", "choices")
    for path in (ROOT / "bench" / folder).glob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_imports_and_names_its_command(name):
    script = import_module(name)
    assert f"python -m {name}" in script.__doc__
    assert callable(script.main)


# -- imbalanced images -------------------------------------------------------------------------------------------------


def test_classes_thin_out_by_the_stated_ratio():
    labels = torch.arange(60_000) % 10
    for ratio in (10, 50, 100):
        rows, y = images.training_rows(f"tail {ratio}", labels, 0, 1.0)
        counts = torch.bincount(y)
        assert (counts[0], float(counts[0] / counts[9])) == (6000, pytest.approx(ratio, rel=0.01))
        assert torch.equal(labels[rows], y)
        assert len(set(rows.tolist())) == len(rows)
    rows, y = images.training_rows("rare", labels, 0, 1.0)
    assert torch.bincount(y).tolist() == [30_000, 300]
    assert torch.equal(labels[rows] == 6, y.bool())


def test_true_posteriors_are_right_under_every_weight():
    """Logits log p + log w: the key equation holds, the log loss stays, and adjusting is deciding at 1/n."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.linspace(3.0, 0.5, 10), 20_000)
    y = (p.cumsum(1) < rng.random((len(p), 1))).sum(1)
    counts = np.bincount(y)
    entropy = -np.log(p[np.arange(len(y)), y]).mean()
    for method in images.WEIGHTED:
        weights = images.class_weights(method, counts)
        assert weights @ counts == pytest.approx(counts.sum())
        found = dict(images.measured("tail 10", method, np.log(p) + np.log(weights), y, counts, None))
        assert found[method]["log loss"] == pytest.approx(entropy, rel=1e-12)
        assert found[method]["key"] < 0.2
        if method == images.PLAIN:
            assert found[images.ADJUSTED]["1/n"] == found[method]["1/n"]
            assert found[images.ADJUSTED]["groups"] > found[method]["groups"]


def write_images(folder, n=300):
    """Images of noise whose brightness is their class, in the format of the package."""
    rng = np.random.default_rng(0)
    for half in ("train", "t10k"):
        y = (np.arange(n) % 10).astype(np.uint8)
        x = np.clip(rng.normal(20 * y[:, None, None] + 20, 30, (n, 28, 28)), 0, 255).astype(np.uint8)
        (folder / f"{half}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + x.tobytes()))
        (folder / f"{half}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + y.tobytes()))


def test_a_run_prints_what_it_measured_and_goes_on(tmp_path, capsys):
    write_images(tmp_path)
    out = tmp_path / "rows.jsonl"
    small = ["--seeds", "1", "--epochs", "1", "--width", "2", "--share", "0.005", "--tasks", "tail 50"]
    arguments = ["--out", str(out), "--data", str(tmp_path), *small]
    images.main([*arguments, "--methods", images.PLAIN, "weights n^-1"])
    first = capsys.readouterr().out
    rows = images.load(out)
    methods = [images.PLAIN, images.ADJUSTED, f"{images.PLAIN}, balanced", "weights n^-1", "weights n^-1, balanced"]
    assert [row["method"] for row in rows] == methods
    assert all(np.isfinite(row[name]) for row in rows for name in ("log loss", "1/n", "1/√n", "groups"))
    assert "tail 50, 1 seeds" in first
    images.main([*arguments, "--methods", images.PLAIN])
    assert images.load(out) == rows


# -- rare topics -------------------------------------------------------------------------------------------------------


def write_stories(folder):
    """Stories in the format of the files, with quotes and line ends in them; maize is in most of the rare ones."""
    rng = np.random.default_rng(0)
    common = ["bank", "rate", "yen", "oil", "trade", "profit", "share", "tonnes"]
    for half, n in (("train", 120), ("test", 60)):
        lines = ["@relation 'Reuters'", "@attribute Text string", "@attribute class-att {0,1}", "", "@data", ""]
        for i in range(n):
            label = int(i % 6 == 0)
            words = [*rng.choice(common, 12), *(["maize"] if label and rng.random() < 0.8 else [])]
            lines.append(f"'The bank\\'s note\\n{' '.join(words)}',{label}")
        (folder / f"ReutersCorn-{half}.arff").write_text("\n".join(lines) + "\n")


def test_stories_are_read_with_their_quotes(tmp_path):
    write_stories(tmp_path)
    stories, y = text.read(tmp_path, "Corn", "train")
    assert (len(stories), y.tolist()) == (120, [int(i % 6 == 0) for i in range(120)])
    assert stories[0].startswith("The bank's note ")
    rows = text.numbered(["maize bank, maize"], {"maize": 3, "bank": 1})
    assert rows[0, :4].tolist() == [3, 1, 3, 0]


def test_a_small_run_prints_a_line_for_each_model(tmp_path, capsys):
    write_stories(tmp_path)
    text.main(["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out.txt")])
    lines = capsys.readouterr().out.splitlines()
    assert [sum(line.startswith(name) for line in lines) for name in ("counted words", "embeddings")] == [6, 6]
    assert (tmp_path / "out.txt").read_text().splitlines() == lines


# -- torch's weighted mean ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "size"), [(10, 8), (20, 16)])
def test_the_effective_ratio_is_that_of_torchs_gradients(ratio, size):
    """Gradients of torch's loss at logits 0, summed over drawn batches: pull of positives over that of negatives."""
    generator = torch.Generator().manual_seed(0)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, float(ratio)]))
    pulls, counts = torch.zeros(2), torch.zeros(2)
    for _ in range(1500):
        y = (torch.rand(size, generator=generator) < 1 / (1 + ratio)).long()
        logits = torch.zeros(size, 2, requires_grad=True)
        loss(logits, y).backward()
        for k in (0, 1):
            pulls[k] += logits.grad[y == k, 1].abs().sum()
            counts[k] += (y == k).sum()
    found = float((pulls[1] / counts[1]) / (pulls[0] / counts[0])) / ratio
    assert found == pytest.approx(trap.effective_share(ratio, size), rel=0.1)


def test_large_batches_are_right_and_small_ones_are_not():
    assert trap.effective_share(50, 32) == pytest.approx(0.45, abs=0.01)
    assert trap.effective_share(50, 100_000) == pytest.approx(1.0, abs=1e-3)
    assert float(trap.binomial(30, 0.1).sum()) == pytest.approx(1.0, rel=1e-12)

"""The benchmark of imbalanced images: what it draws and measures, and a small run of it."""

import gzip

import numpy as np
import pytest
import torch

from bench.choices import fashion_mnist as images


def test_classes_thin_out_by_the_stated_ratio():
    labels = torch.arange(60_000) % 10
    for ratio in (10, 50, 100):
        rows, y = images.training_rows(f"tail {ratio}", labels, 0, 1.0)
        counts = torch.bincount(y)
        assert counts[0] == 6000
        assert float(counts[0] / counts[9]) == pytest.approx(ratio, rel=0.01)
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


def made(folder, n=300):
    """Images of noise whose brightness is their class, in the format of the package."""
    rng = np.random.default_rng(0)
    for half in ("train", "t10k"):
        y = (np.arange(n) % 10).astype(np.uint8)
        x = np.clip(rng.normal(20 * y[:, None, None] + 20, 30, (n, 28, 28)), 0, 255).astype(np.uint8)
        (folder / f"{half}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + x.tobytes()))
        (folder / f"{half}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + y.tobytes()))


def test_a_run_prints_what_it_measured_and_goes_on(tmp_path, capsys):
    made(tmp_path)
    out = tmp_path / "rows.jsonl"
    small = ["--seeds", "1", "--epochs", "1", "--width", "2", "--share", "0.005", "--tasks", "tail 50"]
    arguments = ["--out", str(out), "--data", str(tmp_path), *small]
    images.main([*arguments, "--methods", images.PLAIN, "weights n^-1"])
    first = capsys.readouterr().out
    rows = images.load(out)
    assert [row["method"] for row in rows] == [
        images.PLAIN,
        images.ADJUSTED,
        f"{images.PLAIN}, balanced",
        "weights n^-1",
        "weights n^-1, balanced",
    ]
    for row in rows:
        assert all(np.isfinite(row[name]) for name in ("log loss", "1/n", "1/√n", "groups"))
    assert "tail 50, 1 seeds" in first
    images.main([*arguments, "--methods", images.PLAIN])
    assert images.load(out) == rows

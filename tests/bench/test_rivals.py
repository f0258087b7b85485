"""The benchmark against other libraries and the scripts of bench/: statistics, metrics, small runs, committed ones."""

import gzip
import hashlib
import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import f1_score, log_loss
from torch import nn

import crcen
from bench.choices import fashion_mnist as images
from bench.choices import reuters_text as text
from bench.rivals import datasets, evaluation, run
from bench.rivals.__main__ import main
from bench.rivals.datasets import LARGE_TABLES, Rows, all_sets, choose_sets, half_of, load_set, protocol_of
from bench.rivals.evaluation import best_threshold, calibration_error, evaluate, log_odds, relative_cost
from bench.rivals.page import Results, write_page
from bench.rivals.peers import PEERS, Peer, Pick, Range, candidates, choose_peers
from bench.rivals.run import Task, benchmark, longest_first
from bench.rivals.search import Deadline, TimeUp, search_rows, selection_loss
from bench.rivals.statistics import bayesian_signed_ranks, corrected_t_test, critical_difference, friedman, mean_ranks
from bench.validity import torch_weight_trap as trap
from crcen.paper.protocol import RunFolder
from processes import run_python

ROOT = Path(__file__).resolve().parents[2]


# -- sets and peers ----------------------------------------------------------------------------------------------------


def test_halves_follow_the_rule_of_their_file():
    def ordered(names):
        return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())

    benchmark_sets = ordered({row.name for row in crcen.list_datasets()} - {"protein_homo"})
    halves = all_sets()
    large = ordered(set(LARGE_TABLES) - set(halves["largest"]))
    for prefix, names in (("", benchmark_sets), ("large-", large)):
        assert halves[f"{prefix}development"] == tuple(names[::2])
        assert halves[f"{prefix}confirmation"] == tuple(names[1::2])
    for one, other in (("abalone", "abalone_19"), ("car_eval_34", "car_eval_4"), ("thyroid_sick", "sick_euthyroid")):
        assert half_of(one) == half_of(other)  # rows in common


def test_sets_and_peers_are_chosen_by_name():
    assert (choose_sets("all", ["flights", "ecoli"]), len(choose_sets())) == (["ecoli", "flights"], 26)
    assert {peer.name for peer in choose_peers("all", multiclass=True)} < set(PEERS)
    for call in (
        lambda: choose_sets("development", ["satimage"]),
        lambda: choose_sets("third"),
        lambda: choose_peers("lightgmb"),
        lambda: choose_peers("rusboost", multiclass=True),
        lambda: protocol_of(["ecoli", "car"]),
    ):
        with pytest.raises(crcen.InvalidParameter):
            call()


def test_a_multiclass_table_is_read_from_keels_format(tmp_path):
    (tmp_path / "newthyroid").mkdir()
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.3f}, 1, 2, 3, {'ab'[i % 2]}, {1 + i % 3}" for i in range(215)]
    head = "@relation r\n" + "@attribute x real\n" * 4 + "@attribute c {a, b}\n@attribute class {1,2,3}\n@data\n"
    (tmp_path / "newthyroid" / "newthyroid.dat").write_text(head + "\n".join(rows) + "\n")
    data = load_set("newthyroid", tmp_path)
    assert (data.X.shape, data.n_classes) == ((215, 5), 3)
    np.testing.assert_array_equal([data.X[:, 4], data.y], [np.arange(215) % 2, np.arange(215) % 3])
    assert np.bincount(load_set("newthyroid", tmp_path, 30).y).min() >= 8


def test_candidates_start_with_the_default_and_fill_the_space():
    space = {"a": Range(0.01, 1.0, log=True), "b": Pick(["x", "y"]), "c": Range(1, 9, integer=True)}
    default = {"a": 5.0, "d": 1}
    found = candidates(default, space, 64)
    assert (found[0], found[:8]) == (default, candidates(default, space, 8))
    assert stats.kstest(np.log([one["a"] / 0.01 for one in found[1:]]) / np.log(100), "uniform").pvalue > 0.5
    assert [{one[name] for one in found[1:]} for name in "bc"] == [{"x", "y"}, set(range(1, 10))]


# -- statistics and metrics --------------------------------------------------------------------------------------------


def test_statistics_agree_with_references():
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 3.0, np.nan], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(mean_ranks(scores), [5.5 / 3, 5.5 / 3, 7 / 3])
    assert critical_difference(5, 1) == pytest.approx(2.728 * np.sqrt(5), rel=1e-3)  # Demšar 2006, Table 5
    table = np.random.default_rng(0).normal(size=(12, 4))
    assert friedman(table) == pytest.approx(stats.friedmanchisquare(*table.T).pvalue)
    left, right = np.random.default_rng(1).normal(size=(2, 4))
    d = left - right
    t, p = corrected_t_test(left, right, 0.25)
    assert t == pytest.approx(d.mean() / (d.std(ddof=1) * np.sqrt(1 / 4 + 1 / 3)))
    assert p == pytest.approx(2 * stats.t.sf(abs(t), 3))
    for left, right, side in ((1, 0, "left"), (1, 1, "rope"), (0, 1, "right")):
        assert getattr(bayesian_signed_ranks(np.full(20, float(left)), np.full(20, float(right))), side) > 0.99


@pytest.mark.parametrize("n_classes", [2, 3])
def test_selection_loss_ignores_intercepts_only(n_classes):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.arange(1.0, n_classes + 1), 5000)
    y = (p.cumsum(1) < rng.random((5000, 1))).sum(1)
    shifted = p * np.arange(1.0, n_classes + 1)[::-1]
    found = selection_loss(y, shifted / shifted.sum(1, keepdims=True))
    assert found == pytest.approx(selection_loss(y, p), abs=1e-6)
    assert found == pytest.approx(log_loss(y, p), abs=2e-3)
    assert selection_loss(y, p**2 / (p**2).sum(1, keepdims=True)) > found
    assert selection_loss(y, np.full_like(p, np.nan)) == np.inf


@pytest.mark.parametrize("metric", ["f1", "g_mean"])
def test_best_threshold_is_found_by_brute_force(metric):
    rng = np.random.default_rng(0)
    p = rng.beta(1, 4, 60).round(2)
    y = (rng.random(60) < p).astype(int)
    found = best_threshold(y, p, metric)

    def score(threshold):
        return getattr(crcen.confusion_counts(y, log_odds(p) > threshold), metric)

    assert score(found) == max(score(threshold) for threshold in [-np.inf, *log_odds(np.unique(p))])
    assert metric != "f1" or score(found) == pytest.approx(f1_score(y, log_odds(p) > found))


def test_costs_and_calibration_have_their_extremes():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 200_000)
    y = (rng.random(len(p)) < p).astype(int)
    assert (relative_cost(y, y.astype(float), 5.0), relative_cost(y, np.zeros(len(y)), 2.0)) == (0.0, 1.0)
    assert relative_cost(y, p, 5.0) < relative_cost(y, p**2, 5.0)
    assert calibration_error(y, p) < 0.02 < 0.3 < calibration_error(y, 2 * p / (1 + p))
    counts = np.array([70, 20, 10])
    inverse, ordinal, dear = evaluation.cost_matrices(counts).values()
    assert (counts @ inverse).tolist() == pytest.approx([200 / 3, 200 / 3, 200 / 3])
    assert (ordinal[0].tolist(), dear[2].tolist()) == ([0, 1, 2], [20, 20, 0])
    jobs, injuries = (datasets.published_costs(name) for name in ("hpc_jobs", "fars"))
    assert (jobs.shape, injuries.shape, datasets.published_costs("car")) == ((4, 4), (8, 8), None)
    assert (jobs[3, 0], jobs[0, 3], injuries[2, 7], injuries[0, 2]) == (10, 1, 11_600_000 - 3_900, 0)


WORK = """
from bench.rivals.search import Deadline, TimeUp
deadline = Deadline(0.3)
try:
    with deadline.within():
        while True:
            pass
except TimeUp:
    print("interrupted", deadline.passed < 5)
"""


def test_a_deadline_interrupts_long_work():
    assert run_python("-c", WORK, cwd=ROOT) == "interrupted True\n"
    with pytest.raises(TimeUp):
        Deadline(0.0).check()


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def toy_sets(monkeypatch, rare_rows):
    """Load toy sets of two classes under any name."""

    def load(name, data_home=None, most_rows=None):
        return Rows(name, *rare_rows(n=240, seed=sum(map(ord, name))))

    monkeypatch.setattr(run, "load_set", load)
    monkeypatch.setattr(run, "_fetch", lambda *arguments: None)
    run._loaded.cache_clear()


def test_a_run_makes_rows_and_resumes(toy_sets, tmp_path, monkeypatch, capsys):
    def failing(setting, seed):
        raise ValueError("no such luck")

    monkeypatch.setitem(PEERS, "logistic", Peer("logistic", "broken", "linear", "scikit-learn", failing))
    command = ["--sets", "ecoli,oil", "--peers", "hist_gb,hist_gb_weighted,logistic", "--splits", "2"]
    command += ["--settings", "2", "--jobs", "1", "--out", str(tmp_path / "run")]
    assert main(command) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * 2 * 3
    for row in rows:
        assert ("error" in row) == (row["peer"] == "logistic")
        if "error" not in row:
            assert row["settings"] == 2
            assert all(0 < row[name] < 2 for name in ("log_loss", "g_mean", "cost_5", "average_precision"))
    assert "ValueError: no such luck" in capsys.readouterr().out
    assert "HistGradientBoosting, weighted" in (tmp_path / "run" / "means_all.md").read_text()
    monkeypatch.setattr(run, "evaluate", None)
    assert (main(command), main([*command, "--settings", "3"])) == (0, 1)
    assert "other settings" in capsys.readouterr().err
    assert main(["--peers", "nobody"]) == 1
    monkeypatch.setattr(run, "evaluate", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main([*command, "--redo", "failed"]) == 130


def test_rows_of_another_run_are_added(toy_sets, tmp_path):
    common = {"sets": ["ecoli"], "splits": 1, "settings": 1, "jobs": 1}
    for name in ("logistic", "hist_gb"):
        benchmark(name, **common, out=tmp_path / name)
    done = benchmark("logistic", **common, out=tmp_path / "logistic", rows_from=[tmp_path / "hist_gb"])
    assert any("HistGradientBoosting" in text for text in done.texts)


def test_a_multiclass_run(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "published_costs", lambda name: 3.0 * (1.0 - np.eye(3)))
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), [150, 35, 30])
    (tmp_path / "multiclass").mkdir()
    np.savez(tmp_path / "multiclass" / "newthyroid.npz", X=rng.normal(size=(215, 5)) + y[:, None], y=y)
    common = {"sets": ["newthyroid"], "splits": 1, "settings": 1, "jobs": 1, "data_home": tmp_path}
    done = benchmark(["crcen", "hist_gb", "hist_gb_weighted"], half="multiclass", **common, out=tmp_path / "run")
    rows = [json.loads(line) for line in (done.folder / "rows.jsonl").read_text().splitlines()]
    assert [row.get("error") for row in rows] == [None] * 3
    assert all(0 < row["cost_inverse"] < 1 and 0 < row["cost_published"] < 1 and row["macro_ap"] > 0.6 for row in rows)
    assert "Mean scores, multiclass tables" in "\n".join(done.texts)
    assert "cost, published: newthyroid" in (done.folder / "means_multiclass.md").read_text()


@pytest.mark.parametrize("name", ["crcen_cv", "committee"])
def test_our_own_searches_give_out_of_fold_probabilities(name, rare_rows, monkeypatch):
    X, y = rare_rows(n=200)
    small = {"hidden": (2,), "l2": 1e-2, "max_epochs": 2, "n_members": 1, "encoding": "standard"}
    kind = crcen.CRCENClassifierCV if name == "crcen_cv" else crcen.CommitteeClassifier
    how = small if name == "crcen_cv" else {"members": ("forest",)}
    peer = Peer(name, name, "neural", "crcen", lambda _, s: kind(None, random_state=s, **how), searches_itself=True)
    row = evaluate(peer, Rows("toy", X, y), 0, {"test_size": 0.25, "folds": 3, "settings": 1, "seed": 0}, 60.0)
    assert "error" not in row, row
    assert 0 < row["threshold_f1"] < 1


def test_scarce_classes_are_always_trained_on():
    y = np.array([0] * 30 + [1] * 12 + [2] * 2)
    rows = search_rows(np.zeros((44, 1)), y, 3, 0, 3)
    for train, held_out in rows.folds:
        assert {42, 43} <= set(train)
        assert set(y[held_out]) == {0, 1}
    assert sorted(np.concatenate([held_out for _, held_out in rows.folds])) == list(range(42))


def test_longest_tasks_come_first():
    rows = [{"dataset": "a", "split": 0, "peer": "x", "processor_fit": 4.0}]
    tasks = [Task("a", 1, "x"), Task("b", 0, "x"), Task("a", 0, "new")]
    assert longest_first(tasks, rows, {"a": 100, "b": 10_000}, 60.0) == [tasks[2], tasks[1], tasks[0]]


# -- the committed runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["benchmark", "costs", "multiclass"])
def test_committed_tables_are_those_of_their_rows(name, tmp_path):
    folder = ROOT / "results" / "rivals" / name
    for file in ("rows.jsonl", "settings.json"):
        shutil.copy(folder / file, tmp_path)
    protocol = json.loads((folder / "settings.json").read_text())
    write_page(RunFolder(tmp_path, protocol, key=("dataset", "split", "peer")), protocol)
    shown = [path.name for path in folder.glob("*.md")]
    assert shown
    for file in shown:
        assert (tmp_path / file).read_text() == (folder / file).read_text(), file
    assert Results([json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]).complete


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
    assert "tail 50, 1 seeds" in capsys.readouterr().out
    rows = images.load(out)
    methods = [images.PLAIN, images.ADJUSTED, f"{images.PLAIN}, balanced", "weights n^-1", "weights n^-1, balanced"]
    assert [row["method"] for row in rows] == methods
    assert all(np.isfinite(row[name]) for row in rows for name in ("log loss", "1/n", "1/√n", "groups"))
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
        pulls += torch.bincount(y, logits.grad[:, 1].abs(), minlength=2)
        counts += torch.bincount(y, minlength=2)
    found = float((pulls[1] / counts[1]) / (pulls[0] / counts[0])) / ratio
    assert found == pytest.approx(trap.effective_share(ratio, size), rel=0.1)


def test_large_batches_are_right_and_small_ones_are_not():
    assert trap.effective_share(50, 32) == pytest.approx(0.45, abs=0.01)
    assert trap.effective_share(50, 100_000) == pytest.approx(1.0, abs=1e-3)
    assert float(trap.binomial(30, 0.1).sum()) == pytest.approx(1.0, rel=1e-12)

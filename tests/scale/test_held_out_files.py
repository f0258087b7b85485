"""fit_files with held-out rows: a committee, and evidence on rows that were used for nothing else."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics
from scipy.special import softmax

pd = pytest.importorskip("pandas")
lightgbm = pytest.importorskip("lightgbm")

import crcen  # noqa: E402
from crcen.commands import fit_files as module  # noqa: E402
from crcen.scale.sources import Chunk  # noqa: E402
from crcen.scale.table_survey import HeldOutRows  # noqa: E402
from crcen.scale.trees import BinnedRows, GrownTrees, grow_trees, plan_trees  # noqa: E402
from crcen.theory.price import Labels  # noqa: E402

N = 4000


def rows(n_classes=2, n=N, seed=0, kind=True):
    """An interaction that trees find, and a linear effect that a network finds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (2.0 * X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=n) > 2.0).astype(int)
    if n_classes == 3:
        y = np.where((y == 0) & (X[:, 2] < -1.0), 2, y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    if kind:
        frame["kind"] = rng.choice(["u", "v", "w"], n)
    return frame.assign(y=y)


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    frame = rows(request.param)
    frame.to_csv(folder / "rows.csv", index=False)
    path = folder / "model.crcen"
    return crcen.fit_files(folder / "rows.csv", target="y", hold_out=0.3, epochs=3, out=path), path, request.param


def test_the_evidence_is_that_of_evaluate_on_rows_that_were_not_trained_on(fitted):
    fit, path, n_classes = fitted
    assert 0.25 * N < fit.n_held_out < 0.35 * N
    assert fit.model.weighting_.counts.sum() == N - fit.n_held_out
    whole, text = json.loads(json.dumps(fit.to_dict())), str(fit)
    assert list(whole)[:5] == ["data", "target", "classes", "rows", "price"]
    assert [member["name"] for member in whole["members"]] == ["networks", "trees", "committee"]
    values = whole["held_out"]["evidence"]
    assert 0.4 * fit.n_held_out < values["rows"] < 0.6 * fit.n_held_out
    if n_classes == 2:
        assert f"found {values['counts']['found']} of {values['counts']['positives']}" in text
    else:
        assert "Cost per row" in text
    assert values["metrics"]["cost_per_1000"]["low"] < values["metrics"]["cost_per_1000"]["high"]
    assert values["key_equation"]["p_value"] > 1e-4
    # No evidence row is a training row, which the fingerprint would recognise.
    assert "are rows of training" not in text
    # Members are better together, and the file is whole.
    board = {one.name: one.log_loss for one in fit.model.estimator_.leaderboard_}
    assert board["committee"] <= min(board["networks"], board["trees"]) + 0.015
    assert fit.model.key_equation_.residual < 1e-10
    new = rows(n_classes, 1000, 7).drop(columns="y")
    np.testing.assert_array_equal(crcen.load(path).predict_proba(new), fit.model.predict_proba(new))


@pytest.mark.parametrize("kind", [True, False])
@pytest.mark.parametrize("clusters", [None, "who"])
def test_every_row_has_one_use_and_clusters_and_copies_stay_together(tmp_path, monkeypatch, kind, clusters):
    frame = rows(kind=kind, n=1500)
    frame = pd.concat([frame, frame[:200]], ignore_index=True).assign(who=lambda f: f.index % 300)
    if clusters is None:
        frame = frame.drop(columns="who")
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    seen = {}

    def fit_stream(source, target, weighting, **settings):
        seen["train"] = np.concatenate([chunk.X[:, 0] for block in source.blocks(300, 1) for chunk in block])
        return crcen.fit_stream(source, target, weighting, **settings)

    class Kept(HeldOutRows):
        def __init__(self, *args):
            super().__init__(*args)
            seen["held out"] = self

    monkeypatch.setattr(module, "fit_stream", fit_stream)
    monkeypatch.setattr(module, "HeldOutRows", Kept)
    fit = crcen.fit_files(tmp_path, target="y", clusters=clusters, hold_out=0.4, epochs=1, hidden=(2,))
    held_out = seen["held out"]
    parts = [seen["train"], held_out.evidence.frame["a"].to_numpy(), held_out.stacking.frame["a"].to_numpy()]
    assert all(len(part) > 200 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(frame["a"]))
    if clusters is None:
        assert not set(parts[0]) & {*parts[1], *parts[2]}
        assert not set(parts[1]) & set(parts[2])
    else:
        assert fit.model.clusters_name_ == "who"
        assert "who" not in [column.name for column in fit.model.columns_]
        held = [set(one.frame["who"]) for one in (held_out.evidence, held_out.stacking)]
        train = set(frame[frame["a"].isin(parts[0]) & ~frame["a"].duplicated(keep=False)]["who"])
        assert not train & (held[0] | held[1])
        assert not held[0] & held[1]
        alone = crcen.evaluate_table(fit.model, held_out.evidence.frame, n_resamples=0).metrics["cost_per_1000"]
        together = fit.evidence.metrics["cost_per_1000"]
        assert together.high - together.low > 1.01 * (alone.high - alone.low)  # rows of a cluster are alike in part


def test_a_command_reports_evidence_first_and_networks_alone_remain(fit_command, tmp_path):
    rows().to_csv(tmp_path / "rows.csv", index=False)
    options = ("--epochs", "2", "--budget", "5")
    printed, _ = fit_command(tmp_path / "rows.csv", "y", *options, "--hold-out", "20%", "--memory", "9GB")
    assert printed.index("found ") < printed.index("Columns ")
    assert "trees      weight" in printed
    printed, _ = fit_command(tmp_path / "rows.csv", "y", *options, "--learner", "networks", "--json")
    values = json.loads(printed)
    assert values["members"] == []
    assert values["held_out"]["rows"] == values["held_out"]["evidence"]["rows"] > 0.03 * N


def test_a_small_table_says_why_it_has_no_committee_or_evidence(tmp_path):
    rows(n=150).to_csv(tmp_path / "rows.csv", index=False)
    how = {"target": "y", "epochs": 1, "hidden": (2,)}
    fit = crcen.fit_files(tmp_path / "rows.csv", **how)
    assert "a network alone" in " ".join(fit.notes)
    assert isinstance(fit.model.estimator_, crcen.CRCENClassifier)
    fit = crcen.fit_files(tmp_path / "rows.csv", hold_out=0, **how)
    assert fit.evidence is None
    assert "No evidence from held-out rows" in str(fit)


def test_trees_take_a_share_of_the_rows_that_fits_in_memory():
    X, labels = rows(kind=False)[["a", "b", "c"]].to_numpy(), Labels(np.arange(2), 1)
    whole = plan_trees([X], labels, 10**6, 10**9)
    half = plan_trees([X[:, :2], X[:, 2:]], labels, 10**6, whole.n_bytes // 2)
    assert whole.share == 1.0
    assert 0.3 < half.share < 0.5
    assert half.n_bytes == pytest.approx(whole.n_bytes / 2, rel=0.01)
    np.testing.assert_array_equal(half.sample, whole.sample)
    with pytest.raises(crcen.InvalidParameter, match="memory must have room for 40 rows of 75 bytes and 24,000 bytes"):
        plan_trees([X], labels, 10**6, 600)
    assert plan_trees([X[:30]], labels, 30, 10**9).share == 1.0  # few rows are no lack of memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_the_peak_of_memory_is_within_the_smallest_bound_and_as_announced(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60_000, 3)).round(3), columns=["a", "b", "c"])
    for name, n in (("here", 100), ("there", 20)):
        frame[name] = rng.integers(0, n, len(frame)).astype(str) + "-" + name
    frame["y"] = (frame["a"] + (frame["there"] < "15") + rng.normal(size=len(frame)) > 2).astype(int)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit = [sys.executable, "-m", "crcen", "fit", tmp_path / "rows.csv", "--target", "y", "--engine", "stream"]
    fit += ["--epochs", "1", "--out", tmp_path / "m.crcen", "--memory"]
    code = "import runpy, sys; sys.argv = sys.argv[1:]\ntry: runpy.run_module('crcen', run_name='__main__')\n"
    code += "finally: print(open('/proc/self/status').read())"
    rejected = subprocess.run([*fit, "1MB"], capture_output=True, text=True, check=False)
    assert rejected.returncode == 1
    (smallest,) = re.findall(r"--memory must be at least (\d+) MB for this table", rejected.stderr)
    child = [fit[0], "-c", code, *fit[2:], f"{smallest}MB"]
    printed = subprocess.run(child, capture_output=True, text=True, check=True).stdout
    peak = 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", printed)[0])
    (announced,) = re.findall(r"the fit uses about (\d+) MB of at most", printed)
    assert peak <= int(smallest) * 1e6
    assert peak == pytest.approx(int(announced) * 1e6, rel=0.1)


def coded(n_classes, folder):
    frame = rows(n_classes, kind=False)
    X, y = frame[["a", "b", "c"]].to_numpy(), frame["y"].to_numpy()
    labels = Labels(np.arange(n_classes), 1 if n_classes == 2 else None)
    plan = plan_trees([X[:1000]], labels, 3000, 10**9, seed=3)
    chunks = [Chunk(X[i : i + 700], y[i : i + 700], np.ones(len(X[i : i + 700])), "rows") for i in (0, 700, 1400, 2100)]
    return plan, BinnedRows(plan, [chunks], folder), X, y, (plan.codes(X[2800:]), labels.target(y[2800:]))


def test_errors_of_rows_are_not_those_of_the_folder(tmp_path):
    plan = coded(2, tmp_path)[0]

    def unreadable():
        raise crcen.exceptions.DataUnavailable("rows.parquet was changed while it was in use.")
        yield

    with pytest.raises(crcen.exceptions.DataUnavailable, match=r"^rows.parquet was changed"):
        BinnedRows(plan, [unreadable()], tmp_path)
    with pytest.raises(crcen.InvalidParameter, match="room for 0 of the rows, which repeat, so that none was drawn"):
        BinnedRows(replace(plan, share=0.0), [[Chunk(np.ones((9, 3)), np.ones(9), np.ones(9), "rows")]], tmp_path)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_are_those_of_lightgbm_in_values_of_the_columns(tmp_path, n_classes):
    plan, binned, X, y, held_out = coded(n_classes, tmp_path)
    assert binned.codes.shape == (2800, 3)
    assert list(tmp_path.iterdir()) == []  # the file of bin numbers disappears with the process
    grown = grow_trees(plan, binned, held_out, GrownTrees())
    model = lightgbm.Booster(model_str=grown.models[0])
    raw = model.predict(plan.codes(X).astype(float), raw_score=True, num_iteration=grown.n_best)
    found = grown.ensemble(plan).logits(X)
    np.testing.assert_allclose(found[:, 1] if n_classes == 2 else found, raw, rtol=0, atol=1e-9)
    # As good as LightGBM with bins of its own on the same rows in memory.
    params = {key: value for key, value in plan.params().items() if key not in ("min_data_in_bin",)} | {"seed": 3}
    whole = lightgbm.train(params, lightgbm.Dataset(X[:2800], y[:2800]), grown.n_best)
    assert min(grown.losses) < 1.05 * sklearn.metrics.log_loss(y[2800:], whole.predict(X[2800:]))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_continue_from_a_checkpoint(tmp_path, monkeypatch, n_classes):
    monkeypatch.setattr("crcen.scale.trees._TREES_PER_CHECKPOINT", 10)
    plan, binned, X, _, held_out = coded(n_classes, tmp_path)
    path = tmp_path / "trees.checkpoint"

    def killed(grown):
        grown.write(path)
        if len(grown.losses) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grow_trees(plan, binned, held_out, GrownTrees("this"), killed)
    start = GrownTrees.read(path, "this")
    assert len(start.losses) == 20
    assert GrownTrees.read(path, "another fit").losses == []
    whole = grow_trees(plan, binned, held_out, GrownTrees("this"))
    resumed = grow_trees(plan, binned, held_out, start)
    assert resumed.losses[:20] == whole.losses[:20]
    assert resumed.models[0] == start.models[0]
    assert min(resumed.losses) == pytest.approx(min(whole.losses), rel=0.03)
    # The loss after the restart is that of all trees together.
    logits = resumed.ensemble(plan).logits(X[2800:])
    loss = sklearn.metrics.log_loss(held_out[1].astype(int), softmax(logits, axis=1))
    assert loss == pytest.approx(min(resumed.losses), rel=1e-6)


def test_a_killed_fit_continues_with_its_storage(tmp_path, monkeypatch):
    monkeypatch.setattr("crcen.scale.trees._TREES_PER_CHECKPOINT", 10)
    rows().to_csv(tmp_path / "rows.csv", index=False)
    how = {"target": "y", "epochs": 1, "hidden": (2,), "hold_out": 0.3, "storage": tmp_path / "run"}
    write, grow, starts = GrownTrees.write, module.grow_trees, []

    def killed(grown, path):
        write(grown, path)
        raise KeyboardInterrupt

    def recorded(*args, **kwargs):
        starts.append(len(args[3].losses))
        return grow(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(GrownTrees, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            crcen.fit_files(tmp_path / "rows.csv", **how)
    monkeypatch.setattr(module, "grow_trees", recorded)
    fit = crcen.fit_files(tmp_path / "rows.csv", **how)
    assert starts == [10]
    assert fit.evidence is not None
    assert not any(one.is_dir() for one in (tmp_path / "run").iterdir())

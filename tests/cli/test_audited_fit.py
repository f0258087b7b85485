"""`fit` and `look` on rows that have labels by audits: weights of 1 / probability, and labels where a model alarmed."""

import numpy as np
import pandas as pd
import pytest

import crcen

LABELS = {2: ["no", "yes"], 3: ["fine", "worn", "broken"]}


def audited(n_classes=2, n=2000, seed=0):
    """Rows of which a part has labels: all with a high score, others with probability 0.2."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    kind = (rng.random(n) < 1 / (1 + np.exp(2.0 - 1.2 * a))).astype(int)
    kind += (n_classes == 3) * (kind == 1) * (b > 0.5)
    e = np.where(a > 1.0, 1.0, 0.2)
    y = np.array(LABELS[n_classes])[kind]
    truth = pd.DataFrame({"a": a.round(4), "b": b.round(4), "e": e, "y": y})
    return truth, truth.assign(y=truth["y"].where(rng.random(n) < e))


@pytest.fixture
def arguments(tmp_path):
    """The arguments of a fit, whose rows are written."""

    def written(frame, *options):
        frame.to_csv(tmp_path / "rows.csv", index=False)
        return ("fit", tmp_path / "rows.csv", "--target", "y", "--quick", "--out", tmp_path / "m.crcen", *options)

    return written


@pytest.fixture
def fit(answer, arguments):
    return lambda frame, *options: answer(*arguments(frame, *options))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_count_one_over_their_probability(fit, answer, tmp_path, n_classes):
    truth, rows = audited(n_classes)
    found = fit(rows, "--audited", "e")
    known = rows[rows["y"].notna()]
    weights = (1 / known["e"]).groupby(known["y"]).sum()
    assert found["rows"]["by_class"] == pytest.approx([weights[label] for label in found["classes"]])
    selection = found["selection"]
    assert (selection["n_unlabelled"], selection["largest_weight"]) == (rows["y"].isna().sum(), None)
    assert "e" not in found["columns_used"]
    assert f"{rows['y'].isna().sum():,} rows without a value of y are unlabelled" in " ".join(found["notes"])
    # Unlabelled rows are not negative: without them the model is the same.
    new, probabilities = truth[:50], crcen.load(tmp_path / "m.crcen").predict_proba(truth[:50])
    fit(known, "--audited", "e")
    np.testing.assert_array_equal(crcen.load(tmp_path / "m.crcen").predict_proba(new), probabilities)
    # The mean probability of all rows is near the true share, and far from that of the labelled rows.
    shares = truth["y"].value_counts(normalize=True)
    rarest = found["classes"].index("yes" if n_classes == 2 else "broken")
    mean = crcen.load(tmp_path / "m.crcen").predict_proba(truth)[:, rarest].mean()
    label = found["classes"][rarest]
    among_labelled = known["y"].value_counts(normalize=True)[label]
    assert abs(mean - shares[label]) < 0.5 * (among_labelled - shares[label])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    look = answer("look", tmp_path / "rows.csv", "--target", "y", "--audited", "e")
    assert look["rows"] == len(known)
    assert look["shares"][label]["low"] < shares[label] < look["shares"][label]["high"]


@pytest.mark.parametrize(("cell", "got"), [(0, "0"), (1.5, "1.5"), (None, "a missing cell"), ("often", "'often'")])
def test_impossible_probabilities_are_rejected_with_their_row(refusal, arguments, tmp_path, cell, got):
    _, rows = audited(n=200)
    rows = rows.astype({"e": object})
    at = int(np.flatnonzero(rows["y"].notna())[3])
    rows.loc[at, "e"] = cell
    rows.loc[int(np.flatnonzero(rows["y"].isna())[0]), "e"] = None  # of no matter without a label
    err = refusal(*arguments(rows, "--audited", "e"))
    assert err.startswith("crcen: --audited must be above 0 and at most 1 in rows with a label: e has ")
    assert got.strip("'") in err
    assert f"in row {at + 1}." in err
    assert f"in row {at + 1}." in refusal("look", tmp_path / "rows.csv", "--target", "y", "--audited", "e")


def test_weights_are_cut_if_few_rows_would_carry_all(fit):
    _, rows = audited()
    e = rows["e"].copy()
    e[np.flatnonzero(rows["y"].notna())[:3]] = 1e-4
    found = fit(rows.assign(e=e), "--audited", "e")
    selection = found["selection"]
    assert selection["largest_weight"] < 1e4
    assert selection["effective_rows"] == pytest.approx(0.5 * selection["n_labelled"], rel=1e-6)
    assert "weights of 1 / e were cut at" in found["notes"][0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_of_alarms_only_are_pointed_out(fit, refusal, arguments, tmp_path, n_classes):
    truth, _ = audited(n_classes)
    fit(truth)
    (tmp_path / "m.crcen").rename(tmp_path / "old.crcen")
    old = crcen.load(tmp_path / "old.crcen")
    default = {2: "no", 3: "fine"}[n_classes]
    alarms = old.predict(truth) != default
    found = fit(truth.assign(y=truth["y"].where(alarms)), "--selected-by", tmp_path / "old.crcen")
    assert (found["selection"]["alarm_share"], found["selection"]["quiet_share"]) == (1.0, 0.0)
    assert "nothing can be learned about rows without an alarm" in " ".join(found["notes"])
    every = np.random.default_rng(0).random(len(truth)) < 0.5
    found = fit(truth.assign(y=truth["y"].where(alarms | every)), "--selected-by", tmp_path / "old.crcen")
    assert "nothing can be learned" not in " ".join(found["notes"])
    assert found["selection"]["quiet_share"] == pytest.approx(every[~alarms].mean())
    err = refusal(*arguments(truth, "--audited", "e", "--selected-by", tmp_path / "old.crcen"))
    assert "leave out --selected-by" in err

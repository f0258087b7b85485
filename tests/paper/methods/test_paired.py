"""s2s: which pairs are drawn, what the vote is, and that the probability has the share of pairs taken out."""

import numpy as np
import pytest

from crcen.paper.networks import PairedClassifier


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 8 == 0
    return rng.normal(size=(240, 2)) + 2.0 * y[:, None], np.where(y, "rare", "common")


@pytest.fixture(scope="module")
def model(rows):
    return PairedClassifier(hidden=(8,), max_epochs=3, max_pairs=2000, n_references=5, random_state=0).fit(*rows)


def test_common_pairs_are_capped_at_the_mixed_ones(rows):
    """30 rare and 210 common rows: 44,100 common pairs, 6,300 mixed ones of each order, 900 rare ones."""
    _, y = rows
    drawn = PairedClassifier(max_pairs=10**6)
    first, second, kind = drawn._pairs(y == "rare", np.random.RandomState(0))
    assert drawn.pair_counts_ == {"00": 6300, "01": 6300, "10": 6300, "11": 900}
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == len(first)  # none twice
    is_rare = y == "rare"
    by_hand = np.char.add(is_rare[first].astype(int).astype(str), is_rare[second].astype(int).astype(str))
    np.testing.assert_array_equal(kind, by_hand)


def test_pairs_stay_within_the_bound(model):
    assert model.pair_counts_ == {"00": 2000, "01": 2000, "10": 2000, "11": 900}


def test_the_decision_is_the_vote_of_the_references(model, rows):
    X = rows[0][:6]
    for row, label in zip(X, model.predict(X), strict=True):
        pairs = np.hstack([np.tile(row, (10, 1)), model.references_])
        p = model.model_.predict_proba(pairs)
        alone = sum(p[:, i] for i, name in enumerate(model.model_.classes_) if name.startswith("1"))
        assert label == ("rare" if (alone >= 0.5).mean() >= 0.5 else "common")


def test_the_share_of_pairs_is_taken_out_of_the_probability(model, rows):
    """Among first rows of pairs 2,900 of 6,900 are rare, in the table 30 of 240."""
    X, _ = rows
    factor = (2900 / 4000) / (30 / 210)
    assert model.factor_ == pytest.approx(factor)
    _, mean = model._votes(X)
    p = model.predict_proba(X)[:, list(model.classes_).index("rare")]
    assert p / (1 - p) == pytest.approx(mean / (1 - mean) / factor)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)


def test_it_learns_and_repeats(model, rows):
    X, y = rows
    assert (model.predict(X) == y).mean() > 0.9
    again = PairedClassifier(hidden=(8,), max_epochs=3, max_pairs=2000, n_references=5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))

"""The balance solve for K ≥ 2 classes: closed forms, other root finders, hard cases, copies, refusals."""

from decimal import Decimal, localcontext
from math import exp, fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit

from crcen.exceptions import InvalidInput
from crcen.theory.balance import BalanceRows, balance_shift, class_shifts, solve_balance
from crcen.theory.price import Alpha, CostRatio, Price, softmax

LAMS = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999]


def row_weights(y, lam, sample_weight=None):
    s = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return s * np.where(np.asarray(y) == 1, lam, 1.0 - lam)


def plain_residual(y, logits, weights):
    """|Σ w (y − q)| / Σ w; 1 − q as σ(−o), which keeps its digits."""
    y = np.asarray(y) == 1
    error = np.where(y, expit(-logits), -expit(logits))
    return abs(np.sum(weights * error)) / np.sum(weights)


def two_point_root(pos_weight, neg_weight, pos_logit, neg_logit):
    """The exact shift where each class has one logit, with 60 digits.

    P σ(−(a+d)) = N σ(b+d) with t = e^d is the quadratic N e^a t² + (N − P) t − P e^(−b) = 0, which has one root t > 0.
    """
    with localcontext() as context:
        context.prec = 900
        P, N, a, b = (Decimal(float(v)) for v in (pos_weight, neg_weight, pos_logit, neg_logit))
        square, linear, constant = N * a.exp(), N - P, -P * (-b).exp()
        root = (linear * linear - 4 * square * constant).sqrt()
        t = (-linear + root) / (2 * square) if linear <= 0 else -2 * constant / (linear + root)
        return float(t.ln())


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("logits", [(-40, 40), (40, -40), (40, 40), (-40, -40), (0, 0), (-800, 800), (3, -2)])
def test_two_point_logits_match_the_closed_form(logits, lam):
    n_pos, n_neg = 3, 11
    y = np.r_[np.ones(n_pos), np.zeros(n_neg)]
    values = np.where(y == 1, *map(float, logits))
    shift = balance_shift(y, values, lam)
    assert shift == pytest.approx(two_point_root(n_pos * lam, n_neg * (1 - lam), *logits), abs=1e-12 * (1 + 800))
    assert plain_residual(y, values + shift, row_weights(y, lam)) <= 1e-12


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", LAMS)
def test_shift_is_the_root_that_brentq_finds(lam, weighted):
    rng = np.random.default_rng(7)
    y = rng.random(150) < 0.2
    logits = 4 * rng.normal(size=150) - 2
    s = rng.exponential(size=150) if weighted else np.ones(150)
    w = row_weights(y, lam, s)

    def residual(d):
        return fsum(
            wi / (1 + exp(a + d)) if positive else -wi / (1 + exp(-a - d))
            for wi, a, positive in zip(w, logits, y, strict=True)
        )

    root = brentq(residual, -60, 60, xtol=1e-14, rtol=1e-15)
    assert balance_shift(y, logits, lam, s) == pytest.approx(root, abs=1e-11)


def test_specs_are_resolved_on_the_rows_and_resolved_weightings_kept():
    y = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    logits = np.linspace(-2, 3, 8)
    s = np.array([1.0, 3.0, 1, 1, 1, 1, 2, 2])
    assert balance_shift(y, logits, "balanced") == balance_shift(y, logits, Alpha(1.0))
    assert balance_shift(y, logits, "balanced") == pytest.approx(balance_shift(y, logits, 0.75), abs=1e-14)
    assert balance_shift(y, logits, CostRatio(9.0)) == pytest.approx(balance_shift(y, logits, 0.9), abs=1e-14)
    assert balance_shift(y, logits, None) == balance_shift(y, logits, 0.5)
    # Weighted counts are 4 and 8, so α = 1 is a cost ratio of 2.
    assert balance_shift(y, logits, "balanced", s) == pytest.approx(balance_shift(y, logits, 2 / 3, s), abs=1e-14)
    kept = Price.binary(0.2, 100.0, 100.0)
    assert balance_shift(y, logits, kept) == balance_shift(y, logits, 0.2)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.floats(-700, 700), st.floats(1e-3, 1e3)), min_size=0, max_size=25),
    st.floats(-700, 700),
    st.floats(-700, 700),
    st.floats(0.01, 0.999),
)
def test_residual_is_at_most_1e_12(rows, one_pos, one_neg, lam):
    rows = [(True, one_pos, 1.0), (False, one_neg, 1.0), *rows]
    y, logits, s = (np.array(column) for column in zip(*rows, strict=True))
    shift = balance_shift(y, logits, lam, s)
    assert np.isfinite(shift)
    assert plain_residual(y, logits + shift, row_weights(y, lam, s)) <= 1e-12


@pytest.mark.parametrize(
    ("y", "logits", "weights", "words"),
    [
        ([0, 0, 0], [0.0, 1.0, 2.0], None, "both classes"),
        ([1, 1, 1], [0.0, 1.0, 2.0], None, "both classes"),
        ([1, 0, 0], [0.0, 1.0, 2.0], [0.0, 1.0, 1.0], "both classes"),
        ([1, 0, 0], [0.0, np.nan, 2.0], None, "finite"),
        ([1, 0, 0], [0.0, -np.inf, 2.0], None, "finite"),
        ([1, 0, 0], [0.0, 1.0], None, "shape"),
        ([1, 0, 0], 1.0, None, "shape"),
        ([1, 0, 0], [0.0, 1.0, 2.0], [1.0, 1.0], "sample_weight"),
        ([0, 1, 0], np.zeros((3, 3)), None, "class 2 has none"),
        ([0, 1], np.zeros((3, 3)), None, "one row for each label"),
        ([0, 1], [[0.0, np.inf], [0.0, 0.0]], None, "must be finite"),
    ],
)
def test_rows_that_cannot_be_solved_are_refused(y, logits, weights, words):
    with pytest.raises(InvalidInput, match=words):
        balance_shift(y, logits, None, weights)


# -- K classes -------------------------------------------------------------------------------------------------------


def hard_case(seed, kind, n_classes=None):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7)) if n_classes is None else n_classes
    n = int(rng.integers(k, 60 + k))
    y = np.append(np.arange(k), rng.integers(0, k, n - k))
    o = rng.normal(size=(n, k))
    own = np.eye(k)[y]
    o = {
        "plain": o,
        "right": o + 40 * own,
        "wrong": o - 40 * own,
        "far": 300 * o,
        "pairs": o + 500 * (np.arange(k) // 2 == (y // 2)[:, None]),
        "shifted": o + rng.normal(0, 200, k),
    }[kind]
    return y, o, 10.0 ** rng.uniform(-6, 6, k)


@pytest.mark.parametrize("kind", ["plain", "right", "wrong", "far", "pairs", "shifted"])
@pytest.mark.parametrize("seed", range(25))
def test_hard_cases_are_solved(kind, seed):
    y, o, w = hard_case(seed, kind)
    shifts = balance_shift(y, o, w)
    a = w[y][:, None]
    residual = (a * (np.eye(o.shape[1])[y] - softmax(o + shifts))).sum(0)
    assert np.abs(residual).max() <= 1e-12 * a.sum()
    assert shifts.mean() == pytest.approx(0.0, abs=1e-12 * np.abs(shifts).max())


@pytest.mark.parametrize("n_classes", [2, 4, 100])
def test_rows_in_parts_are_solved_as_all_rows(n_classes):
    rng = np.random.default_rng(0)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, 100))
    logits = rng.normal(size=(len(y), n_classes))
    logs = np.log(rng.uniform(0.1, 3.0, len(y)))
    cuts = [slice(0, 30), slice(30, 31), slice(31, None)]
    parts = solve_balance(BalanceRows(lambda: [(logits[one], y[one], logs[one]) for one in cuts], n_classes))
    whole = class_shifts(y, logits, np.ones(n_classes), np.exp(logs))
    np.testing.assert_allclose(parts - parts.mean(), whole, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_columns_of_two_classes_are_the_binary_solve(seed):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(0, 2, 40))
    o, c, s = rng.normal(0, 10 ** rng.uniform(-2, 2.5), (42, 2)), 10 ** rng.uniform(-3, 3), rng.random(42) + 0.1
    binary = balance_shift(y, o[:, 1] - o[:, 0], CostRatio(c), s)
    assert np.diff(balance_shift(y, o, [1.0, c], s))[0] == pytest.approx(binary, rel=1e-11, abs=1e-11)


def test_weights_of_rows_are_copies_and_order_does_not_matter():
    y, o, w = hard_case(3, "plain", 4)
    copies = np.random.default_rng(0).integers(1, 4, len(y))
    one = class_shifts(y, o, w, copies)
    rng = np.random.default_rng(6)
    target, logits, k = rng.random(40) < 0.4, 3 * rng.normal(size=40), rng.integers(0, 4, 40)  # 0 is absence
    copied = balance_shift(np.repeat(target, k), np.repeat(logits, k), "balanced")
    assert balance_shift(target, logits, "balanced", k) == pytest.approx(copied, abs=1e-12)
    assert one == pytest.approx(class_shifts(np.repeat(y, copies), np.repeat(o, copies, 0), w, None), abs=1e-9)
    assert one == pytest.approx(class_shifts(y[::-1], o[::-1], w, copies[::-1]), abs=1e-9)

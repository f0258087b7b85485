"""The streamed balance solve and key equation against the same on rows in memory."""

import numpy as np
import pytest

from crcen import Lam, balance_shift, resolve
from crcen.exceptions import InvalidInput
from crcen.scale.balance import LogitFile, solve_file, sums_of_file
from crcen.theory.key_equation import key_equation_of_logits

RNG = np.random.default_rng(3)
N = 3000
Y = RNG.random(N) < 0.05
W = np.where(RNG.random(N) < 0.1, 0.0, RNG.uniform(0.1, 5.0, N))


def weighting_of(y, w, lam=0.9):
    return resolve(Lam(lam), w[y].sum(), w[~y].sum())


def filled(folder, logits, y, w, is_weighted=True):
    file = LogitFile(folder, is_weighted=is_weighted)
    for rows in np.split(np.arange(len(y)), [1, 40, 1000]):
        file.add(logits[rows], y[rows], w[rows])
    return file


@pytest.mark.parametrize("spread", [0.01, 3.0, 60.0])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_the_solve_from_a_file_is_exact(tmp_path, monkeypatch, spread, is_weighted):
    monkeypatch.setattr("crcen.scale.balance._ROWS_AT_ONCE", 64)  # several chunks of each class
    logits = RNG.normal(-4.0, spread, N)
    w = W if is_weighted else np.ones(N)
    weighting = weighting_of(Y, w)
    with filled(tmp_path, logits, Y, w, is_weighted) as file:
        shift = solve_file(file, weighting)
        equation = sums_of_file(file, shift, weighting).key_equation(weighting)
    assert not list(tmp_path.iterdir())
    row_weights = weighting.row_weights(Y, w)
    a = logits + shift
    errors = np.where(Y, 1 / (1 + np.exp(a)), -1 / (1 + np.exp(-a)))
    assert abs(row_weights @ errors) / row_weights.sum() < 1e-14
    assert equation.residual < 1e-14
    assert shift == pytest.approx(balance_shift(Y, logits, weighting, w), abs=1e-11)


@pytest.mark.parametrize("shift", [0.0, 1.3])
def test_the_key_equation_of_sums_is_that_of_rows(tmp_path, shift):
    logits, weighting = RNG.normal(-2.0, 2.0, N), weighting_of(Y, W, 0.7)
    with filled(tmp_path, logits, Y, W) as file:
        found = sums_of_file(file, shift, weighting).key_equation(weighting)
    used = W > 0
    truth = key_equation_of_logits(Y[used], logits[used] + shift, weighting, W[used])
    names = ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg", "var_pos", "var_neg", "z", "p_value")
    for name in names:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-10), name
    assert found.z_reason == truth.z_reason == ""


def test_sums_of_workers_merge(tmp_path):
    logits, weighting = RNG.normal(-2.0, 2.0, N), weighting_of(Y, W)
    parts = [slice(0, 100), slice(100, 101), slice(101, N)]
    merged = []
    for i, part in enumerate(parts):
        (tmp_path / str(i)).mkdir()
        with filled(tmp_path / str(i), logits[part], Y[part], W[part]) as file:
            merged.append(sums_of_file(file, 0.5, weighting))
    truth = key_equation_of_logits(Y, logits + 0.5, weighting, W)
    merged = [part for part in merged if part is not None]
    found = sum(merged[1:], merged[0]).key_equation(weighting)
    assert found.residual == pytest.approx(truth.residual, rel=1e-10)
    assert found.var_pos == pytest.approx(truth.var_pos, rel=1e-10)


def test_one_class_and_infinite_logits_are_refused(tmp_path):
    weighting = weighting_of(Y, W)
    with (
        filled(tmp_path, np.zeros(5), np.zeros(5, dtype=bool), np.ones(5)) as file,
        pytest.raises(InvalidInput, match="no positive row"),
    ):
        solve_file(file, weighting)
    with LogitFile(tmp_path, is_weighted=False) as file, pytest.raises(InvalidInput, match="not finite"):
        file.add(np.array([np.inf]), np.array([True]), np.ones(1))

"""The streamed balance solve and key equation against the same on rows in memory, for one worker and several."""

import threading

import numpy as np
import pytest

from crcen import Lam, balance_shift, key_equation, resolve
from crcen.exceptions import InvalidInput
from crcen.scale.balance import LogitFile, solve_file, sums_of_file
from crcen.theory.balance import class_shifts
from crcen.theory.key_equation import key_equation_of_logits
from crcen.theory.price import Price, softmax

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
def test_solve_from_a_file_is_exact(tmp_path, monkeypatch, spread, is_weighted):
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
@pytest.mark.parametrize("cuts", [[], [100, 101]])
def test_key_equation_of_merged_sums_is_that_of_rows(tmp_path, shift, cuts):
    logits, weighting, sums = RNG.normal(-2.0, 2.0, N), weighting_of(Y, W, 0.7), []
    for part in np.split(np.arange(N), cuts):
        with filled(tmp_path, logits[part], Y[part], W[part]) as file:
            sums.append(sums_of_file(file, shift, weighting))
    sums = [part for part in sums if part is not None]
    found = sum(sums[1:], sums[0]).key_equation(weighting)
    used = W > 0
    truth = key_equation_of_logits(Y[used], logits[used] + shift, weighting, W[used])
    names = ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg", "var_pos", "var_neg", "z", "p_value")
    for name in names:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-10), name
    assert found.z_reason == truth.z_reason == ""


def test_one_class_and_infinite_logits_are_rejected(tmp_path):
    weighting = weighting_of(Y, W)
    with (
        filled(tmp_path, np.zeros(5), np.zeros(5, dtype=bool), np.ones(5)) as file,
        pytest.raises(InvalidInput, match="no positive row"),
    ):
        solve_file(file, weighting)
    with LogitFile(tmp_path, is_weighted=False) as file, pytest.raises(InvalidInput, match="not finite"):
        file.add(np.array([np.inf]), np.array([True]), np.ones(1))


def solved_in_step(files, weighting):
    """The solves of both workers in threads, which exchange their arrays at a barrier."""
    barrier, box, results = threading.Barrier(len(files)), [None] * len(files), [None] * len(files)

    def work(rank):
        def gather(own):
            box[rank] = own
            barrier.wait()
            found = list(box)
            barrier.wait()
            return found

        results[rank] = solve_file(files[rank], weighting, gather)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_solve_of_several_workers_and_classes_is_that_of_all_rows(tmp_path):
    rng = np.random.default_rng(1)
    y = np.concatenate([np.arange(4), rng.choice(4, 996, p=[0.7, 0.2, 0.07, 0.03])])
    logits, weight = rng.normal(0, 3, (1000, 4)), rng.uniform(0.1, 3, 1000)
    weighting = Price(np.array([1.0, 2.0, 10.0, 40.0]), np.ones(4))
    files = [LogitFile(tmp_path, 4, is_weighted=True) for _ in range(2)]
    for file, own in zip(files, (slice(0, 300), slice(300, 1000)), strict=True):
        file.add(logits[own], y[own], weight[own])
    results = solved_in_step(files, weighting)
    for shifts in results:
        np.testing.assert_allclose(shifts, class_shifts(y, logits, weighting.weights, weight), atol=1e-10)
    np.testing.assert_array_equal(results[0], results[1])
    sums = [sums_of_file(file, results[0], weighting) for file in files]
    found = (sums[0] + sums[1]).key_equation(weighting)
    expected = key_equation(y, softmax(logits + results[0]), weighting, weight)
    np.testing.assert_allclose(found.flows, expected.flows, rtol=1e-10)
    assert found.pairs.statistic == pytest.approx(expected.pairs.statistic, rel=1e-8)
    for file in files:
        file.__exit__()

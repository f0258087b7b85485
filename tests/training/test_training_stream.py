"""The loop over batches: against torch's own Adam and autograd, against itself restored, and with several workers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from training_reference import adam_by_torch

from crcen.training import stream
from crcen.training.network import NetworkGroup, column_layout, fit_encoding
from crcen.training.recipe import Recipe
from crcen.training.stream import Batch, StreamShape, StreamTrainer, cut_evenly, encoded_rows, spread_order
from processes import ThreadedSum

RNG = np.random.default_rng(0)
X = RNG.normal(size=(97, 3)) * [1.0, 5.0, 0.1] + [0.0, 100.0, 1.0]
Y = X[:, 0] + 0.5 * RNG.normal(size=97) > 1.0
S = RNG.uniform(0.5, 2.0, size=97)
LAM = 0.8
ENCODING = fit_encoding("standard", None, X, Y, S)


@pytest.mark.parametrize("kind", ["standard", "quantile", "steps"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_encoded_rows_are_those_of_the_encoding_rounded_once(kind, order, monkeypatch):
    monkeypatch.setattr(stream, "_NUMBERS_AT_ONCE", 250)  # 97 rows are then encoded in two parts
    encoding = fit_encoding(kind, column_layout(X, kind, 12), X, Y, S)
    found = encoded_rows(encoding, X.copy(order=order))
    np.testing.assert_array_equal(found[:, :-1], encoding(X).astype(np.float32))
    np.testing.assert_array_equal(found[:, -1], 1.0)


def shape(hidden=(4,), activation="tanh", seeds=(7,), epochs=3, total_rows=None, **changes):
    settings = {"hidden": hidden, "activation": activation, "l2": 0.01, "learning_rate": 0.02, "batch_size": 16}
    return StreamShape(3, Recipe(**settings | changes), seeds, epochs * len(X) if total_rows is None else total_rows)


def mean_weight():
    return float(np.mean(S * np.where(Y, LAM, 1 - LAM)))


def batches(rows=slice(None), size=16):
    x, y, s = (torch.from_numpy(a[rows].astype(np.float32)) for a in (encoded_rows(ENCODING, X), Y, S))
    return [Batch(x[part], y[part], s[part]) for part in cut_evenly(len(x), size)]


def trainer(of, all_reduce=None):
    made = StreamTrainer(of, all_reduce=all_reduce)
    made.initialise(-1.0)
    made.weigh(np.array([1 - LAM, LAM]), mean_weight())
    return made


def ran(of, rows=None, n_epochs=1):
    """A trainer that has taken the steps of so many epochs."""
    made = trainer(of)
    for _ in range(n_epochs):
        for batch in rows or batches():
            made.step(batch)
    return made


def flat(one, member=0):
    weights, biases = one.parameters()
    return np.concatenate([p[member].ravel() for p in (*weights, *biases)])


@pytest.mark.parametrize(("hidden", "activation"), [((), "relu"), ((4,), "tanh"), ((5, 3), "gelu")])
def test_the_loop_is_torchs_adam_on_the_documented_objective(hidden, activation):
    one = ran(shape(hidden, activation), n_epochs=3)
    steps, seen, total = [], 0, 3 * len(X)
    for batch in 3 * batches():
        y = batch.y.double()
        w = batch.weight.double() * torch.where(y > 0, LAM, 1 - LAM) / (len(batch) * mean_weight())
        steps.append(((seen + len(batch)) / (total + len(batch)), batch.x[:, :-1].double(), y, w))
        seen += len(batch)
    expected, _ = adam_by_torch(3, hidden, activation, 7, -1.0, 0.01, 0.02, steps)
    np.testing.assert_allclose(flat(one), expected, rtol=2e-3, atol=2e-4)
    assert (one.rows_seen, one.n_steps) == (total, 3 * len(batches()))


def test_a_batchs_gradient_estimates_the_whole_without_bias():
    """The mean of the batches' objectives, each by its share of rows, is the objective of all rows."""
    one, whole = (ran(shape(l2=0.0, learning_rate=1e-30), batches(size=size)) for size in (16, 1000))
    assert one.take_objective() == pytest.approx(whole.take_objective(), rel=1e-6)
    weights = S * np.where(Y, LAM, 1 - LAM)
    logits = NetworkGroup(ENCODING, *map(tuple, whole.parameters()), "tanh").logits(X)[:, 0]
    truth = np.sum(weights * np.logaddexp(0.0, np.where(Y, -logits, logits))) / weights.sum()
    assert whole.losses(batches())[0] == pytest.approx(truth, rel=1e-5)


def test_a_member_of_a_stack_is_the_member_alone():
    together, alone = (ran(shape(seeds=seeds)) for seeds in ((3, 7, 11), (7,)))
    np.testing.assert_allclose(flat(together, 1), flat(alone), rtol=1e-4, atol=1e-6)


def test_a_restored_trainer_goes_on_bit_by_bit():
    through, broken = trainer(shape()), trainer(shape())
    for batch in batches():
        through.step(batch)
    for batch in batches()[:3]:
        broken.step(batch)
    again = StreamTrainer(shape())
    again.restore({name: np.array(values) for name, values in broken.state().items()})
    for batch in batches()[3:]:
        again.step(batch)
    for name, values in through.state().items():
        np.testing.assert_array_equal(again.state()[name], values, err_msg=name)
    assert again.take_objective() == through.take_objective()


def test_without_an_end_the_rate_falls_as_one_over_the_root_of_rows():
    endless = shape(total_rows=0, batch_size=10, learning_rate=0.5)
    assert (endless.rate(0, 10), endless.rate(30_000, 10)) == (0.5, pytest.approx(0.25))


def test_workers_with_uneven_shards_stay_equal_and_lose_no_row():
    group = ThreadedSum(3)
    shards = [slice(0, 40), slice(40, 45), slice(45, 97)]
    made = [trainer(shape(), group.of(rank)) for rank in range(3)]
    losses = [None] * 3

    def work(rank):
        own = iter(batches(shards[rank]))
        while made[rank].step(next(own, None)):
            pass
        losses[rank] = made[rank].losses(batches(shards[rank]))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3), timeout=60))
    assert {one.rows_seen for one in made} == {97}
    for one in made[1:]:
        np.testing.assert_array_equal(flat(one), flat(made[0]))
    # A single worker on the union of each step's batches takes the same steps.
    single = trainer(shape())
    parts = [batches(shard) for shard in shards]
    for i in range(max(len(part) for part in parts)):
        at = [part[i] for part in parts if i < len(part)]
        single.step(Batch(*(torch.cat([getattr(b, name) for b in at]) for name in ("x", "y", "weight"))))
    np.testing.assert_allclose(flat(single), flat(made[0]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(losses[0], single.losses(batches()), rtol=1e-5)


def test_spread_order_is_a_permutation_with_the_positives_apart():
    y = np.zeros(1000, dtype=bool)
    y[:10] = True
    order = spread_order(y, np.random.default_rng(1))
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    assert [int(y[order[i : i + 100]].sum()) for i in range(0, 1000, 100)] == [1] * 10

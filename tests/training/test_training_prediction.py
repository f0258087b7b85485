"""Logits of stored parameters: NumPy alone, the same bits in any batch, and in a forked process."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from training_reference import TORCH_ACTIVATIONS

from crcen import CRCENClassifier, TableClassifier, save
from crcen.training.network import ACTIVATIONS, Network, NetworkGroup, column_layout, fit_encoding
from processes import run_python


def networks(hidden, activation, n_features=7, members=3, encoding="steps"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, n_features))
    layout = column_layout(X, encoding, 12)
    fitted = fit_encoding(encoding, layout, X, X[:, 0] > 1, np.ones(len(X)))
    sizes = (fitted.size, *hidden, 1)
    weights = [rng.normal(size=(members, a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=(members, b)) for b in sizes[1:]]
    return X, NetworkGroup(fitted, tuple(weights), tuple(biases), activation)


def by_torch(X, network):
    """The same with torch, in float64."""
    h, weights, biases = torch.from_numpy(network.encoding(X)), network.weights, network.biases
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        h = TORCH_ACTIVATIONS[network.activation](h @ torch.from_numpy(weight) + torch.from_numpy(bias)[:, None])
    return (h @ torch.from_numpy(weights[-1]) + torch.from_numpy(biases[-1])[:, None])[..., 0].numpy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (1,), (33,), (64, 32)])
def test_logits_are_torchs(hidden, activation):
    X, network = networks(hidden, activation)
    expected = by_torch(X, network)
    np.testing.assert_allclose(network.outputs(X), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_an_unknown_activation_is_an_error_and_overflow_is_infinite():
    X, network = networks((4,), "swish", encoding="standard")
    with pytest.raises(ValueError, match=r"'relu', 'tanh'.*'swish'"):
        network.outputs(X)
    huge = replace(network, weights=tuple(1e200 * weight for weight in network.weights), activation="relu")
    assert not np.isfinite(huge.outputs(X)).all()


# Wider than what one product adds up, than what BLAS takes one thread for, and a single output of many inputs.
@pytest.mark.parametrize(
    ("hidden", "n_features", "encoding"),
    [
        ((64, 32), 30, "steps"),
        ((100,), 30, "standard"),
        ((5,), 700, "standard"),
        ((600, 700), 9, "standard"),
        ((), 600, "robust"),
    ],
)
def test_a_row_has_the_same_bits_in_any_batch(hidden, n_features, encoding):
    X, network = networks(hidden, "relu", n_features, encoding=encoding)
    together = network.outputs(X)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(network.outputs(X[order]), together[:, order])
    np.testing.assert_array_equal(network.outputs(np.asfortranarray(X)), together)
    for size in (1, 2, 15, 16, 17, 333):
        rows = slice(5, 5 + size)
        np.testing.assert_array_equal(network.outputs(X[rows]), together[:, rows])
    own = tuple(w[1] for w in network.weights), tuple(b[1] for b in network.biases)
    alone = Network(network.encoding, *own, "relu")
    np.testing.assert_array_equal(alone.logits(X), together[1])
    several = replace(
        alone,
        weights=(*alone.weights[:-1], alone.weights[-1] @ np.ones((1, 4))),
        biases=(*alone.biases[:-1], np.arange(4.0)),
    )
    np.testing.assert_array_equal(
        np.concatenate([several.logits(X[i : i + 1]) for i in range(9)]), several.logits(X)[:9]
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A saved model, rows, and its probabilities."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    model = CRCENClassifier(max_epochs=3, random_state=0).fit(X, X[:, 0] + rng.normal(size=400) > 1)
    save(model, folder / "model.crcen")
    np.save(folder / "X.npy", X)
    np.save(folder / "p.npy", model.predict_proba(X))
    return folder


PREDICT = """
import sys
import numpy as np
import crcen
folder = sys.argv[1]
model = crcen.load(f"{folder}/model.crcen")
X, expected = np.load(f"{folder}/X.npy"), np.load(f"{folder}/p.npy")
def answer(_):
    return model.predict_proba(np.tile(X, (50, 1)))[: len(X)]
"""


WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Blocked())
"""

LEAN = """
import crcen.commands.environment
from crcen.exceptions import MissingExtra
table = crcen.load(f"{folder}/table.crcen")
print(len(table.predict({"amount": 1.5, "country": "NL"})), len(table.predict_proba([{"amount": 2, "country": "NO"}])))
crcen.predict_table(f"{folder}/table.crcen", f"{folder}/new.csv", out=f"{folder}/scored.csv")
print(crcen.commands.environment.environment_info().device)
for fit in (
    lambda: crcen.CRCENClassifier().fit(X, X[:, 0] > 0),
    lambda: crcen.CRCENClassifierCV().fit(X, X[:, 0] > 0),
    lambda: crcen.CRCENClassifier().partial_fit(X, X[:, 0] > 0, classes=[False, True]),
):
    try:
        fit()
    except MissingExtra as error:
        print(error)
"""


def test_an_installation_without_torch_predicts_the_same_bits_and_says_what_fits_need(files):
    frame = pd.DataFrame({"amount": np.arange(60) % 7 + 0.5, "country": ["NL", "NO", "DE"] * 20})
    table = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(frame, np.arange(60) % 4 == 0)
    save(table, files / "table.crcen")
    frame.to_csv(files / "new.csv", index=False)
    code = WITHOUT_TORCH + PREDICT + "assert (model.predict_proba(X) == expected).all()\n" + LEAN
    lines = run_python("-c", code, files, OMP_NUM_THREADS="8", OPENBLAS_NUM_THREADS="8").splitlines()
    assert lines[0] == "1 1"
    assert len(pd.read_csv(files / "scored.csv")) == 60
    assert "torch is not installed" in lines[1]
    assert len(lines[2:]) == 3
    assert all("crcen[train]" in line for line in lines[2:])


FORK = """
import multiprocessing
if __name__ == "__main__":
    np.ones((1500, 1500)) @ np.ones((1500, 1500))  # BLAS has threads now
    answer(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for p in pool.map_async(answer, range(2)).get(timeout=60):
            assert (p == expected).all()
    print("answered")
"""


FIT = """
import torch
torch.set_num_threads(2)
torch.ones(1500, 1500) @ torch.ones(1500, 1500)  # torch has threads now
fit = np.tile(X, (5, 1)), np.tile(X[:, 0] > 1, 5)
"""
LOADED = "assert (model.predict_proba(X) == expected).all()\nassert 'torch' not in sys.modules\n"
NETWORKS = FIT + "model = crcen.CRCENClassifier(max_epochs=2, random_state=0).fit(*fit)\nexpected = answer(0)\n"
MODULE = f"""{FIT}
layers = torch.nn.Linear(6, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
model = crcen.ModuleClassifier(torch.nn.Sequential(*layers), max_epochs=2, random_state=0).fit(*fit)
expected = answer(0)
"""


@pytest.mark.parametrize("model", [LOADED, NETWORKS, MODULE], ids=["loaded without torch", "networks", "module"])
def test_a_forked_process_predicts_the_same_bits(files, model):
    """As with ``gunicorn --preload``: a forked process has none of its parent's threads."""
    code = PREDICT + model + FORK
    assert run_python("-c", code, files, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2") == "answered\n"

"""The public face: what is exported, from where, and what importing it costs."""

import importlib.metadata
import importlib.resources
import json
from importlib import import_module

import pytest

import crcen
import crcen.exceptions
import crcen.theory.criteria
from processes import run_python


def printed_json(code):
    """The JSON that a fresh interpreter prints."""
    return json.loads(run_python("-c", code))


def test_all_is_sorted_and_short():
    assert crcen.__all__ == sorted(set(crcen.__all__))
    assert len(crcen.__all__) <= 71  # results of functions are imported from their modules


@pytest.mark.parametrize("name", crcen.__all__)
def test_every_name_resolves(name):
    value = getattr(crcen, name)
    assert value is not None
    assert not callable(value) or (value.__name__ == name and value.__doc__)


def test_every_error_is_in_the_reference():
    homes = crcen._MODULE_OF | crcen._STAYING
    assert set(crcen.exceptions.__all__) == {name for name, home in homes.items() if home == "crcen.exceptions"}


def test_dir_lists_every_public_name_before_it_is_loaded_and_nothing_else():
    names = "Lam Alpha CostRatio Budget CRCENClassifier CSMLPClassifier load_dataset stationarity key_equation"
    assert {*names.split(), "posterior", "expense_table", "g_mean", "balance_shift"} <= set(crcen.__all__)
    assert printed_json("import crcen, json; print(json.dumps(dir(crcen)))") == crcen.__all__


@pytest.mark.parametrize(("name", "home"), crcen._STAYING.items())
def test_a_name_that_lives_elsewhere_says_where(name, home):
    value = getattr(import_module(home), name)
    assert (value.__name__, bool(value.__doc__)) == (name, True)
    sentence = f"^module 'crcen' has no attribute '{name}': import it from {home}$"
    with pytest.raises(AttributeError, match=sentence):
        getattr(crcen, name)
    with pytest.raises(ImportError, match=sentence):
        exec(f"from crcen import {name}", {})
    assert not hasattr(crcen, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'crcen' has no attribute 'CRCENClasifier'"):
        crcen.CRCENClasifier  # noqa: B018
    assert not hasattr(crcen, "nothing")
    with pytest.raises(ImportError, match="cannot import name 'CRCENClasifier'"):
        exec("from crcen import CRCENClasifier", {})


LOADED = """
import json, sys
before = set(sys.modules)
{code}
roots = {{name.partition(".")[0] for name in set(sys.modules) - before if "cython_" not in name}}
print(json.dumps(sorted(roots - sys.stdlib_module_names - {{name.partition(".")[0] for name in before}})))
"""

WITH_SCIPY = {"crcen", "numpy", "scipy"}  # which brings modules of its own


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import crcen", {"crcen"}),
        ("import crcen; dir(crcen); crcen.__version__; hasattr(crcen, 'nothing')", {"crcen"}),
        ("import crcen; crcen.InvalidInput", {"crcen"}),
        ("import crcen; crcen.Lam(.5)", {"crcen", "numpy"}),
        ("import crcen; crcen.key_equation([0, 1], [.2, .8], None); crcen.g_mean([0, 1], [0, 1])", {"crcen", "numpy"}),
        ("import crcen; crcen.make_sim1(10, 20)", WITH_SCIPY),
    ],
)
def test_a_name_costs_only_what_it_needs(code, loaded):
    found = set(printed_json(LOADED.format(code=code)))
    assert (found & {*WITH_SCIPY, "torch", "sklearn", "pandas"} if loaded is WITH_SCIPY else found) == loaded


def test_importing_every_name_has_no_side_effects():
    code = """
import json, logging, os, random, sys, warnings
import numpy as np, torch, sklearn.model_selection  # the last one draws from random
def state():
    return [
        repr(random.getstate()), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), dict(os.environ),
        os.getcwd(), sys.path[:], repr(np.geterr()), sys.getrecursionlimit(), torch.get_num_threads(),
        repr(torch.get_default_dtype()),
    ]
def settings():
    return [repr(warnings.filters), repr(logging.root.handlers)]
before = state()
import crcen
between = settings()
crcen.Lam(.5), crcen.make_sim2
is_kept = between == settings()
for name in crcen.__all__: getattr(crcen, name)
print(json.dumps([is_kept, before == state()]))
"""
    assert printed_json(code) == [True, True]


def test_the_version_is_that_of_the_distribution_and_types_are_shipped():
    assert crcen.__version__ == importlib.metadata.version("crcen")
    assert all(importlib.resources.files("crcen").joinpath(file).is_file() for file in ("py.typed", "__init__.pyi"))

"""An equation of which no test is made: everything but z and its p-value."""

import dataclasses
import math

import numpy as np

from crcen import key_equation
from crcen.theory.key_equation import without_test


def test_only_the_test_goes():
    rng = np.random.default_rng(0)
    q = rng.uniform(0.1, 0.9, 200)
    y = (rng.random(200) < q).astype(int)
    given = key_equation(y, q, 0.5)
    shown = without_test(given, "for a reason")
    assert math.isfinite(given.z)
    assert math.isnan(shown.z)
    assert math.isnan(shown.p_value)
    assert shown.z_reason == "for a reason"
    assert "not available: for a reason" in str(shown)
    kept = [f.name for f in dataclasses.fields(given) if f.name not in ("z", "p_value", "z_reason")]
    assert all(getattr(shown, name) == getattr(given, name) for name in kept)
    assert "z =" not in str(shown)

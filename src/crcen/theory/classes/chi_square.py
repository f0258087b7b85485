"""The upper tail of the χ² distribution, by the series and the continued fraction of the incomplete gamma function."""

import math

__all__ = ["chi_square_tail"]

_ENOUGH = 10_000
_TINY = 1e-300


def chi_square_tail(value: float, degrees: int) -> float:
    """P(χ² with so many degrees of freedom > value)."""
    if math.isnan(value):
        return math.nan
    if value <= 0.0:
        return 1.0
    a, x = 0.5 * degrees, 0.5 * value
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1.0:
        return max(0.0, 1.0 - scale * _series(a, x))
    return scale * _fraction(a, x)


def _series(a: float, x: float) -> float:
    """Σ x^k / (a (a+1) … (a+k))."""
    term = total = 1.0 / a
    for k in range(1, _ENOUGH):
        term *= x / (a + k)
        total += term
        if term < total * 1e-17:
            break
    return total


def _fraction(a: float, x: float) -> float:
    """Lentz's method for the continued fraction of the upper tail."""
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / b
    value = d
    for k in range(1, _ENOUGH):
        step = -k * (k - a)
        b += 2.0
        d = 1.0 / _away_from_zero(step * d + b)
        c = _away_from_zero(b + step / c)
        value *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

"""How a person states what a miss is worth: four value objects for one number, and the plain forms they stand for."""

import difflib
import math
import numbers
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from crcen.exceptions import InvalidParameter

__all__ = ["Alpha", "Budget", "CostRatio", "Lam", "NotYetAPrice", "Spec", "as_spec", "positive_number"]


def _real_number(value: object, name: str, allowed: str) -> float:
    """Return `value` as a float (NaN and infinities included), or say why it is not one number."""
    if isinstance(value, bool | np.bool_):
        meant = '"balanced"' if value else "None, plain cross entropy"
        raise InvalidParameter(f"{name} must be {allowed}, got the truth value {bool(value)}: did you mean {meant}?")
    if isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str):
        raise InvalidParameter(f"{name} must be {allowed}, got the text {value!r}: did you mean a number?")
    if isinstance(value, _Spec):
        raise InvalidParameter(f"{name} must be {allowed}, got {value!r}: did you mean {value!r} by itself?")
    got = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise InvalidParameter(f"{name} must be {allowed}, got {got}: did you mean one plain number?")


def positive_number(value: object, name: str) -> float:
    """Check that `value` is one finite number above 0.

    Parameters
    ----------
    value : object
        What a caller passed.
    name : str
        What the value is called in the error message.

    Returns
    -------
    float
        The value as a plain float.

    Raises
    ------
    InvalidParameter
        If it is anything else.
    """
    allowed = "a finite number above 0"
    number = _real_number(value, name, allowed)
    if not math.isfinite(number):
        raise InvalidParameter(f"{name} must be {allowed}, got {number}: did a computation before it overflow?")
    if number == 0.0:
        raise InvalidParameter(f"{name} must be {allowed}, got 0: did you mean a small number above 0?")
    if number < 0.0:
        raise InvalidParameter(f"{name} must be {allowed}, got {number:.12g}: did you mean {-number:.12g}?")
    return number


@dataclass(frozen=True, repr=False)
class _Spec:
    """One positive number with a name; the name decides what it means."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", positive_number(self.value, type(self).__name__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Lam(_Spec):
    """The weight λ of the positive class; negative rows weigh 1 − λ.

    Parameters
    ----------
    value : float
        Strictly between 0 and 1; ½ is plain cross entropy.
    """

    def __post_init__(self) -> None:
        allowed = "a number strictly between 0 and 1"
        lam = _real_number(self.value, "λ", allowed)
        if not math.isfinite(lam):
            raise InvalidParameter(f"λ must be {allowed}, got {lam}: did a computation before it overflow?")
        if lam > 1.0:
            text = f"{lam:.12g}"
            raise InvalidParameter(f"λ must be {allowed}, got {text}: did you mean Alpha({text}) or CostRatio({text})?")
        if lam == 1.0:
            raise InvalidParameter(f'λ must be {allowed}, got 1: did you mean None (λ = ½) or "balanced" (Alpha(1))?')
        if lam <= 0.0:
            raise InvalidParameter(
                f"λ must be {allowed}, got {lam:.12g}: did you mean None, plain cross entropy, which is λ = ½?"
            )
        object.__setattr__(self, "value", lam)


class Alpha(_Spec):
    """The paper's multiplier α = cost ratio · n_pos / n_neg; Alpha(1) is "balanced".

    Parameters
    ----------
    value : float
        Finite and above 0. It becomes a λ only with the class counts.
    """


class CostRatio(_Spec):
    """What one missed positive costs in units of one false alarm: λ / (1 − λ).

    Parameters
    ----------
    value : float
        Finite and above 0; 1 is plain cross entropy.
    """


class Budget(_Spec):
    """How many false alarms one more catch may cost at most: the cost ratio, seen from the decision.

    Parameters
    ----------
    value : float
        Finite and above 0. A budget B needs λ = B / (1 + B); it is the price of the last catch, not of the average.
    """


class NotYetAPrice:
    """What is asked of decisions in other words than a price; see `crcen.theory.wishes`."""

    # Where it can be used instead of where it was.
    use: ClassVar[str] = ""


Spec: TypeAlias = Lam | Alpha | CostRatio | Budget


def as_spec(weighting: object) -> Spec:
    """Turn any plain way to state a weighting into its spec.

    Parameters
    ----------
    weighting : Lam, Alpha, CostRatio, Budget, float, "balanced" or None
        A plain number is λ, None is λ = ½ and "balanced" is α = 1.

    Returns
    -------
    Lam, Alpha, CostRatio or Budget
        The same statement as a value object.

    Raises
    ------
    InvalidParameter
        If it means nothing, with a guess of what was meant.
    """
    if weighting is None:
        return Lam(0.5)
    if isinstance(weighting, Lam | Alpha | CostRatio | Budget):
        return weighting
    if isinstance(weighting, str):
        return _spec_from_text(weighting)
    if isinstance(weighting, NotYetAPrice):
        raise InvalidParameter(f"{weighting!r} is no price by itself: {weighting.use}")
    if isinstance(weighting, dict):
        raise InvalidParameter(
            f"a weighting here must be a number or a spec, got the dict {weighting!r}: did you mean "
            "CostRatio(weight of the positive class / weight of the negative class)?"
        )
    if isinstance(weighting, type) and issubclass(weighting, _Spec):
        name = weighting.__name__
        raise InvalidParameter(f"a weighting needs a number, got the class {name}: did you mean {name}(0.5)?")
    return Lam(weighting)  # type: ignore[arg-type]  # Lam refuses what is not a number, with a guess


def _spec_from_text(text: str) -> Spec:
    """Read "balanced"; for any other text guess what was meant."""
    if text == "balanced":
        return Alpha(1.0)
    allowed = 'a weighting given as text must be "balanced"'
    try:
        float(text)
    except ValueError:
        if difflib.get_close_matches(text.lower(), ["balanced"]):
            raise InvalidParameter(f'{allowed}, got {text!r}: did you mean "balanced"?') from None
        raise InvalidParameter(
            f'{allowed}, got {text!r}: did you mean "balanced", None (plain cross entropy), '
            "or a number such as CostRatio(10)?"
        ) from None
    raise InvalidParameter(f"{allowed}, got {text!r}: did you mean the number {text.strip()} without quotes?")

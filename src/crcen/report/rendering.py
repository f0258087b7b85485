"""Parts that every page shares: templates, numbers as text, file names, content security policy, embedded data."""

import base64
import hashlib
import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import resources
from typing import Any, TypeAlias

from crcen._support.values import Values
from crcen.theory.rows import short

Jinja: TypeAlias = Any  # no type checker sees jinja2


def asset(name: str) -> str:
    """The text of a template, a style or a script of this package."""
    return resources.files("crcen.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Jinja:
    """Jinja2 with everything escaped that a template does not mark as safe."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(count=count, digits=digits, logit=_logit, percent=percent, shortened=partial(short, most=80))
    made.globals.update(scale=scale, round_ticks=round_ticks)
    return made


def rendered(template: str, parts: Mapping[str, object], style: str, script: str = "") -> str:
    """A page whose content security policy allows its style and script alone; all other values are escaped.

    ``parts`` may replace style and script by marks that a script fills in later.
    """

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = digest(script) if script else "'none'"
    policy = f"default-src 'none'; style-src {digest(style)}; script-src {allowed}; img-src data:"
    values = {"style": style, "script": script, **parts, "policy": policy}
    return str(_environment().get_template(template).render(**values))


def page_names(title: str | None, data_name: object, model_path: object, end: str) -> dict[str, str | None]:
    """What the page calls itself, its rows and its model, and the command that it shows."""
    data, model = _last_part(data_name), _last_part(model_path)
    return {
        "title": title or (f"Report on {data}" if data else "Report on a rare-event model"),
        "data": data,
        "model": model,
        "command": f"crcen predict {shlex.quote(model or 'model.crcen')} new.csv {end}",
    }


def embedded(data: Mapping[str, object]) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def count(value: float | None) -> str:
    """A count: whole where it is whole, one digit where weights make it a sum."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def digits(value: float | None, places: int = 3) -> str:
    """A number to a few significant digits, without an exponent."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10**places:
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.0f}"  # years have no comma
    if abs(value) >= 1e-4:
        return f"{value:.{places}g}"
    return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}" if abs(value) >= 1e-7 else "0"


def percent(value: float | None) -> str:
    """A share as a percentage, with more digits near both ends."""
    if value is None:
        return "–"
    scaled = 100.0 * value
    if 0.0 < scaled < 1.0 or 99.0 < scaled < 100.0:
        return f"{scaled:.2f}\u00a0%"
    return f"{scaled:.3g}\u00a0%" if scaled < 10.0 else f"{scaled:.0f}\u00a0%"


def scale(low: float, high: float, start: float, end: float, digits: int = 1) -> Callable[[float], float]:
    """From values to positions."""
    span = high - low if high > low else 1.0
    return lambda value: round(start + (end - start) * (value - low) / span, digits)


def round_ticks(low: float, high: float, wanted: int = 3) -> list[float]:
    """About this number of round numbers between two ends, 1, 2 or 5 times a power of ten apart; zero if inside."""
    span = high - low
    if not span > 0.0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(one * unit for one in (1.0, 2.0, 5.0, 10.0) if one * unit >= 0.999 * span / wanted)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{number * step:.6g}") for number in numbers]


def _logit(p: float, low: float = -math.inf, high: float = math.inf) -> float:
    """The log-odds between two ends, which are finite for 0 and 1."""
    p = min(max(p, 1e-5), 1.0 - 1e-5)
    return min(max(math.log(p / (1.0 - p)), low), high)


def _last_part(name: object) -> str | None:
    return re.split(r"[\\/]", str(name).rstrip("\\/"))[-1] if name else None


def certificate_schema() -> Values:
    """The JSON Schema of certificates."""
    return dict(json.loads(asset("certificate.schema.json")))


def certificate_page(content: Values) -> str:
    """The content of a certificate as one HTML page without scripts; the same content gives the same bytes."""
    return rendered("certificate.html.j2", {"content": content}, asset("certificate.css"))

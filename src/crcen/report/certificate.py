"""The printable page of a certificate, made from its JSON content alone."""

from collections.abc import Mapping
from typing import Any

from crcen.report.rendering import asset, environment, policy

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b2733; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #d9dee4; }
.pass { color: #11632f; } .fail { color: #a3161f; } .undecided { color: #775400; }
.verdict { font-weight: 600; white-space: nowrap; } .part td:first-child { padding-left: 1.2rem; }
.lead { font-size: 1.15rem; } .hash { font-family: ui-monospace, monospace; font-size: .8rem; word-break: break-all; }
.quiet { color: #56616d; font-size: .9rem; } svg { display: block; max-width: 100%; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } h2 { break-after: avoid; }
tr { break-inside: avoid; } }
"""
_WIDTH, _HEIGHT, _EDGE = 300.0, 34.0, 8.0


def certificate_schema() -> dict[str, Any]:
    """The JSON Schema of certificates."""
    import json

    return dict(json.loads(asset("certificate.schema.json")))


def certificate_page(content: Mapping[str, Any]) -> str:
    """The content of a certificate as one HTML page without scripts; the same content gives the same bytes."""
    shares = [one for one in content["criteria"] if one["threshold"] is not None]
    return str(
        environment()
        .from_string(asset("certificate.html.j2"))
        .render(
            content=content,
            style=_STYLE,
            policy=policy(_STYLE).replace("script-src ;", "script-src 'none';"),
            charts={one["criterion"]: _interval_chart(one) for one in shares},
            plots=[{"label": one["label"], **_reliability(one["bins"])} for one in content["calibration"]],
        )
    )


def _interval_chart(one: Mapping[str, Any]) -> dict[str, Any] | None:
    """Positions of estimate, interval and threshold of all rows and of each group on one scale."""
    rows = [one, *one["groups"]]
    known = [part for part in rows if part["estimate"] is not None and part["interval"]["low"] is not None]
    if not known:
        return None
    ends = [end for part in known for end in (part["interval"]["low"], part["interval"]["high"])]
    low, high = min([*ends, one["threshold"]]), max([*ends, one["threshold"]])
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return round(_EDGE + (value - low) / span * (_WIDTH - 2 * _EDGE), 2)

    lines = [
        {
            "name": f"{part['column']} = {part['group']}" if "column" in part else "all rows",
            "verdict": part["verdict"],
            "low": place(part["interval"]["low"]),
            "high": place(part["interval"]["high"]),
            "at": place(part["estimate"]),
        }
        for part in known
    ]
    return {"lines": lines, "threshold": place(one["threshold"]), "low": low, "high": high}


def _reliability(bins: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Points of predicted against observed shares."""
    top = max([1e-9, *(end for part in bins for end in (part["predicted"], part["high"]))])
    size = 220.0

    def place(value: float) -> float:
        return round(value / top * size, 2)

    points = [
        {
            "x": place(part["predicted"]),
            "y": round(size - place(part["observed"]), 2),
            "low": round(size - place(part["low"]), 2),
            "high": round(size - place(part["high"]), 2),
        }
        for part in bins
    ]
    return {"points": points, "top": top}

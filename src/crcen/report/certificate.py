"""The printable page of a certificate, made from its JSON content alone."""

import json

from crcen._support.values import Values
from crcen.report.charts import scale
from crcen.report.rendering import asset, rendered


def certificate_schema() -> Values:
    """The JSON Schema of certificates."""
    return dict(json.loads(asset("certificate.schema.json")))


def certificate_page(content: Values) -> str:
    """The content of a certificate as one HTML page without scripts; the same content gives the same bytes."""
    shares = [one for one in content["criteria"] if one["threshold"] is not None]
    charts = {one["criterion"]: _interval_chart(one) for one in shares}
    plots = [{"label": one["label"], **_reliability(one["bins"])} for one in content["calibration"]]
    parts = {"content": content, "charts": charts, "plots": plots}
    return rendered("certificate.html.j2", parts, asset("certificate.css"))


def _interval_chart(one: Values) -> Values | None:
    """Positions of estimate, interval and threshold of all rows and of each group on one scale."""
    known = [part for part in (one, *one["groups"]) if None not in (part["estimate"], part["interval"]["low"])]
    if not known:
        return None
    ends = [one["threshold"], *(part["interval"][end] for part in known for end in ("low", "high"))]
    low, high = min(ends), max(ends)
    place = scale(low, high if high > low else low + 1.0, 8.0, 292.0, digits=2)
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


def _reliability(bins: list[Values]) -> Values:
    """Points of predicted against observed shares."""
    top = max([1e-9, *(part[end] for part in bins for end in ("predicted", "high"))])
    across, up = scale(0.0, top, 0.0, 220.0, digits=2), scale(0.0, top, 220.0, 0.0, digits=2)
    points = [
        {"x": across(part["predicted"]), "y": up(part["observed"]), "low": up(part["low"]), "high": up(part["high"])}
        for part in bins
    ]
    return {"points": points, "top": top}

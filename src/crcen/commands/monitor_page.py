"""The page of a watch: the result of each call and the running evidence, as one self-contained HTML file."""

import base64
import hashlib
import math
from html import escape
from importlib import resources
from typing import Any

from crcen.report.charts import round_ticks

__all__ = ["monitor_page"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640.0, 220.0, 52.0, 30.0
_SHOWN_CALLS = 60

_STYLE = """
svg { width: 100%; max-width: 720px; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--quiet); }
svg .axis { stroke: var(--line); }
svg .bar { stroke: var(--warn); stroke-dasharray: 5 4; }
svg .line { stroke: var(--neg); fill: none; stroke-width: 2; }
svg .dot { fill: var(--neg); }
svg .dot.odd { fill: var(--pos); }
svg .band { stroke: var(--neg); stroke-opacity: 0.45; stroke-width: 3; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.text, td.text { text-align: left; white-space: normal; }
"""


def monitor_page(watch: Any, state: Any) -> str:
    """The page after a call.

    Parameters
    ----------
    watch : TableWatch
        The result of the call.
    state : MonitorState
        All calls so far, this one among them.
    """
    style = resources.files("crcen.report").joinpath("report.css").read_text(encoding="utf-8") + _STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    word, badge = ("Alarm", "warning") if watch.is_alarm else ("Quiet", "passed")
    lead = f"{state.n_calls} calls, the last one {escape(watch.data)}"
    parts = [
        _section("now", "The last call", _now(watch)),
        _section("labels", "What labels say", _labels(watch, state)),
        _section("columns", "What the columns say", _differences(state)),
        _section("expected", "What is expected without labels", _expected(state)),
        _section("calls", "All calls", _table(state.history[-_SHOWN_CALLS:])),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{word}: watch of a model</title><style>{style}</style></head><body>"
        f'<header><p class="brand">crcen watch</p><h1>Watch of a model</h1>'
        f'<p class="lead">{lead} <span class="badge {badge}">{word}</span></p></header>'
        f"<main>{''.join(parts)}</main></body></html>\n"
    )


def _section(name: str, title: str, content: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{content}</section>'


def _now(watch: Any) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="text">{title}</th><td class="text">{"<br>".join(map(escape, texts))}</td></tr>'
        for title, texts in watch.parts().items()
    )
    notes = "".join(f'<p class="help">Note: {escape(note)}.</p>' for note in watch.notes)
    return f"<table><tbody>{rows}</tbody></table>{notes}"


def _labels(watch: Any, state: Any) -> str:
    readings = state.monitor.history[None]
    if not readings:
        return "<p>No label has been counted yet.</p>"
    bar = -math.log(state.monitor.false_alarm_rate)
    points = [(float(reading.batch), reading.log_evidence / math.log(10.0)) for reading in readings]
    said = (
        f"Labels: {watch.label_sentence}. Evidence above the dashed line is an alarm; without a change it ever gets "
        f"there with a probability of at most {state.monitor.false_alarm_rate:g}."
    )
    alarms = "".join(f"<p><strong>Alarm:</strong> {escape(str(alarm))}.</p>" for alarm in state.monitor.alarms)
    chart = _chart(points, bar / math.log(10.0), "evidence of a change, powers of ten", "calls with labels")
    return f"<p>{escape(said)}</p>{alarms}{chart}"


def _differences(state: Any) -> str:
    found = [call for call in state.history if call.get("unlike")]
    if not found:
        return "<p>In no call did the columns differ from those of training more than chance allows.</p>"
    items = "".join(
        f"<li>{escape(str(call.get('when')))} (call {call.get('call')}): "
        f"{escape('; '.join(str(one.get('sentence')) for one in call['unlike']))}</li>"
        for call in reversed(found[-_SHOWN_CALLS:])
    )
    return f"<ul>{items}</ul>"


def _expected(state: Any) -> str:
    text = (
        "Precision, recall and cost that the probabilities themselves make likely, with the middle 95 % of chance. "
        "This assumes that the probabilities are still right: columns may move, but what they say about the label must "
        "not have changed. Only labels can tell whether it has."
    )
    charts = []
    for name, title in (("precision", "precision"), ("recall", "recall"), ("cost_per_1000", "cost per 1,000 rows")):
        points, bands = [], []
        for call in state.history[-_SHOWN_CALLS:]:
            one = (call.get("expected") or {}).get(name) or {}
            if isinstance(one.get("value"), int | float):
                points.append((float(call["call"]), float(one["value"])))
                bands.append((float(call["call"]), float(one["low"]), float(one["high"])))
        if points:
            charts.append(f"<figure>{_chart(points, None, f'expected {title}', 'calls', bands)}</figure>")
    return f'<p class="intro">{text}</p><div class="grid">{"".join(charts)}</div>'


def _table(history: list[dict[str, Any]]) -> str:
    head = ("call", "rows of", "rows", "labels", "alarms", "expected precision", "expected recall", "found")
    rows = []
    for call in reversed(history):
        expected = call.get("expected") or {}
        cells = [
            str(call.get("call")),
            escape(str(call.get("when"))),
            _count(call.get("rows")),
            _count(call.get("labelled")),
            _share(call.get("alarm_share")),
            _two(expected.get("precision")),
            _two(expected.get("recall")),
            "alarm" if call.get("is_alarm") else "quiet",
        ]
        rows.append("".join(f"<td{' class=text' if i == 1 else ''}>{cell}</td>" for i, cell in enumerate(cells)))
    heads = "".join(f'<th scope="col"{" class=text" if i == 1 else ""}>{name}</th>' for i, name in enumerate(head))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def _share(value: Any) -> str:
    return f"{100 * value:.3g} %" if isinstance(value, int | float) else "–"


def _two(figure: Any) -> str:
    value = figure.get("value") if isinstance(figure, dict) else None
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _chart(
    points: list[tuple[float, float]],
    bar: float | None,
    title: str,
    below: str,
    bands: list[tuple[float, float, float]] | None = None,
) -> str:
    """A line over calls, with a dashed bar or the band of each point."""
    values = [value for _, value in points] + ([bar] if bar is not None else [])
    values += [end for _, low, high in bands or [] for end in (low, high)]
    low, high = min(values), max(values)
    pad = 0.06 * (high - low) or 0.5
    low, high = low - pad, high + pad
    first, last = points[0][0], points[-1][0]

    def x(call: float) -> float:
        share = 0.5 if last == first else (call - first) / (last - first)
        return round(_LEFT + 8 + share * (_WIDTH - _LEFT - 24), 1)

    def y(value: float) -> float:
        return round((_HEIGHT - _BOTTOM) * (1 - (value - low) / (high - low)) + 6, 1)

    path = " ".join(f"{x(call)},{y(value)}" for call, value in points)
    ticks = round_ticks(low, high)
    shown = "".join(f'<text x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>' for tick in ticks)
    band = "".join(
        f'<line class="band" x1="{x(call)}" x2="{x(call)}" y1="{y(a)}" y2="{y(b)}"/>' for call, a, b in bands or []
    )
    dots = "".join(f'<circle class="dot" cx="{x(call)}" cy="{y(value)}" r="3"/>' for call, value in points)
    dashed = "" if bar is None else f'<line class="bar" x1="{_LEFT}" x2="{_WIDTH}" y1="{y(bar)}" y2="{y(bar)}"/>'
    bottom = _HEIGHT - _BOTTOM + 12
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT + 14:.0f}" role="img" aria-label="{escape(title)} over {below}">'
        f'<line class="axis" x1="{_LEFT}" x2="{_LEFT}" y1="6" y2="{bottom}"/>'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{bottom}" y2="{bottom}"/>'
        f'{shown}{dashed}{band}<polyline class="line" points="{path}"/>{dots}'
        f'<text x="{_LEFT}" y="{bottom + 16}">{first:g}</text>'
        f'<text x="{_WIDTH - 12}" y="{bottom + 16}" text-anchor="end">{last:g}</text>'
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{bottom + 16}" text-anchor="middle">{below}</text></svg>'
        f'<p class="help">{escape(title)}</p>'
    )

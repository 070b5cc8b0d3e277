"""Bullet graph of a claim: the range in which it holds, and the value with its uncertainty."""

import math

from markupsafe import Markup

from saddlescope.reproduction import Verdict

_WIDTH, _HEIGHT, _EDGE = 132, 22, 6  # pixels; values beyond the picture are shown at the edge


def bullet(verdict: Verdict) -> Markup:
    """Return an inline SVG of a verdict; colours come from the page's style, by the outcome.

    The scale is linear and shows all finite bounds and the value; one-sided bounds reach to the edge.
    """
    low, high, value = verdict.low, verdict.high, verdict.value
    spread = verdict.uncertainty if math.isfinite(verdict.uncertainty) else 0.0
    finite = [v for v in (low, high, value - spread, value + spread) if math.isfinite(v)]
    first, last = min(finite), max(finite)
    margin = 0.3 * (last - first) or 0.5 * abs(first) or 1.0
    first, last = first - margin, last + margin

    def x(at: float) -> float:
        inside = (min(max(at, first), last) - first) / (last - first)
        return round(_EDGE + inside * (_WIDTH - 2 * _EDGE), 1)

    left = 0 if math.isinf(low) else x(low)
    right = _WIDTH if math.isinf(high) else x(high)
    middle = _HEIGHT / 2
    parts = [
        f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{middle}" y2="{middle}"/>',
        f'<rect class="range" x="{left}" y="4" width="{max(round(right - left, 1), 1.5)}" height="{_HEIGHT - 8}"/>',
        *(
            f'<line class="bound" x1="{x(b)}" x2="{x(b)}" y1="2" y2="{_HEIGHT - 2}"/>'
            for b in (low, high)
            if math.isfinite(b)
        ),
    ]
    if not math.isnan(value):
        if spread:
            ends = x(value - spread), x(value + spread)
            parts.append(f'<line class="spread" x1="{ends[0]}" x2="{ends[1]}" y1="{middle}" y2="{middle}"/>')
        parts.append(f'<circle class="value" cx="{x(value)}" cy="{middle}" r="4"/>')
    outcome = verdict.outcome.replace(" ", "-")
    svg = (
        f'<svg class="bullet {outcome}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' aria-hidden="true" focusable="false">{"".join(parts)}</svg>'
    )
    return Markup(svg)  # noqa: S704 (numbers and the name of an outcome alone)

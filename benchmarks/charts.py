"""Bar charts as SVG text, readable on light and dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.figures import Summary

WIDTH = 680
LABEL_WIDTH = 150
VALUE_WIDTH = 130
ROW_HEIGHT = 30
BAR_HEIGHT = 18
TOP = 44

STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600}"
    ".own{fill:#1f6feb}.peer{fill:#8c959f}.floor{fill:#d4a72c}.range{stroke:#1f2328;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.range{stroke:#e6edf3}}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a chart; `summary` is None for a contestant without figures, `note` says why."""

    label: str
    summary: Summary | None
    kind: str = "peer"  # or own, or floor
    note: str = ""


def bar_chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars of medians with a line from the lowest to the highest round."""
    largest = max((bar.summary.high for bar in bars if bar.summary), default=0.0) or 1.0
    scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / largest
    height = TOP + ROW_HEIGHT * len(bars) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)} ({escape(unit)})</text>',
    ]
    for number, bar in enumerate(bars):
        parts.extend(_row(bar, TOP + number * ROW_HEIGHT, scale))
    return "\n".join([*parts, "</svg>", ""])


def _row(bar: Bar, top: int, scale: float) -> list[str]:
    baseline = top + BAR_HEIGHT - 4
    label = f'<text x="{LABEL_WIDTH - 8}" y="{baseline}" text-anchor="end">{escape(bar.label)}</text>'
    if bar.summary is None:
        return [label, f'<text x="{LABEL_WIDTH + 4}" y="{baseline}">{escape(bar.note)}</text>']
    middle = top + BAR_HEIGHT / 2
    low, high = (LABEL_WIDTH + value * scale for value in (bar.summary.low, bar.summary.high))
    width = f"{bar.summary.median * scale:.1f}"
    return [
        label,
        f'<rect class="{bar.kind}" x="{LABEL_WIDTH}" y="{top}" width="{width}" height="{BAR_HEIGHT}" rx="2"/>',
        f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>',
        f'<text x="{high + 8:.1f}" y="{baseline}">{shown(bar.summary.median)}</text>',
    ]


def shown(value: float) -> str:
    """Whole numbers with separators from 100 on, fewer digits below."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"

"""Who waits for whom, drawn as text and as an SVG picture."""

import math
from collections.abc import Iterable
from html import escape

from ade.insight.locks import LockGraph

_SIZE, _NODE, _MARGIN = 640, 26, 110
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2328;text-anchor:middle;"
    "paint-order:stroke;stroke:#fff;stroke-width:4px}circle{fill:#fff;stroke:#1f2328}"
    ".ring{stroke:#cf222e;stroke-width:2}.hard,.soft{stroke:#57606a;fill:none}.soft{stroke-dasharray:5 4}"
    ".hard.ring,.soft.ring{stroke:#cf222e}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3;stroke:#0d1117}circle{fill:#0d1117;stroke:#e6edf3}}"
)


def graph_lines(graph: LockGraph) -> list[str]:
    """One line for each edge, then one for each ring."""
    lines = []
    for edge in sorted(graph.edges, key=lambda edge: (edge.scope, not edge.is_hard, edge.blocking_scope)):
        waiter, blocker = graph.requests[edge.waiter], graph.requests[edge.blocker]
        how = "waits for" if edge.is_hard else "stands behind"
        mode = waiter.mode_of(edge.resource)
        lines.append(f"{waiter.owner} --{how}--> {blocker.owner}   {edge.resource} ({mode})")
    for ring in graph.rings:
        owners = [graph.requests[edge.waiter].owner for edge in ring]
        lines.append(f"ring: {' -> '.join([*owners, owners[0]])}")
    return lines


def graph_svg(graph: LockGraph) -> str:
    """Agents on a circle; a dashed arrow means that one only stands behind the other. Rings are red."""
    scopes = sorted({edge.scope for edge in graph.edges} | {edge.blocking_scope for edge in graph.edges})
    names = {one.scope: one.owner for one in graph.requests.values()}
    places = dict(zip(scopes, _circle(len(scopes)), strict=True))
    in_ring = {(edge.scope, edge.blocking_scope) for ring in graph.rings for edge in ring}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" role="img" aria-label="Who waits">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#57606a"/></marker></defs>',
    ]
    for edge in graph.edges:
        kind = ("hard" if edge.is_hard else "soft") + (" ring" if (edge.scope, edge.blocking_scope) in in_ring else "")
        parts.append(_arrow(places[edge.scope], places[edge.blocking_scope], kind, edge.resource))
    for scope, (x, y) in places.items():
        kind = "ring" if any(scope in pair for pair in in_ring) else "agent"
        parts.append(f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.0f}" r="{_NODE}"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + _NODE + 16:.0f}">{escape(names.get(scope, scope))}</text>')
    if not scopes:
        parts.append(f'<text x="{_SIZE / 2:.0f}" y="{_SIZE / 2:.0f}">Nobody waits.</text>')
    return "\n".join([*parts, "</svg>", ""])


def _circle(count: int) -> Iterable[tuple[float, float]]:
    middle, radius = _SIZE / 2, _SIZE / 2 - _MARGIN
    for number in range(count):
        angle = 2 * math.pi * number / count - math.pi / 2
        yield middle + radius * math.cos(angle), middle + radius * math.sin(angle)


def _arrow(start: tuple[float, float], end: tuple[float, float], kind: str, label: str) -> str:
    """From rim to rim, bent a little so that two in opposite directions are seen as two."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    bend_x, bend_y = (x1 + x2) / 2 - dy * 24, (y1 + y2) / 2 + dx * 24
    path = (
        f"M{x1 + dx * _NODE:.0f} {y1 + dy * _NODE:.0f}Q{bend_x:.0f} {bend_y:.0f}"
        f" {x2 - dx * _NODE:.0f} {y2 - dy * _NODE:.0f}"
    )
    text = f'<text x="{bend_x:.0f}" y="{bend_y:.0f}">{escape(label)}</text>'
    return f'<path class="{kind}" d="{path}" marker-end="url(#tip)"/>{text}'

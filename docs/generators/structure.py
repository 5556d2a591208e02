"""The import rule and the diagrams of the architecture page, drawn from `pyproject.toml` and the package itself."""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from tools.import_tiers import patterns_of, tier_of

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = _ROOT / "src" / "ade"
_WIDTH, _LINE, _PAD = 960, 20, 14
_STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328; }
.name { font-weight: 600; } .note { fill: #59636e; font-size: 13px; } .mono { font-family: ui-monospace, monospace; }
.box { fill: #f6f8fa; stroke: #d1d9e0; } .arrow { stroke: #59636e; fill: none; marker-end: url(#tip); }
.tip { fill: #59636e; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; } .note { fill: #9198a1; } .box { fill: #151b23; stroke: #3d444d; } .arrow { stroke: #9198a1; }
.tip { fill: #9198a1; } }
</style>
<defs><marker id="tip" markerWidth="10" markerHeight="8" refX="9" refY="4" orient="auto">
<path class="tip" d="M0,0 L10,4 L0,8 z"/></marker></defs>"""
_STEPS = (  # how a request travels: which tier, and what happens there
    (
        ("commands", "interface", "application"),
        "parse",
        "A command, an HTTP request, or a Python call becomes typed values.",
    ),
    (("operations",), "authorize", "One function per operation checks the caller and calls the service."),
    (("service",), "load", "The service reads the records that the decision needs."),
    (("pure",), "decide", "Pure functions return a change: the record before and after, its guard, and its events."),
    (
        ("ports", "stores"),
        "commit",
        "The store writes record and events in one guarded write, or reports that the guard failed.",
    ),
    (("service", "interface"), "observe", "Waiting callers, feeds, webhooks, and metrics read the event log."),
)


def tiers() -> list[str]:
    """The tiers as `pyproject.toml` declares them, highest first."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [rule] = [contract for contract in contracts if contract["id"] == "tiers"]
    return [" ".join(row.split()) for row in rule["tiers"]]


def import_rule() -> str:
    """A table of the tiers with the patterns of their modules, highest first."""
    rows = [row.partition(": ") for row in tiers()]
    patterns = {name: " ".join(f"`{each.removeprefix('ade.')}`" for each in found.split()) for name, _, found in rows}
    lines = [f"| {name} | {found} |" for name, found in patterns.items()]
    return "\n".join(["| Tier | Modules below `ade` |", "|---|---|", *lines])


def diagrams() -> dict[str, str]:
    """Every diagram of the architecture page: file name and content."""
    return {"architecture-flow.svg": flow_diagram(), "architecture-tree.svg": tree_diagram()}


def stale_diagrams(folder: Path) -> Iterator[tuple[Path, str]]:
    """Diagrams that are out of date, each with the content it should have."""
    for name, text in diagrams().items():
        path = folder / "explanation" / name
        if not path.exists() or path.read_text("utf-8") != text:
            yield path, text


def flow_diagram() -> str:
    """How a request becomes a commit: one box per step, with the tiers that do it and the size of each."""
    sizes = _modules_by_tier()
    parts, y = [], _PAD
    height = 2 * _LINE + _PAD
    for index, (names, verb, what) in enumerate(_STEPS):
        if unknown := [name for name in names if name not in sizes]:
            raise ValueError(f"the data flow names unknown tiers: {', '.join(unknown)}")
        where = ", ".join(f"{name} ({sizes[name]} modules)" for name in names)
        parts += [
            f'<rect class="box" x="{_PAD}" y="{y}" width="{_WIDTH - 2 * _PAD}" height="{height}" rx="6"/>',
            _text(2 * _PAD, y + _LINE, verb, "name"),
            _text(130, y + _LINE, what),
            _text(130, y + 2 * _LINE, where, "note"),
        ]
        if index < len(_STEPS) - 1:
            parts.append(f'<path class="arrow" d="M60,{y + height} V{y + height + _LINE - 2}"/>')
        y += height + _LINE
    return _svg(y, "Data flow: parse, authorize, load, decide, commit, observe", parts)


def tree_diagram() -> str:
    """The packages below `src/ade`, each with its size and the first sentence of its docstring."""
    parts, y = [], _PAD + _LINE
    for package in _packages():
        depth = len(package.relative_to(_SOURCE).parts)
        modules = list(package.glob("*.py"))
        about = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
        name = f"{package.name}/" if depth else "ade/"
        parts += [
            _text(_PAD + 20 * depth, y, name, "name mono"),
            _text(240, y, str(len(modules)), "note"),
            _text(275, y, about.splitlines()[0].replace("`", "")),
        ]
        y += _LINE + 4
    return _svg(y, "Packages of ADE", parts)


def _packages() -> list[Path]:
    found = {path.parent for path in _SOURCE.rglob("__init__.py")}
    return sorted(found, key=lambda path: path.relative_to(_SOURCE).parts)


def _modules_by_tier() -> dict[str, int]:
    patterns = patterns_of(tiers())
    counts: dict[str, int] = {}
    for path in _SOURCE.rglob("*.py"):
        parts = [part for part in path.relative_to(_SOURCE).with_suffix("").parts if part != "__init__"]
        found = tier_of(".".join(["ade", *parts]), patterns)
        if found is not None:
            counts[found[1]] = counts.get(found[1], 0) + 1
    return counts


def _text(x: int, y: int, text: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{kind}>{escape(text)}</text>'


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    return "\n".join([opening, f"<title>{escape(title)}</title>", _STYLE, *parts, "</svg>", ""])

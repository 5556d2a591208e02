"""The committed description of the HTTP interface, so that a change of it is seen by whoever reviews it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ade.server.openapi import description

PLACE = Path("reference") / "openapi.json"
_WIDTH = 120


def text() -> str:
    """As it is served, but laid out for people: what goes on one line stands on one."""
    return _laid_out(description(), 0, 0) + "\n"


def _laid_out(value: Any, indent: int, before: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if indent + before + len(line) < _WIDTH or not value or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value]
        items = [
            name + _laid_out(each, indent + 1, len(name)) for name, each in zip(names, value.values(), strict=True)
        ]
    else:
        items = [_laid_out(each, indent + 1, 0) for each in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    space = " " * indent
    return first + "\n" + ",\n".join(f"{space} {each}" for each in items) + f"\n{space}{last}"


def stale_description(folder: Path) -> Iterator[tuple[Path, str]]:
    path, fresh = folder / PLACE, text()
    if not path.exists() or path.read_text("utf-8") != fresh:
        yield path, fresh

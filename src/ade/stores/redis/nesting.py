"""How deeply JSON may be nested: what some reader could not take apart again must not be stored."""

import re

from msgspec import Raw

from ade.core.errors import PayloadTooLarge

_MOST_LEVELS = 990
_STRINGS, _BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"'), re.compile(rb"[\[\]{}]")


def check_depth(payload: Raw) -> None:
    """Refuse JSON that is nested so deeply that some reader could not take it apart again."""
    if len(payload) < _MOST_LEVELS:
        return
    content = bytes(payload)
    if content.count(b"[") + content.count(b"{") > _MOST_LEVELS and _depth(content) > _MOST_LEVELS:
        raise PayloadTooLarge(
            f"arguments or result are nested too deeply for the store (about {_MOST_LEVELS} levels fit)"
        )


def _depth(content: bytes) -> int:
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", content)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest

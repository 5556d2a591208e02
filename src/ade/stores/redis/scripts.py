"""The Lua scripts. Each is one file with a contract in its head, put together from the parts it uses."""

import hashlib
import re
from functools import cache
from pathlib import Path

LUA = Path(__file__).parent / "lua"
_USES = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_FLAGS = re.compile(r"^-- flags: (.+)$", re.MULTILINE)


class Script:
    """A script as the server gets it."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def script(name: str) -> Script:
    """The whole text of a script: the line that tells the engine, the parts it uses, and itself."""
    body = (LUA / f"{name}.lua").read_text(encoding="utf-8")
    flags = _FLAGS.search(body)
    head = f"#!lua flags={flags.group(1).strip()}\n" if flags else "#!lua\n"
    uses = _USES.search(body)
    parts = [part.strip() for part in uses.group(1).split(",")] if uses else []
    return Script(name, head + "".join(_part(part) for part in parts) + body)


@cache
def _part(name: str) -> str:
    return (LUA / "lib" / f"{name}.lua").read_text(encoding="utf-8") + "\n"


def script_names() -> list[str]:
    """Every script there is."""
    return sorted(path.stem for path in LUA.glob("*.lua"))

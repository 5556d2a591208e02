"""The Lua scripts. Each is one file with a contract in its head, put together from the parts it uses.

`python -m ade.stores.redis.scripts FOLDER` writes them as the server gets them, for workers in other languages.
"""

import argparse
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

LUA = Path(__file__).parent / "lua"
_USES = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_FLAGS = re.compile(r"^-- flags: (.+)$", re.MULTILINE)
_PLACES = re.compile(r"^local ([A-Z_, ]+) = ([\d, ]+?)(?: --.*)?$", re.MULTILINE)
_PLACE = re.compile(r"\[([A-Z_]+)\]")


class LuaScript:
    """A script as the server gets it."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def script(name: str) -> LuaScript:
    """The whole text of a script: the line that tells the engine, and itself with the parts it uses."""
    body = _body(name)
    flags = _FLAGS.search(body)
    head = f"#!lua flags={flags.group(1).strip()}\n" if flags else "#!lua\n"
    return LuaScript(name, head + _with_numbers(_USES.sub(_parts, body)))


def script_names() -> list[str]:
    """Every script there is."""
    return sorted(path.stem for path in LUA.glob("*.lua"))


def contract(name: str) -> str:
    """What the head of a script says it is asked for and answers."""
    lines = [line for line in _body(name).partition("\n\n")[0].splitlines() if not _USES.match(line)]
    words = " ".join(line.removeprefix("--").strip() for line in lines if not _FLAGS.match(line))
    return words.removeprefix(f"{name}: ")


def flags(name: str) -> list[str]:
    """What the server is told about a script: `no-writes`, or `allow-oom` for what must work when memory is full."""
    found = _FLAGS.search(_body(name))
    return [flag.strip() for flag in found.group(1).split(",")] if found else []


def export(folder: Path) -> list[Path]:
    """Write every script into a folder, each whole: what SCRIPT LOAD takes."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in script_names():
        files.append(folder / f"{name}.lua")
        files[-1].write_text(script(name).text, encoding="utf-8")
    return files


def state_places() -> dict[str, int]:
    """Where the fields of the state lie, by the names that scripts have for them."""
    rows = _PLACES.findall(_part("fields"))
    return {
        name: int(number)
        for names, numbers in rows
        for name, number in zip(names.split(", "), numbers.split(", "), strict=True)
    }


def _with_numbers(text: str) -> str:
    """`state[1]` in the place of `state[STATUS]`.

    Functions are made anew at every call, and each is tied to all locals of the script that it names, which are
    looked for one by one: that was a twentieth of a call for one task.
    """
    places = state_places() if _part("fields") in text else {}
    return _PLACE.sub(lambda found: f"[{places.get(found[1], found[1])}]", text)


@cache
def _body(name: str) -> str:
    return (LUA / f"{name}.lua").read_text(encoding="utf-8")


def _parts(line: "re.Match[str]") -> str:
    return "".join(_part(name.strip()) for name in line.group(1).split(","))


@cache
def _part(name: str) -> str:
    return (LUA / "lib" / f"{name}.lua").read_text(encoding="utf-8") + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ade.stores.redis.scripts", description="Write the Lua scripts of the Redis store into a folder."
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    try:
        print(f"{len(export(folder))} scripts written to {folder}")
    except OSError as error:
        parser.error(f"the scripts cannot be written to {folder}: {error.strerror}")


if __name__ == "__main__":
    main()

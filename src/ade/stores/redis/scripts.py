"""The Lua scripts: one file each, which starts with a contract and includes parts of lua/lib.

`python -m ade.stores.redis.scripts FOLDER` writes them as they are sent to the server, for workers in other languages.
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
# Earlier names from the protocol page; programs that use them keep working after an update.
EARLIER_NAMES = {"hear": "register_worker", "progress": "report_progress"}


class LuaScript:
    """A script as it is sent to the server."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def script(name: str) -> LuaScript:
    """Return the complete script: the line that selects the engine, and the file with the parts it uses."""
    body = _body(name)
    flags = _FLAGS.search(body)
    head = f"#!lua flags={flags.group(1).strip()}\n" if flags else "#!lua\n"
    return LuaScript(name, head + _with_numbers(_USES.sub(_parts, body)))


def script_names() -> list[str]:
    """Return the names of all scripts."""
    return sorted(path.stem for path in LUA.glob("*.lua"))


def contract(name: str) -> str:
    """Return the contract at the top of a script: its request and response."""
    lines = [line for line in _body(name).partition("\n\n")[0].splitlines() if not _USES.match(line)]
    words = " ".join(line.removeprefix("--").strip() for line in lines if not _FLAGS.match(line))
    return words.removeprefix(f"{name}: ")


def flags(name: str) -> list[str]:
    """Return the flags of a script: `no-writes`, or `allow-oom` for scripts that must work when memory is full."""
    found = _FLAGS.search(_body(name))
    return [flag.strip() for flag in found.group(1).split(",")] if found else []


def export(folder: Path) -> list[Path]:
    """Write every script into a directory, each complete and ready for SCRIPT LOAD."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name in (*script_names(), *EARLIER_NAMES):
        files.append(folder / f"{name}.lua")
        files[-1].write_text(script(EARLIER_NAMES.get(name, name)).text, encoding="utf-8")
    return files


def state_places() -> dict[str, int]:
    """Return the positions of the fields of a task state, by the names that scripts use."""
    rows = _PLACES.findall(_part("fields"))
    return {
        name: int(number)
        for names, numbers in rows
        for name, number in zip(names.split(", "), numbers.split(", "), strict=True)
    }


def _with_numbers(text: str) -> str:
    """Replace `state[STATUS]` with `state[1]`.

    Lua creates the functions of a script at every call and binds each to all locals it uses, one by one. Without the
    constants, a call for one task takes 5% less time.
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
    """Write the scripts into the directory given on the command line."""
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

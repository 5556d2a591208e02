"""What all stand-ins can do besides speaking their protocol. They are told what to do by their prompt.

`[[name]]` or `[[name key=value ...]]` in a prompt is a direction; everything else in it is the question. Any program
that hands a prompt on can direct a stand-in, whatever it does with arguments and environment.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

_DIRECTION = re.compile(r"\[\[(?P<name>[a-z-]+)(?P<pairs>(?: [a-z_]+=[^\s\]]+)*)\]\]")


class Script:
    """The directions of a prompt, and the question that is left."""

    def __init__(self, prompt: str) -> None:
        self._directions = {
            found["name"]: dict(pair.split("=", 1) for pair in found["pairs"].split())
            for found in _DIRECTION.finditer(prompt)
        }
        self.question = _DIRECTION.sub("", prompt).strip()

    def has(self, name: str) -> bool:
        return name in self._directions

    def text(self, name: str, key: str, default: str) -> str:
        return self._directions.get(name, {}).get(key, default)

    def number(self, name: str, key: str, default: int) -> int:
        return int(self.text(name, key, str(default)))


def prompt_of(argument: str | None) -> str:
    """The argument, after what comes by stdin, as the programs put them together."""
    given = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    return "\n\n".join(part for part in (given, argument) if part)


def emit(record: dict[str, Any]) -> None:
    """One line, as JSON.stringify writes it."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def emit_half(record: dict[str, Any]) -> None:
    """A line that breaks off in its middle."""
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.write(line[: len(line) // 2])
    sys.stdout.flush()


def before(script: Script) -> None:
    """Bad manners that have nothing to do with a protocol."""
    if script.has("ignore-sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.has("secrets"):
        for name in ("LETTA_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            if name in os.environ:
                print(f"debug: using {name}={os.environ[name]}", file=sys.stderr)
    if script.has("stderr"):
        print(script.text("stderr", "text", "something went wrong").replace("_", " "), file=sys.stderr)
    if script.has("fork"):
        _fork(script)
    if script.has("noise"):
        print("(node:4711) Warning: this is no JSON")
        print('{"type": "from_a_later_release", "x": [1, 2, {"y": null}]}')
        print("[1, 2]")


def _fork(script: Script) -> None:
    """A grandchild that nobody asked for. It holds stdout open and outlives its parent unless somebody ends it."""
    program = "import signal, sys\nif len(sys.argv) > 1: signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
    stubborn = ["stubborn"] if script.has("ignore-sigterm") else []
    grandchild = subprocess.Popen([sys.executable, "-S", "-c", program, *stubborn])
    print(f"grandchild {grandchild.pid}", file=sys.stderr, flush=True)


def hang(script: Script) -> None:
    """Say nothing more and wait for the end; with `once`, the name of a file, only the first time."""
    once = script.text("hang", "once", "")
    if script.has("hang") and not (once and Path(once).exists()):
        if once:
            Path(once).touch()
        print(f"hanging {os.getpid()}", file=sys.stderr, flush=True)
        while True:
            signal.pause()


def flood(script: Script, record: dict[str, Any], key: str) -> None:
    """`bytes` of output, in lines of `line` bytes of text each; line=0 is one line without an end."""
    if not script.has("flood"):
        return
    size, line = script.number("flood", "bytes", 1_000_000), script.number("flood", "line", 1_000)
    if line == 0:
        block = b"x" * 65_536
        for _ in range(size // len(block)):
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.write(b"\n")
    else:
        block = json.dumps({**record, key: "x" * line}, separators=(",", ":")).encode() + b"\n"
        for _ in range(max(size // len(block), 1)):
            sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def leave(script: Script, code: int) -> NoReturn:
    """End with this code, unless the directions name another, or a signal."""
    sys.stdout.flush()
    if script.has("signal"):
        os.kill(os.getpid(), script.number("signal", "number", signal.SIGKILL))
    os._exit(script.number("exit", "code", code))

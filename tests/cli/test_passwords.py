"""A store URL may hold a password. Whatever goes on for long tells where its records are, never with the password."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade import Ade
from tests.cli.processes import Terminal, ended, started
from tests.servers.plugin import binary_or_skip
from tests.servers.server import Options, Server

pytestmark = pytest.mark.slow
SECRET = "hush-hush"


@pytest.fixture
def url() -> Iterator[str]:
    with Server(binary_or_skip("valkey"), Options(password=SECRET)) as server:
        yield server.url


def _seen_in(process: "subprocess.Popen[str]", end: str) -> str:
    assert process.stderr is not None
    said: list[str] = []
    while end not in "".join(said):
        line = process.stderr.readline()
        assert line, "".join(said)
        said.append(line)
    arguments = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    _, out, err = ended(process, signal.SIGINT)
    return "".join([*said, out, err, *(each for each in arguments.splitlines() if "ade.worker" in each)])


@pytest.mark.parametrize("command", [["up", "--app", "ade.demo:ade"], ["worker", "--app", "ade.demo:ade"], ["sweep"]])
def test_commands_that_go_on_do_not_show_it(tmp_path: Path, url: str, command: list[str]) -> None:
    settings = {"ADE_STORE__URL": url, "ADE_REDIS__ALLOW_VOLATILE": "true", "ADE_LOG__LEVEL": "debug"}
    with started(tmp_path, *command, **settings) as process:
        seen = _seen_in(process, "Ctrl-C stops it." if command[0] != "worker" else "worker.started")

    assert SECRET not in seen


def test_top_does_not_show_it(tmp_path: Path, url: str) -> None:
    terminal = Terminal(tmp_path, "top", "--store", url, "--allow-volatile")
    terminal.read_until("Ctrl-C ends")
    terminal.process.send_signal(signal.SIGINT)
    terminal.finish()

    assert SECRET not in terminal.seen
    assert ":***@" in terminal.seen


def test_an_app_does_not_show_it(url: str) -> None:
    assert SECRET not in repr(Ade(url))

"""`ade run` through a server: a worker there lets the agent work, and the command here watches it."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents.runs.fake_agent_app import profiles
from tests.cli.conftest import STORE
from tests.cli.processes import ended, eventually, started
from tests.cli.remote.conftest import Shop


def workers(served: Shop) -> list[dict[str, Any]]:
    return [each["worker"] for each in served.local("workers", "--json").json["items"]]


@pytest.fixture
def staffed(served: Shop, folder: Path) -> Iterator[Shop]:
    """A worker beside the server that runs agents of the type coder."""
    command = msgspec.json.encode(profiles()["claude"]["command"]).decode()
    (folder / "ade.toml").write_text(f"[agents.profiles.coder]\nbase = 'claude'\ncommand = {command}\n")
    with started(folder, "worker", "--agents", "coder", "--store", STORE):
        eventually(lambda: any("agent:coder" in each["names"] for each in workers(served)), "a worker")
        yield served


def test_an_agent_works_there_and_its_report_comes_here(staffed: Shop, tmp_path: Path) -> None:
    answer = staffed.remote("run", "--agent", "coder", "--cwd", str(tmp_path), "--tag", "ask", "what is up? [[tools]]")

    assert (answer.code, answer.out) == (0, "You said: what is up?\n")
    found = re.match(r"task ([0-9a-f-]{36})\n", answer.err)
    assert found is not None
    assert "done in " in answer.err
    task = staffed.same("show", found[1], "--json").json
    assert (task["name"], task["author_id"], task["tags"]) == ("agent:coder", "the-admin", ["ask"])
    assert task["args"]["cwd"] == str(tmp_path)
    resumed = staffed.remote("run", "--agent", "coder", "--resume", found[1][-9:], "and now?", "--json").json_lines[-1]
    assert resumed["args"]["session_id"] == task["result"]["session_id"]
    assert (resumed["status"], resumed["args"]["cwd"]) == ("completed", str(tmp_path))


def test_ctrl_c_here_ends_the_agent_there(staffed: Shop) -> None:
    arguments = ("run", "--agent", "coder", "[[hang]]")
    with started(staffed.elsewhere, *arguments, **staffed.environment()) as process:
        assert process.stderr is not None
        while "hanging" not in process.stderr.readline():
            assert process.poll() is None
        code, out, err = ended(process, signal.SIGINT)

    assert (code, out) == (130, "")
    assert re.search(r"Cancelled task [0-9a-f-]{36}\.", err)
    [task] = staffed.local("tasks", "--json").json["items"]
    assert (task["status"], task["reason"]) == ("cancelled", "interrupted by Ctrl-C")


def test_detached_it_prints_the_id_alone(staffed: Shop) -> None:
    answer = staffed.remote("run", "--agent", "coder", "--detach", "hello")

    assert (answer.code, answer.err) == (0, "")
    assert "You said: hello" in staffed.remote("wait", answer.out.strip()).out


def test_what_cannot_be_is_told(staffed: Shop) -> None:
    unknown = staffed.remote("run", "--agent", "poet", "hello")
    assert (unknown.code, unknown.out) == (3, "")
    assert unknown.err == "error[unknown_name]: no worker has registered the agent type 'poet'; registered are coder\n"
    nowhere = staffed.remote("run", "--agent", "coder", "--cwd", "here", "hello")
    assert (nowhere.code, "on the machine of the worker" in nowhere.err) == (2, True)
    assert staffed.remote("run", "--agent", "coder", "hello", by="viewer").code == 7
    assert staffed.local("tasks", "--json").json["items"] == []

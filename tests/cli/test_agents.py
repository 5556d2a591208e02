"""`ade agents`: what an operator sees of agents and does to them; and a worker that works for one."""

import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Call, with_stores
from tests.cli.processes import call, call_json, ended, eventually, started
from tests.domain import Stores

WORKERS = """
import time

from ade import Ade

ade = Ade("sqlite:///agents.db")


@ade.task
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""


def take(agent_id: str, *runs: str) -> None:
    async def taking(stores: Stores) -> None:
        assert await stores.agents.take(agent_id, runs, lease_ms=60_000) == list(runs)

    with_stores(taking)


@pytest.fixture
def staff(shop: Call) -> Call:
    """Two agents, one of them at work."""
    shop("agents", "register", "coder", "--max-tasks", "3")
    shop("agents", "register", "writer", "--max-tasks", "1")
    take("coder", "run-1", "run-2")
    return shop


def test_agents_are_listed_with_what_they_do_and_may_do(staff: Call) -> None:
    listed = {agent["id"]: agent for agent in staff("agents", "--json").json["items"]}

    assert {name: (agent["used"], agent["max_tasks"]) for name, agent in listed.items()} == {
        "coder": (2, 3),
        "writer": (0, 1),
    }
    assert listed["coder"]["status"] == "active"
    assert staff("agents").lines[0].split()[:3] == ["AGENT", "STATUS", "USED"]
    assert staff("agents", "list").lines[1].split()[:4] == ["coder", "active", "2", "3"]
    assert staff("agents").lines[0].split()[5] == "QUEUED"
    assert [agent["queued_tasks"] for agent in listed.values()] == [0, 0]


def test_an_agent_is_shown_with_its_runs(staff: Call) -> None:
    assert [unit["run_id"] for unit in staff("agents", "show", "coder", "--json").json["units"]] == ["run-1", "run-2"]
    assert [line.split()[0] for line in staff("agents", "show", "coder").lines[-2:]] == ["run-1", "run-2"]
    assert len(staff("agents", "show", "writer").lines) == 2


def test_a_store_without_agents_says_how_to_make_one(shop: Call) -> None:
    answer = shop("agents")

    assert answer.out == ""
    assert "ade agents register ID --max-tasks N" in answer.err


def test_an_operator_drains_an_agent_and_lets_it_go_on(staff: Call) -> None:
    assert staff("agents", "drain", "coder").out == "coder: draining, at most 3 tasks at once\n"
    assert staff("agents", "offline", "coder").out == "coder: offline, at most 3 tasks at once\n"
    assert staff("agents", "activate", "coder", "--json").json["status"] == "active"
    assert staff("agents", "register", "coder", "--max-tasks", "5", "--json").json["max_tasks"] == 5
    assert staff("agents", "remove", "writer").out == "writer: removed\n"

    told = staff("events", "tail", "--after", "0", "--json").json_lines

    assert [event["type"] for event in told] == [
        *("agent.registered", "agent.registered", "agent.draining", "agent.offline", "agent.active"),
        *("agent.registered", "agent.removed"),
    ]
    assert all(event["actor"].startswith("cli:") for event in told)
    assert told[5]["payload"] == {"agent": "coder", "max_tasks": 5}


def test_an_agent_has_a_type_and_capabilities(shop: Call) -> None:
    said = ("--type", "coder", "--capability", "python,gpu", "--capability", "net")
    answer = shop("agents", "register", "ada", "--max-tasks", "2", *said)

    assert answer.out == "ada (coder): active, at most 2 tasks at once, can gpu, net, python\n"
    shown = shop("agents", "show", "ada", "--json").json
    assert (shown["type"], shown["capabilities"]) == ("coder", ["gpu", "net", "python"])
    assert "coder" in shop("agents", "list").lines[1]
    assert "gpu, net, python" in shop("agents", "list").lines[1]
    kept = shop("agents", "register", "ada", "--max-tasks", "3", "--json").json
    assert (kept["type"], kept["capabilities"], kept["max_tasks"]) == ("coder", ["gpu", "net", "python"], 3)
    cleared = shop("agents", "register", "ada", "--max-tasks", "3", "--no-capabilities", "--type", "", "--json").json
    assert not {"type", "capabilities"} & cleared.keys()


@pytest.mark.parametrize(
    "said", [("--capability", "GPU"), ("--type", "a b"), ("--capability", "gpu", "--no-capabilities")], ids=str
)
def test_what_no_agent_can_be_is_refused(shop: Call, said: tuple[str, ...]) -> None:
    assert shop("agents", "register", "ada", "--max-tasks", "2", *said).code == 2
    assert shop("agents", "--json").json["items"] == []


def test_a_worker_with_a_capability_that_is_no_word_does_not_start(shop: Call) -> None:
    answer = shop("worker", "--capability", "GPU")

    assert answer.code == 2
    assert "worker.capabilities: 'GPU' is not a valid capability" in answer.err


@pytest.mark.parametrize("verb", ["show", "drain", "activate", "offline", "remove"])
def test_an_agent_that_nobody_knows_is_not_found(staff: Call, verb: str) -> None:
    answer = staff("agents", verb, "codr", "--json")

    assert (answer.code, answer.error["code"]) == (3, "unknown_agent")


def test_a_name_that_is_nearly_right_is_guessed(staff: Call) -> None:
    assert "did you mean coder?" in staff("agents", "show", "codr").err
    assert "`ade agents list` shows" in staff("agents", "show", "quite-other").err


@pytest.mark.parametrize(("agent_id", "max_tasks"), [("no good", "1"), ("coder", "0"), ("coder", "many")])
def test_what_no_agent_may_be_is_refused(shop: Call, agent_id: str, max_tasks: str) -> None:
    assert shop("agents", "register", agent_id, "--max-tasks", max_tasks).code == 2
    assert shop("agents", "--json").json["items"] == []


def test_a_limit_without_an_agent_is_a_mistake(shop: Call) -> None:
    answer = shop("worker", "--max-tasks", "3")

    assert answer.code == 2
    assert "worker.max_tasks (3) needs worker.agent" in answer.err


@pytest.mark.long
def test_a_worker_works_for_an_agent_and_its_units_come_back_when_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "naps.py").write_text(WORKERS)
    app = ("--app", "naps:ade")
    quick = {"ADE_WORKER__LEASE_S": "1.5", "ADE_WORKER__HEARTBEAT_S": "0.4", "ADE_WORKER__POLL_S": "0.1"}
    for seconds in ("600", "600", "0"):
        assert call(tmp_path, "enqueue", "nap", f"seconds={seconds}", *app).returncode == 0

    def is_used(count: int) -> bool:
        agents = call_json(tmp_path, "agents", *app)["items"]
        return [agent["used"] for agent in agents] == [count]

    def are_waiting(count: int) -> bool:
        return len(call_json(tmp_path, "tasks", "--status", "pending", *app)["items"]) == count

    with started(tmp_path, "worker", "--agent", "napper", "--max-tasks", "2", *app, **quick) as doomed:
        eventually(lambda: is_used(2) and are_waiting(1), "two naps of three")
        doomed.kill()
        doomed.wait()
    eventually(lambda: is_used(0), "the end of the leases")
    with started(tmp_path, "worker", "--agent", "napper", "--grace", "0", *app, **quick) as worker:
        eventually(lambda: is_used(2), "naps of the next worker, within the same limit")
        code, _, _ = ended(worker, signal.SIGTERM)
    assert code == 0
    assert is_used(0)


@pytest.mark.long
def test_a_drained_agent_begins_nothing_in_its_workers_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "naps.py").write_text(WORKERS)
    app = ("--app", "naps:ade")
    quick = {"ADE_WORKER__LEASE_S": "1.5", "ADE_WORKER__HEARTBEAT_S": "0.4", "ADE_WORKER__POLL_S": "0.1"}

    def enqueue(*more: str) -> str:
        return call(tmp_path, "enqueue", "nap", *more, *app).stdout.strip()

    def status(task_id: str) -> str:
        return str(call_json(tmp_path, "show", task_id, *app)["status"])

    running = enqueue("seconds=3")
    with started(tmp_path, "worker", "--agent", "napper", "--capability", "soft-bed", *app, **quick):
        eventually(lambda: status(running) == "running", "the first nap")
        assert call(tmp_path, "agents", "drain", "napper", *app).returncode == 0
        later, picky = enqueue("seconds=0"), enqueue("seconds=0", "--needs", "soft-bed")
        eventually(lambda: status(running) == "completed", "the end of what was running")
        assert [status(later), status(picky)] == ["pending", "pending"]
        shown = call_json(tmp_path, "agents", "show", "napper", *app)
        assert (shown["status"], shown["used"]) == ("draining", 0)
        assert "napper (draining)" in call_json(tmp_path, "explain", later, *app)["sentence"]
        with started(tmp_path, "worker", *app, **quick):
            eventually(lambda: status(later) == "completed", "a worker without an agent")
            assert status(picky) == "pending", "it cannot do what that one needs"
        assert call(tmp_path, "agents", "activate", "napper", *app).returncode == 0
        eventually(lambda: status(picky) == "completed", "the agent to go on")
        workers = [each["worker"] for each in call_json(tmp_path, "workers", *app)["items"]]
        [worker] = [each for each in workers if each.get("agent")]
        assert worker["capabilities"] == ["soft-bed"]

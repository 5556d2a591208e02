"""Each invariant notices when somebody has meddled with the keys."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ade import Task
from ade.stores.redis import scan
from tests.servers.binaries import Binary
from tests.servers.cluster import Cluster
from tests.servers.pool import Pool
from tests.stores.redis.full_partitions import Village, village

STATUS, STAGE, LEASE, WAITING, RUN_ID, ATTEMPT, FINISHED, WHERE = 0, 1, 7, 10, 5, 4, 9, 2
Meddling = Callable[[Village], object]


def rewrite(at: Village, task_id: str, place: int, value: object) -> None:
    """Change one place of a task's state behind everybody's back."""
    with at.server.client(decode_responses=False) as client:  # type: ignore[union-attr]  # a single server
        key = f"ade:task:{task_id}"
        state: list[Any] = msgspec.msgpack.decode(client.hget(key, "state"))
        state[place] = value
        client.hset(key, "state", _packed(state))


def _packed(state: list[Any]) -> bytes:
    return msgspec.msgpack.encode(state)


def state_of(at: Village, task_id: str) -> list[Any]:
    with at.server.client(decode_responses=False) as client:  # type: ignore[union-attr]  # a single server
        state: list[Any] = msgspec.msgpack.decode(client.hget(f"ade:task:{task_id}", "state"))
        return state


def one(at: Village, fits: Callable[[list[Any]], bool]) -> Task:
    return next(task for task in at.tasks if fits(state_of(at, task.id)))


def in_stage(at: Village, stage: str, where: str | None = None) -> Task:
    return one(at, lambda state: state[STAGE] == stage and where in (None, state[WHERE]))


def ended(at: Village, status: str = "completed") -> Task:
    return one(at, lambda state: state[STATUS] == status)


def _copy_final_event(at: Village) -> None:
    """The same entry of the log once more, and the task named by it."""
    task = ended(at)
    with at.server.client(decode_responses=False) as client:  # type: ignore[union-attr]  # a single server
        logged = state_of(at, task.id)[28].split()
        [(_, fields)] = client.xrange("ade:events", f"{logged[-1]}-0", f"{logged[-1]}-0")
        copy = int(client.xadd("ade:events", fields, id=f"{int(logged[-1]) + 10**9}-0").split(b"-")[0])
    rewrite(at, task.id, 28, " ".join([*logged, str(copy)]))


MEDDLING: dict[str, Meddling] = {
    "attempts_within_bounds": lambda at: rewrite(at, at.running[0].id, ATTEMPT, 4),
    "counters_match_records": lambda at: at.command("HINCRBY", "ade:tally", "default:send:completed", 1),
    "dead_letters_are_posted": lambda at: at.command("XTRIM", "ade:queue:dlq", "MAXLEN", 0),
    "every_document_is_whole": lambda at: at.command("HSET", "ade:documents:user", "ada", "?"),
    "every_inbox_is_whole": lambda at: at.command("HSET", "ade:inbox:record:c", "stands", "?"),
    "every_lock_has_its_place": lambda at: at.command("DEL", "ade:lock:held:default:db:main"),
    "every_record_is_whole": lambda at: at.command("HDEL", f"ade:task:{at.tasks[0].id}", "detail"),
    "every_run_has_its_delivery": lambda at: at.command("XGROUP", "DELCONSUMER", "ade:queue:back", "ade-workers", "w2"),
    "every_run_has_its_lease": lambda at: at.command("ZINCRBY", "ade:queue:leases", 1, at.running[0].id),
    "every_run_holds_its_key": lambda at: at.command("DEL", "ade:queue:key:build/k"),
    "every_task_has_its_place": lambda at: at.command("ZREM", "ade:queue:delayed", in_stage(at, "delayed").id),
    "every_unit_has_its_agent": lambda at: at.command("ZADD", "ade:agent:units:nobody", 1, "a run"),
    "final_tasks_have_an_end": lambda at: rewrite(at, ended(at).id, FINISHED, False),
    "indexes_match_records": lambda at: at.command("ZREM", "ade:task:all", at.tasks[0].id),
    "levels_match_streams": lambda at: at.command("HINCRBY", "ade:queue:levels", "5:default", 1),
    "dependencies_can_complete": lambda at: at.command("DEL", "ade:queue:broken"),
    "every_reference_is_valid": lambda at: at.command("ZADD", "ade:queue:leases", 1, ended(at).id),
    "one_final_event": _copy_final_event,
    "one_lease_per_run": lambda at: rewrite(at, at.running[0].id, RUN_ID, at.running[1].run_id),
    "one_type_for_each_key": lambda at: at.command("SET", "ade:queue:parkings", "x"),
    "ready_tasks_can_start": lambda at: rewrite(at, in_stage(at, "blocked").id, STAGE, "delayed"),
    "statuses_are_known": lambda at: rewrite(at, in_stage(at, "delayed").id, STAGE, "odd"),
    "the_log_has_what_records_name": lambda at: at.command("DEL", "ade:events"),
    "status_matches_log": lambda at: rewrite(at, ended(at).id, STATUS, "cancelled"),
    "waiting_counts_match_edges": lambda at: rewrite(at, in_stage(at, "blocked").id, WAITING, 7),
    "what_is_due_is_listed": lambda at: at.command("DEL", "ade:schedules:due"),
}

# The same invariant broken in other ways.
MORE: dict[str, tuple[str, Meddling]] = {
    "an entry is gone": (
        "every_task_has_its_place",
        lambda at: at.command("XTRIM", "ade:queue:tasks:default:8", "MAXLEN", 0),
    ),
    "an entry was given away": (
        "every_task_has_its_place",
        lambda at: at.command("XGROUP", "CREATE", "ade:queue:tasks:default:8", "ade-workers", "$"),
    ),
    "a line is not looked along": (
        "every_task_has_its_place",
        lambda at: at.command("DEL", "ade:queue:lines"),
    ),
    "a line of those who ask is not looked along": (
        "every_task_has_its_place",
        lambda at: at.command("DEL", "ade:queue:asking"),
    ),
    "one that asks stands among those that do not": (
        "every_reference_is_valid",
        lambda at: at.command("RENAME", "ade:queue:line:default:send+gpu", "ade:queue:line:default:send"),
    ),
    "one that asks waits among those that do not": (
        "every_reference_is_valid",
        lambda at: at.command("RENAME", "ade:queue:parked:default+gpu,net:build/k", "ade:queue:parked:mail:build/k"),
    ),
    "a parking is forgotten": ("every_task_has_its_place", lambda at: at.command("DEL", "ade:queue:parkings")),
    "a deadline is unwatched": (
        "every_task_has_its_place",
        lambda at: at.command("DEL", "ade:queue:deadlines"),
    ),
    "an ended task stands in a line": (
        "every_reference_is_valid",
        lambda at: at.command("ZADD", "ade:queue:line:default:send", 1, f"{1:016d}:{ended(at).id}"),
    ),
    "an edge leads nowhere": (
        "every_reference_is_valid",
        lambda at: at.command("HSET", f"ade:task:waiting:{at.running[0].id}", ended(at).id, "strict"),
    ),
    "a key is held by nobody": (
        "every_reference_is_valid",
        lambda at: at.command("SADD", "ade:queue:key:build/k", ended(at).id),
    ),
    "a stream names what does not exist": (
        "every_reference_is_valid",
        lambda at: at.command("XADD", "ade:queue:tasks:default:8", "*", "id", "nothing", "name", "send"),
    ),
    "an entry that is pending is gone": (
        "every_reference_is_valid",
        lambda at: at.command("XTRIM", "ade:queue:back", "MAXLEN", 0),
    ),
    "a record is gone": (
        "every_reference_is_valid",
        lambda at: at.command("DEL", f"ade:task:{in_stage(at, 'delayed').id}"),
    ),
    "a state cannot be read": (
        "every_record_is_whole",
        lambda at: at.command("HSET", f"ade:task:{at.tasks[0].id}", "state", "?"),
    ),
    "the other side of an edge is gone": (
        "dependencies_can_complete",
        lambda at: at.command("DEL", f"ade:task:waiting:{at.running[0].id}"),
    ),
    "a lock is held by nobody": (
        "every_lock_has_its_place",
        lambda at: at.command("ZADD", "ade:lock:held:default:db:main", 1, f"{1:016d}:nobody"),
    ),
    "a lease is that of nobody": (
        "every_lock_has_its_place",
        lambda at: at.command("ZADD", "ade:lock:leases", 1, "default:nobody"),
    ),
    "an owner has a lock that does not exist": (
        "every_lock_has_its_place",
        lambda at: at.command("ZADD", "ade:lock:owner:default:first", 0, "nobody"),
    ),
    "a kind has a lock that does not exist": (
        "every_lock_has_its_place",
        lambda at: at.command("ZADD", "ade:lock:kind:default:db", 0, "nobody"),
    ),
    "somebody is called who does not exist": (
        "every_lock_has_its_place",
        lambda at: at.command("SADD", "ade:lock:called", "default:nobody"),
    ),
    "a request for a lock cannot be read": (
        "every_lock_has_its_place",
        lambda at: at.command("HSET", "ade:lock:request:default", "first", "?"),
    ),
    "ages of locks would be given twice": (
        "every_lock_has_its_place",
        lambda at: at.command("DEL", "ade:lock:marks"),
    ),
    "the end of a document that is gone is kept": (
        "every_document_is_whole",
        lambda at: at.command("ZADD", "ade:document:ends", 1, "session:gone"),
    ),
    "an inbox is listed that does not exist": (
        "every_inbox_is_whole",
        lambda at: at.command("ZADD", "ade:inbox:all", 0, "gone"),
    ),
    "somebody feeds on an inbox that does not exist": (
        "every_inbox_is_whole",
        lambda at: at.command("ZADD", "ade:inbox:fed:agent:coder", 1, "gone"),
    ),
    "a depth is wrong": (
        "counters_match_records",
        lambda at: at.command("HSET", "ade:queue:depth", "default", 1),
    ),
    "a count of runs is wrong": ("counters_match_records", lambda at: at.command("DEL", "ade:queue:running")),
}


def _named(broken: list[str]) -> set[str]:
    return {sentence.partition(":")[0] for sentence in broken}


@pytest.mark.parametrize("invariant", MEDDLING)
async def test_what_does_not_fit_is_noticed(settled: Village, invariant: str) -> None:
    assert await settled.maintenance.check_invariants() == []

    MEDDLING[invariant](settled)

    assert invariant in _named(await settled.maintenance.check_invariants())


@pytest.mark.parametrize("way", MORE)
async def test_there_are_many_ways_not_to_fit(settled: Village, way: str) -> None:
    invariant, meddle = MORE[way]

    meddle(settled)

    assert invariant in _named(await settled.maintenance.check_invariants())


async def test_looking_changes_nothing(settled: Village) -> None:
    settled.lose("queue:leases")
    before = settled.keys_like()

    first, second = await settled.maintenance.check_invariants(), await settled.maintenance.check_invariants()

    assert (first, settled.keys_like()) == (second, before)


async def test_at_most_a_few_sentences_are_told_of_each(settled: Village) -> None:
    settled.lose("task:all")

    broken = await settled.maintenance.check_invariants()

    assert len([sentence for sentence in broken if sentence.startswith("indexes_match_records")]) == 5


async def test_edges_between_partitions_are_known_on_both_sides(server_binary: Binary, server_pool: Pool) -> None:
    cluster = server_pool.cluster(server_binary.kind)
    assert isinstance(cluster, Cluster)
    async with village(cluster) as built:
        link, places = built.maintenance._link, built.maintenance._places
        far = next(f"q{n}" for n in range(100) if places.of_queue(f"q{n}") != places.of_queue("default"))
        needed = await built.scene.add()
        await built.scene.add(queue=far, depends_on=(needed.id,))
        assert await built.maintenance.check_invariants() == []

        here = places.of_queue("default")
        await link.ask(here, ("DEL", f"{link.names[here].prefix}task:waiting:{needed.id}"))

        assert _named(await built.maintenance.check_invariants()) == {"dependencies_can_complete"}


def test_every_invariant_is_tried() -> None:
    folder = Path(scan.__file__).parent
    parts = [*folder.glob("lua/lib/record_checks.lua"), folder / "lua/repair.lua", *folder.glob("*.py")]
    text = "\n".join(path.read_text() for path in parts)
    named = set(re.findall(r"(?:check|note|report)\(\s*['\"]([a-z_]+)['\"]", text))
    named |= {invariant for _, invariant in scan._BESIDE.values()}
    named |= set(re.findall(r"(?:append\(\s*|return \[)\(\s*\"([a-z_]+)\",", text))

    assert named == set(MEDDLING)

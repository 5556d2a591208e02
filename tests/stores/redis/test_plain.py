"""Plain tasks take a short way through the scripts. It must lead where the usual way leads, and never further."""

from typing import Any

import msgspec
import pytest

from ade import Status, Task
from ade.errors import StaleLease
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.scripts import LuaScript, state_places
from tests.conformance.scene import Scene
from tests.domain import Change
from tests.servers.pool import Pool
from tests.servers.server import Server

STREAM = "ade:queue:tasks:default:5"
OWN = {
    "SEQ",
    "RUN_ID",
    "LOGGED",
    "NEEDS",
    "APPROVED",
    "TEAM",
    "TICKET",
}  # differs, or is absent


@pytest.fixture
def server(server_pool: Pool) -> Server:
    return server_pool.standalone("valkey")


def state_of(server: Server, task: Task) -> dict[str, Any]:
    """The state by the names that scripts have for its fields."""
    with server.client(decode_responses=False) as client:
        state = msgspec.msgpack.decode(client.hget(f"ade:task:{task.id}", "state"))
    return {name: state[place - 1] for name, place in state_places().items() if name not in OWN}


def never(_: object) -> bool:
    return False


def number(answer: object) -> int:
    assert isinstance(answer, int)
    return answer


async def life_of_one(server: Server, scene: Scene) -> list[dict[str, Any]]:
    """The states of a task that is added, claimed and completed."""
    task = await scene.add()
    states = [state_of(server, task)]
    [running] = await scene.claim()
    states.append(state_of(server, task))
    await scene.succeed(running, '{"n":1}')
    return [*states, state_of(server, task)]


async def test_plain_tasks_take_the_short_way(server: Server, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {}
    run_script = RedisClient.run_script

    async def remembered(link: RedisClient, known: LuaScript, *words: Any, **more: Any) -> Any:
        answers[known.name] = await run_script(link, known, *words, **more)
        return answers[known.name]

    monkeypatch.setattr(RedisClient, "run_script", remembered)
    server.command("CONFIG", "RESETSTAT")
    await life_of_one(server, scene)

    assert answers["add_fast_path"] == 1
    assert "cmdstat_smembers" not in str(server.command("INFO", "commandstats"))  # no claim looked along the lines


async def test_a_plain_task_has_the_same_states_as_any_other(
    server: Server, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = await life_of_one(server, scene)
    monkeypatch.setattr("ade.stores.redis.inserts.is_plain", never)
    server.command("SADD", "ade:queue:lines", "default:send")  # a line that a claim must look along
    usual = await life_of_one(server, scene)

    assert plain == usual


async def test_ends_of_every_kind_come_in_one_call(scene: Scene) -> None:
    tasks = await scene.add_many(3)
    tasks += [await scene.add(deadline=scene.clock.now() + 3_600_000), await scene.add(concurrency_key="k")]
    waits = await scene.add(depends_on=(tasks[0].id,))
    plain, renewed, lost, dated, keyed = await scene.claim(5)
    scene.clock.advance(10)
    assert scene.renew(renewed) == {}
    await scene.cancel(lost.id)
    ends: list[Change] = [scene.success(each) for each in (plain, renewed, lost, dated)]
    ends.insert(1, scene.failure(keyed))

    verdicts = await scene.stores.tasks.commit_each(ends)

    assert [type(each) for each in verdicts] == [type(None)] * 3 + [StaleLease, type(None)]
    statuses = [(await scene.get(each.id)).status for each in (plain, keyed, renewed, lost, dated)]
    done = Status.COMPLETED
    assert statuses == [done, Status.PENDING, done, Status.CANCELLED, done]
    assert await scene.run() == [waits.id]


async def test_an_end_that_comes_again_is_written_once(scene: Scene) -> None:
    running = await scene.start()
    end = scene.success(running, "1")
    await scene.stores.tasks.commit(end)

    assert await scene.stores.tasks.commit_each([end, end]) == [None, None]
    assert (await scene.get(running.id)).version == end.after.version


async def test_no_end_is_taken_from_a_run_that_lost_its_task(scene: Scene) -> None:
    running = await scene.start()
    await scene.release(running)
    [again] = await scene.claim(worker="w2")

    [verdict] = await scene.stores.tasks.commit_each([scene.success(running)])

    assert isinstance(verdict, StaleLease)
    assert (await scene.get(again.id)).run_id == again.run_id


async def test_ends_in_any_order_leave_the_entries_of_those_that_run(server: Server, scene: Scene) -> None:
    await scene.add_many(50)
    running = await scene.claim(40)

    await scene.stores.tasks.commit_each([scene.success(task) for task in reversed(running[10:20])])
    assert number(server.command("XLEN", STREAM)) == 40
    await scene.stores.tasks.commit_each([scene.success(task) for task in running[:10] + running[25:35]])
    assert number(server.command("XLEN", STREAM)) == 20
    await scene.stores.tasks.commit_each([scene.success(task) for task in running[20:25] + running[35:]])

    assert number(server.command("XLEN", STREAM)) == 10
    assert len(await scene.run(20)) == 10


async def test_an_entry_that_somebody_acknowledged_stays_until_its_run_ends(server: Server, scene: Scene) -> None:
    await scene.add_many(20)
    first, *others = await scene.claim(20)
    entry = server.command("XRANGE", STREAM, "-", "+", "COUNT", 1)
    assert isinstance(entry, list)
    server.command("XACK", STREAM, "ade-workers", entry[0][0])

    await scene.stores.tasks.commit_each([scene.success(task) for task in others])

    assert server.command("XRANGE", STREAM, "-", "+") == entry
    await scene.succeed(first)
    assert number(server.command("XLEN", STREAM)) == 0


async def test_tasks_of_several_queues_are_claimed_by_age(scene: Scene) -> None:
    tasks = [await scene.add(queue=f"q{at % 3}", concurrency_key="k" if at == 4 else None) for at in range(12)]

    assert await scene.run(7) + await scene.run(7) == [task.id for task in tasks]


async def test_a_foreign_entry_in_a_stream_starts_nothing(server: Server, scene: Scene) -> None:
    first, second = await scene.add_many(2)
    server.command("XADD", STREAM, "*", "id", second.id, "name", second.name)
    server.command("XADD", STREAM, "*", "thing", "of another program")
    server.command("HINCRBY", "ade:queue:levels", "5:default", 2)

    assert await scene.run(5) == [first.id, second.id]
    assert number(server.command("XLEN", STREAM)) == 0


async def test_what_is_plain_is_counted_anew_like_everything_else(server: Server, scene: Scene) -> None:
    server.command("SET", "ade:recount", "9999999999999999 0")  # a recount that has passed all tasks
    await scene.run(len(await scene.add_many(3)))

    assert server.command("HGETALL", "ade:recount:tally") == {"default:send:completed": "3"}
    server.command("DEL", "ade:recount", "ade:recount:tally")

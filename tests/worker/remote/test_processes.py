"""`ade worker --url` and `ade serve` as real processes, which are killed."""

import asyncio
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ade import Client, Status, connect
from tests.depth import sampled
from tests.domain import ExitCode, Role, list_tokens, revoke_token
from tests.faults.served import Served, served_on
from tests.faults.workers import until

pytestmark = [pytest.mark.faults]

APP = "tests.worker.remote.errands:app"
QUICK = {"ADE_WORKER__LEASE_S": "6", "ADE_WORKER__HEARTBEAT_S": "0.4"}
PATIENT = {"ADE_WORKER__LEASE_S": "30", "ADE_WORKER__HEARTBEAT_S": "1"}
STORES = ("sqlite", "valkey")


class Crew:
    """Workers, and what they have left in their journal."""

    def __init__(self, served: Served, token: str, folder: Path) -> None:
        self.served = served
        self.journal = folder / "journal"
        self._token = token

    async def worker(self, name: str, **settings: str) -> Any:
        program = self.served.worker(name, APP, self._token, **settings)
        await program.until_it_says("worker.started")
        return program

    def noted(self, word: str) -> list[list[str]]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == word]

    def has_noted(self, word: str, count: int) -> bool:
        return len(self.noted(word)) >= count

    async def task(self, client: Client, number: int, name: str = "errand", **args: Any) -> str:
        made = await client.create_task(name=name, args={"journal": str(self.journal), "number": number, **args})
        return made.id


async def crew_on(served: Served, folder: Path) -> tuple[Crew, Client]:
    crew = Crew(served, await served.token(Role.WORKER), folder)
    return crew, connect(served.url, token=await served.token(Role.OPERATOR))


async def result_of(client: Client, task_id: str) -> Any:
    answer = await client.get_task_result(task_id)
    assert isinstance(answer.result, Raw)
    return msgspec.json.decode(answer.result)


@pytest.mark.parametrize("store", sampled(STORES, quick=1))
async def test_what_a_killed_worker_had_is_run_by_another(store: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with served_on(store, tmp_path) as served:
        crew, client = await crew_on(served, tmp_path)
        async with client:
            first = await crew.worker("first", **QUICK)
            task_id = await crew.task(client, 3, until=str(gate))
            await until(lambda: len(crew.noted("began")) == 1, "the first worker has it")
            await crew.worker("second", **PATIENT)
            first.send(signal.SIGKILL)
            await until(lambda: len(crew.noted("began")) == 2, "the second worker has it")
            gate.touch()
            task = await client.wait_for_task(task_id, 90)
            pids = [words[-1] for words in crew.noted("began")]
            assert (task.status, task.attempt) == (Status.COMPLETED, 2)
            assert [words[-1] for words in crew.noted("ended")] == pids[1:]
            assert pids[0] != pids[1]


@pytest.mark.parametrize("store", STORES)
async def test_a_server_that_is_killed_costs_no_run_and_no_result(store: str, tmp_path: Path) -> None:
    async with served_on(store, tmp_path) as served:
        crew, client = await crew_on(served, tmp_path)
        async with client:
            await crew.worker("one", ADE_WORKER__THREADS="4", **PATIENT)
            gates = [tmp_path / f"gate-{number}" for number in range(3)]
            ids: dict[str, int] = {}
            for turn, gate in enumerate(gates):
                numbers = range(turn * 20, turn * 20 + 20)
                for number in numbers:
                    ids[await crew.task(client, number, until=str(gate))] = number
                await until(partial(crew.has_noted, "began", turn * 20 + 4), "some of them run")
                await served.kill()
                gate.touch()  # what runs comes to its end while nobody is there to be told
                await until(partial(crew.has_noted, "ended", turn * 20 + 4), "some of them have ended")
                await served.start()
            tasks = await asyncio.gather(*(client.wait_for_task(task_id, 90) for task_id in ids))
            assert {task.status for task in tasks} == {Status.COMPLETED}
            results = {task_id: await result_of(client, task_id) for task_id in ids}
            assert results == {task_id: number * number for task_id, number in ids.items()}
            assert Counter(words[0] for words in crew.noted("began")) == Counter(map(str, ids.values()))


@pytest.mark.long
@pytest.mark.realtime
async def test_a_function_that_blocks_the_worker_keeps_its_lease(tmp_path: Path) -> None:
    async with served_on("sqlite", tmp_path) as served:
        crew, client = await crew_on(served, tmp_path)
        async with client:
            await crew.worker("blocked", **QUICK)
            task = await client.wait_for_task(await crew.task(client, 1, "block", seconds=9.0), 90)
            assert (task.status, task.attempt, len(crew.noted("began"))) == (Status.COMPLETED, 1, 1)


async def test_whoever_may_not_work_is_told_at_the_start(tmp_path: Path) -> None:
    async with served_on("sqlite", tmp_path) as served:
        for token, word in (("ade_nobody", "not_authenticated"), (await served.token(Role.VIEWER), "not_permitted")):
            stranger = served.worker(f"stranger-{word}", APP, token)
            assert await stranger.exit_code() != 0
            assert word in stranger.log()


async def test_a_worker_of_several_processes_ends_cleanly(tmp_path: Path) -> None:
    async with served_on("sqlite", tmp_path) as served:
        crew, client = await crew_on(served, tmp_path)
        async with client:
            worker = served.worker("several", APP, await _other_token(served), ADE_WORKER__PROCESSES="2")
            await until(lambda: worker.log().count("worker.started") == 2, "both processes are up")
            task_id = await crew.task(client, 7, "compute")
            task = await client.wait_for_task(task_id, 90)
            assert (task.status, await result_of(client, task_id)) == (Status.COMPLETED, -7)
            worker.send(signal.SIGTERM)
            assert await worker.exit_code() == 0, worker.log()
            assert worker.log().count("worker.stopped") == 2
            assert [
                seen.worker.id for seen in (await client.list_workers()).items if seen.worker.id[:5] == "http:"
            ] == []


async def _other_token(served: Served) -> str:
    """Of an admin: whoever may work may do so."""
    return await served.token(Role.ADMIN)


@pytest.mark.long  # a claim that waits at the server ends first
async def test_the_process_of_a_worker_ends_with_a_message_when_its_token_is_revoked(tmp_path: Path) -> None:
    async with served_on("sqlite", tmp_path) as served:
        crew, client = await crew_on(served, tmp_path)
        async with client:
            worker = served.worker("revoked", APP, await _other_token(served))
            await until(lambda: "worker.started" in worker.log(), "it is up")
            for token in await list_tokens(served.stores, "the-admin"):
                await revoke_token(served.stores, token.id)
            await crew.task(client, 7, "compute")  # ends the claim that waits
            assert await worker.exit_code() == ExitCode.DENIED, worker.log()
            assert "The server rejected the token of this worker" in worker.log()

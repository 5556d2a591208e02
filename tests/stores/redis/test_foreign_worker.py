"""A worker of another language: a real process that knows the protocol page and nothing of ADE's code."""

import ast
import asyncio
import hashlib
import signal
import subprocess
import sys
import uuid
from binascii import crc_hqx
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ade import Ade, Backoff, Status, Task
from ade.failures import FailureKind
from ade.settings import Settings
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.scripts import EARLIER_NAMES, script, script_names
from ade.stores.redis.scripts import main as export_scripts
from ade.worker.sweep import read_outcome, settle_due
from tests.architecture.repository import ROOT
from tests.cli.processes import call
from tests.domain import Failed, Payloads, RedisSettings, RedisTasks, StoreSettings
from tests.servers.pool import POOL
from tests.servers.server import DURABLE
from tests.waiting import eventually

PROGRAM = ROOT / "tests" / "stores" / "redis" / "foreign_worker.py"
PATIENCE_S = 90.0


@pytest.fixture
def url() -> str:
    return POOL.standalone("valkey", DURABLE).url


@pytest.fixture
async def ade(url: str) -> AsyncIterator[Ade]:
    async with Ade(settings=Settings(store=StoreSettings(url=url))) as app:
        yield app


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts, as the documented command writes them."""
    folder = tmp_path_factory.mktemp("scripts")
    command = [sys.executable, "-m", "ade.stores.redis.scripts", str(folder)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    return folder


@pytest.fixture
def programs() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def finished(url: str, scripts: Path) -> list[str]:
    """Let the foreign worker do what there is; what it printed."""
    command = [sys.executable, str(PROGRAM), url, str(scripts)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=scripts
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def link_of(ade: Ade) -> RedisClient:
    tasks = (await ade.open()).stores.tasks
    assert isinstance(tasks, RedisTasks)
    return tasks._link


async def claimed(ade: Ade, partition: int = 0, **request: Any) -> dict[str, Any]:
    """Claim as the protocol says, with a request in JSON, over plain commands."""
    asked: dict[str, Any] = {
        "worker": "w",
        "run_ids": ["r1"],
        "names": ["double"],
        "queues": [],
        "lease_ms": 30_000,
        **request,
    }
    _, *records = await foreign(ade, "claim", partition, id=asked["run_ids"][0], **asked)
    [record] = records
    found: dict[str, Any] = msgspec.json.decode(record)
    return found


async def foreign(ade: Ade, name: str, partition: int = 0, /, **request: Any) -> Any:
    """A call put together as the protocol page has it."""
    link = await link_of(ade)
    prefix = "ade:" if link.partitions == 1 else f"ade:{{p{partition}}}:"
    streams = (f"{prefix}queue:tasks", "ade-workers", f"{prefix}queue:results", f"{prefix}queue:dlq")
    words = (msgspec.json.encode(request), partition, link.partitions, *streams)
    return (await link.ask(partition, ("EVAL", script(name).text, 2, f"{prefix}meta", f"{prefix}void", *words)))[0]


async def hand_in(ade: Ade, record: dict[str, Any], outcome: str | dict[str, Any], partition: int = 0) -> str:
    text = outcome if isinstance(outcome, str) else msgspec.json.encode(outcome).decode()
    known = {"id": record["id"], "run_id": record["run_id"]}
    answer: bytes = await foreign(ade, "hand_in", partition, **known, outcome=text)
    return answer.decode()


async def settled(ade: Ade) -> int:
    opened = await ade.open()
    return await settle_due(opened.stores, payloads=opened.payloads)


async def ended(ade: Ade, outcome: str | dict[str, Any], **options: Any) -> Task:
    """A task whose run was handed in with this outcome and then settled."""
    handle = await ade.enqueue("double", {"number": 1}, allow_unknown=True, **options)
    record = await claimed(ade, run_ids=[uuid.uuid4().hex])
    assert await hand_in(ade, record, outcome) == "taken"
    assert await settled(ade) == 1
    return await handle.get()


def test_the_foreign_worker_uses_nothing_of_ade() -> None:
    nodes = list(ast.walk(ast.parse(PROGRAM.read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}

    assert modules == {"collections.abc", "json", "pathlib", "redis", "sys", "threading", "typing", "uuid"}


def test_the_folder_has_every_script_as_the_server_gets_it(scripts: Path) -> None:
    names = {name: name for name in script_names()} | EARLIER_NAMES
    assert {path.stem: path.read_text() for path in scripts.iterdir()} == {
        written: script(name).text for written, name in names.items()
    }


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SystemExit):
        export_scripts([str(tmp_path / "file" / "folder")])

    assert "Not a directory" in capsys.readouterr().err


async def test_tasks_of_other_languages_complete_and_are_retried_as_the_core_decides(
    ade: Ade, url: str, scripts: Path
) -> None:
    @ade.task()
    async def unrelated() -> None: ...

    good = await ade.enqueue("double", {"number": 21}, allow_unknown=True)
    bad = await ade.enqueue("flaky", allow_unknown=True, backoff=Backoff(base_ms=10))
    async with ade.worker():  # settles what is handed in, and runs nothing of it
        lines = await finished(url, scripts)
        assert await good.result(timeout=PATIENCE_S) == {"doubled": 42}
        assert lines == [f"{word} {handle.id}" for handle in (good, bad) for word in ("running", "taken")]
        async with asyncio.timeout(PATIENCE_S):
            while (task := await bad.get()).status is not Status.COMPLETED:
                await finished(url, scripts)

    assert [event.type async for event in bad.events()] == [
        "task.created",
        "task.claimed",
        "task.retry_scheduled",
        "task.claimed",
        "task.succeeded",
    ]
    assert (task.attempt, task.worker_id) == (2, None)
    assert await (await ade.open()).stores.maintenance.check_invariants() == []


async def test_a_killed_foreign_worker_loses_its_task_to_another(
    ade: Ade, url: str, scripts: Path, programs: list["subprocess.Popen[str]"]
) -> None:
    handle = await ade.enqueue("hang", allow_unknown=True)
    command = [sys.executable, str(PROGRAM), url, str(scripts)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    programs.append(process)
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == f"running {handle.id}\n"
    lease = (await handle.get()).lease_until

    async def has_beaten() -> bool:
        return (await handle.get()).lease_until != lease

    await eventually(has_beaten)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)

    @ade.task(name="hang")
    async def rescue() -> str:
        return "rescued"

    async with ade.worker():
        assert await handle.result(timeout=PATIENCE_S) == "rescued"
    told = [event.type async for event in handle.events()]
    assert told == [
        "task.created",
        "task.claimed",
        "task.stalled",
        "task.claimed",
        "task.reclaimed",
        "task.succeeded",
    ]


async def test_ade_sweep_settles_where_no_worker_runs(ade: Ade, url: str, scripts: Path, tmp_path: Path) -> None:
    handle = await ade.enqueue("double", {"number": 4}, allow_unknown=True)
    await finished(url, scripts)
    assert await handle.status() is Status.RUNNING

    done = await asyncio.to_thread(call, tmp_path, "--store", url, "sweep", "--once")

    assert done.returncode == 0, done.stderr
    assert await handle.result(timeout=0) == {"doubled": 8}


async def test_a_claim_in_json_tells_all_a_worker_needs(ade: Ade) -> None:
    handle = await ade.enqueue("double", {"number": 3}, allow_unknown=True, queue="sums", priority=2, timeout=9)

    record = await claimed(ade)

    lease = (await handle.get()).lease_until
    detail = record.pop("detail")
    assert record == {
        "id": handle.id,
        "run_id": "r1",
        "name": "double",
        "queue": "sums",
        "priority": 2,
        "attempt": 1,
        "generation": 1,
        "lease_until": lease,
    }
    assert (detail["args"], detail["timeout_ms"]) == ({"number": 3}, 9000)
    assert await claimed(ade) == {**record, "detail": detail}  # the same request again


@pytest.mark.parametrize("priority", [0, 5])
async def test_a_claim_of_nothing_takes_nothing(ade: Ade, priority: int) -> None:
    handle = await ade.enqueue("double", {"number": 3}, allow_unknown=True, priority=priority)
    nothing = {"id": "r0", "worker": "w", "run_ids": [], "names": ["double"], "queues": [], "lease_ms": 30_000}

    assert await foreign(ade, "claim", **nothing) == [0]

    assert (await handle.get()).status is Status.PENDING
    assert (await claimed(ade))["id"] == handle.id


async def test_the_first_outcome_counts_and_is_settled_once(ade: Ade) -> None:
    handle = await ade.enqueue("double", allow_unknown=True)
    record = await claimed(ade)

    assert [await hand_in(ade, record, {"result": number}) for number in (1, 2)] == ["taken", "taken"]
    counts = await asyncio.gather(*(settled(ade) for _ in range(3)))

    assert max(counts) == 1
    assert await handle.result(timeout=0) == 1
    assert [event.type async for event in handle.events()].count("task.succeeded") == 1
    assert await hand_in(ade, record, {"result": 3}) == "completed"
    assert await settled(ade) == 0


async def test_who_lost_the_task_is_told_and_changes_nothing(ade: Ade) -> None:
    handle = await ade.enqueue("double", allow_unknown=True)
    record = await claimed(ade)
    await handle.cancel("not needed")

    assert await hand_in(ade, record, {"result": 1}) == "cancelled"
    assert await hand_in(ade, {**record, "id": "0" * 8}, {"result": 1}) == "gone"
    assert await settled(ade) == 0


async def test_cancelling_throws_away_what_was_handed_in(ade: Ade) -> None:
    handle = await ade.enqueue("double", allow_unknown=True)
    assert await hand_in(ade, await claimed(ade), {"result": 1}) == "taken"

    await handle.cancel("not needed")

    assert await settled(ade) == 0
    assert await handle.status() is Status.CANCELLED


async def test_what_was_handed_in_is_safe_from_its_lease(ade: Ade) -> None:
    """Nobody sweeps for long: the lease runs out, and still the outcome counts."""
    handle = await ade.enqueue("double", allow_unknown=True)
    record = await claimed(ade, lease_ms=1)
    assert await hand_in(ade, record, {"result": 5}) == "taken"
    stores = (await ade.open()).stores

    async def has_run_out() -> bool:
        return stores.clock.steady() > int(record["lease_until"]) + 1

    await eventually(has_run_out)

    due = await stores.sweeps.due(10)

    assert (due.expired, [task.id for task, _ in due.handed_in]) == ([], [handle.id])
    assert await settled(ade) == 1
    assert await handle.result(timeout=0) == 5


@pytest.mark.parametrize(
    "outcome", ["{", "[1]", "7", "{}", '{"retry_after_ms": 1}', '{"result": "\\ud800"}', "x" * (1024 * 1024 + 1)]
)
async def test_what_is_no_outcome_is_not_taken(ade: Ade, outcome: str) -> None:
    handle = await ade.enqueue("double", allow_unknown=True)

    answer = await hand_in(ade, await claimed(ade), outcome)

    assert answer == ("too_large" if outcome.startswith("x") else "not_an_outcome")
    assert await settled(ade) == 0
    assert await handle.status() is Status.RUNNING


@pytest.mark.parametrize(
    ("outcome", "status", "kind"),
    [
        ({"error": {"type": "E", "message": "m"}}, Status.PENDING, FailureKind.RAISED),
        ({"error": {"type": "E", "message": "m", "retryable": False}}, Status.FAILED, FailureKind.RAISED),
        ({"error": {"type": "E", "message": "m", "kind": "unrecoverable"}}, Status.FAILED, FailureKind.UNRECOVERABLE),
        ({"error": {"type": "E", "message": "m", "kind": "worker_died"}}, Status.FAILED, FailureKind.BAD_RESULT),
        ({"error": {"type": "E", "message": "m"}, "result": 1}, Status.FAILED, FailureKind.BAD_RESULT),
        ({"error": "text"}, Status.FAILED, FailureKind.BAD_RESULT),
        ('{"result": 0x10}', Status.FAILED, FailureKind.BAD_RESULT),
        ('{"result": ' + "[" * 995 + "]" * 995 + "}", Status.FAILED, FailureKind.BAD_RESULT),
    ],
)
async def test_the_core_decides_what_follows_from_an_error(
    ade: Ade, outcome: Any, status: Status, kind: FailureKind
) -> None:
    task = await ended(ade, outcome)

    assert task.status is status
    assert task.error is not None
    assert task.error.kind is kind


@pytest.mark.parametrize(
    "content", [b'{"result": "\xff"}', b"[]", b"", b'{"result": 1, "more": 2}', b'{"released": 1}']
)
def test_what_no_json_reader_takes_is_a_failure_and_not_an_error(content: bytes) -> None:
    outcome = read_outcome(content)

    assert isinstance(outcome, Failed)
    assert outcome.error.kind is FailureKind.BAD_RESULT


async def test_the_delay_a_failure_asks_for_is_kept(ade: Ade) -> None:
    task = await ended(ade, {"error": {"type": "E", "message": "m", "kind": "retry_asked"}, "retry_after_ms": 60_000})

    assert (task.status, task.run_after - task.updated_at) == (Status.PENDING, 60_000)


async def test_a_task_that_is_handed_back_loses_no_attempt(ade: Ade) -> None:
    task = await ended(ade, {"released": "shutting down"})

    assert (task.status, task.attempt, task.error) == (Status.PENDING, 0, None)


async def test_long_texts_are_cut_and_large_details_left_out(ade: Ade) -> None:
    error = {"type": "T" * 300, "message": "m" * 3000, "details": {"log": "x" * 9000}}

    task = await ended(ade, {"error": error})

    assert task.error is not None
    assert (len(task.error.type), len(task.error.message), task.error.details) == (200, 2000, None)


async def test_a_large_result_goes_to_the_blobs_and_a_reference_cannot_be_forged(ade: Ade) -> None:
    large = await ended(ade, {"result": "x" * 200_000})
    forged = await ended(ade, '{"result":{"$blob":"' + large.id + '.result","size":1,"sha256":"x"}}')
    payloads: Payloads = (await ade.open()).payloads

    assert large.result is not None
    assert forged.result is not None
    assert len(large.result) < 1000
    assert msgspec.json.decode(await payloads.load(Raw(bytes(large.result)))) == "x" * 200_000
    assert msgspec.json.decode(await payloads.load(Raw(bytes(forged.result))))["$blob"] == f"{large.id}.result"


async def test_heartbeats_tell_whether_the_task_is_still_held(ade: Ade) -> None:
    handle = await ade.enqueue("double", allow_unknown=True)
    record = await claimed(ade, lease_ms=10_000)
    runs = [["r1", record["id"]], ["r1", "nobody"], ["another", record["id"]]]

    assert await foreign(ade, "renew", worker="w", runs=runs, lease_ms=60_000) == [b"held", b"gone", b"running"]
    assert ((await handle.get()).lease_until or 0) > record["lease_until"]
    await handle.cancel("not needed")
    assert await foreign(ade, "renew", worker="w", runs=runs[:1], lease_ms=60_000) == [b"cancelled"]


async def test_a_foreign_worker_can_show_itself_and_its_progress(ade: Ade) -> None:
    handle = await ade.enqueue("double", allow_unknown=True)
    await claimed(ade)
    text = '{"id": "w", "hostname": "h", "pid": 1, "started_at": 1760000000000, "version": "1"}'

    await foreign(ade, "register_worker", worker="w", ttl_ms=30_000, definitions=[], text=text)
    assert await foreign(ade, "report_progress", id=handle.id, run_id="r1", progress='{"percent": 50}') == 1

    assert [worker.id for worker in await (await ade.open()).stores.workers.list_workers()] == ["w"]
    progress = (await handle.get()).progress
    assert progress is not None
    assert msgspec.json.decode(progress) == {"percent": 50}


async def test_large_arguments_are_found_where_the_page_says(ade: Ade) -> None:
    await ade.enqueue("double", {"text": "x" * 200_000}, allow_unknown=True)

    args = (await claimed(ade))["detail"]["args"]

    [blob] = await (await link_of(ade)).ask(0, ("GET", f"ade:blob:{args['$blob']}"))
    assert blob[:32] == hashlib.sha256(blob[32:]).digest()
    assert msgspec.json.decode(blob[32:]) == {"text": "x" * 200_000}


async def test_on_a_cluster_a_queue_is_in_the_partition_the_page_computes() -> None:
    cluster = POOL.cluster("valkey")
    settings = Settings(store=StoreSettings(url=cluster.url), redis=RedisSettings(partitions=5, allow_volatile=True))
    async with Ade(settings=settings) as ade:
        for number, queue in enumerate(("mail", "sums", "reports")):
            handle = await ade.enqueue("double", {"text": "x" * 200_000}, allow_unknown=True, queue=queue)
            partition = crc_hqx(queue.encode(), 0) % 16384 % 5
            record = await claimed(ade, partition, run_ids=[f"r{number}"])
            assert (record["id"], record["queue"]) == (handle.id, queue)
            at = crc_hqx(handle.id.encode(), 0) % 16384 % 5
            ref = record["detail"]["args"]["$blob"]
            assert await (await link_of(ade)).ask(at, ("EXISTS", f"ade:{{p{at}}}:blob:{ref}")) == [1]
            assert await hand_in(ade, record, {"result": number}, partition) == "taken"
        assert await settled(ade) == 3
        assert await handle.result(timeout=0) == 2
        assert await (await ade.open()).stores.maintenance.check_invariants() == []

"""Calls over HTTP, to servers that are slow, full, gone or none of ours."""

import asyncio
import gc
import ssl

import pytest
from msgspec.structs import replace

import ade
from ade import Client, Status
from ade.client.http_transport import HttpTransport
from ade.errors import InvalidUrl, QueueFull, ServerUnreachable, StoreUnavailable, UnknownTask, WaitTimeout
from ade.server.pagination import VersionedRecord
from tests.client.scripted_server import DROP, TASK, TOKEN, json_answer, problem_answer, story, task_answer
from tests.common.http.servers import Server, Visit, serving
from tests.domain import NotAuthenticated, Schedule, ServerProblem, TooManyRequests, to_wire
from tests.servers.ports import ReservedPort


async def test_a_record_is_asked_for_and_read() -> None:
    async with story(task_answer()) as told:
        assert await told.client.get_task(TASK.id, wait=5) == TASK
        assert told.lines == [f"GET /api/v1/tasks/{TASK.id}?wait=5&whole=false"]
        assert told.asked("authorization") == [f"Bearer {TOKEN}"]
        assert TOKEN not in repr(told.client)


async def test_a_record_may_have_fields_that_are_not_known_here() -> None:
    newer = {"id": TASK.id, "name": "greet", "version": 3, "mood": "good", "created_at": "2025-10-09T08:53:20.000Z"}
    async with story(json_answer(newer)) as told:
        assert await told.client.get_task(TASK.id) == TASK


async def test_without_an_event_loop_a_call_is_waited_for() -> None:
    async with story(task_answer(), task_answer()) as told:
        client = ade.connect(told.server.url, token=TOKEN)

        def in_a_script() -> tuple[object, object]:
            found = client.get_task(TASK.id).wait(), client.get_task(TASK.id).wait()
            client.close().wait()
            return found

        assert await asyncio.to_thread(in_a_script) == (TASK, TASK)
        assert told.server.visits == 1  # the connection was kept


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # as it is: nobody has closed the client
async def test_connections_of_event_loops_that_are_closed_do_not_stay_open() -> None:
    gone: list[int] = []
    all_but_the_last = asyncio.Event()

    async def behave(server: Server, visit: Visit) -> None:
        await visit.request()
        await visit.say(task_answer())
        await visit.gone()
        gone.append(visit.number)
        if len(gone) == 4:
            all_but_the_last.set()

    async with serving(behave) as server:
        client = ade.connect(server.url, token=TOKEN)

        async def call() -> object:
            return await client.get_task(TASK.id)

        for _ in range(5):
            assert await asyncio.to_thread(asyncio.run, call()) == TASK
        async with asyncio.timeout(60):
            await all_but_the_last.wait()
        assert sorted(gone) == [1, 2, 3, 4]
        await client.close()
        gc.collect()


async def test_an_error_of_the_server_is_raised_as_itself() -> None:
    async with story(problem_answer(404, "unknown_task")) as told:
        with pytest.raises(UnknownTask, match="it is unknown_task"):
            await told.client.get_task("t")


async def test_a_refusal_that_nobody_knows_keeps_its_code_and_status() -> None:
    async with story(problem_answer(418, "teapot")) as told:
        with pytest.raises(ServerProblem) as raised:
            await told.client.get_task("t")
        assert (raised.value.code, raised.value.status, told.pauses) == ("teapot", 418, [])


@pytest.mark.parametrize("retry", [(429, "too_many_requests"), (503, "store_unavailable"), (503, "unavailable")])
async def test_a_server_that_asks_for_patience_gets_it(retry: tuple[int, str]) -> None:
    later = problem_answer(*retry, headers="retry-after: 7\r\n")
    async with story(later, later, task_answer()) as told:
        assert await told.client.create_task(name="greet") == TASK
        assert told.pauses == [7.0, 7.0]
        [key] = set(told.asked("idempotency-key"))
        assert key


async def test_patience_ends() -> None:
    async with story(*[problem_answer(503, "store_unavailable")] * 4) as told:
        with pytest.raises(StoreUnavailable):
            await told.client.get_task("t")
        assert told.pauses == [1.0] * 3


async def test_who_wants_too_much_patience_is_told_of() -> None:
    async with story(
        problem_answer(429, "too_many_requests", headers="retry-after: 3600\r\n", retry_after=3600)
    ) as told:
        with pytest.raises(TooManyRequests) as raised:
            await told.client.get_task("t")
        assert (raised.value.retry_after, told.pauses) == (3600, [])


async def test_a_queue_that_is_full_is_no_matter_of_seconds() -> None:
    async with story(problem_answer(429, "queue_full", headers="retry-after: 1\r\n", retry_after=1.0)) as told:
        with pytest.raises(QueueFull):
            await told.client.create_task(name="greet")
        assert told.pauses == []


async def test_a_lost_answer_is_asked_for_again_with_the_same_key() -> None:
    async with story(DROP, DROP, task_answer()) as told:
        assert await told.client.create_task(name="greet", args={"name": "Ada"}) == TASK
        [key] = set(told.asked("idempotency-key"))
        assert len(told.server.asked) == 3
        assert len({request.partition(b"\r\n\r\n")[2] for request in told.server.asked}) == 1
        assert told.pauses == [0.1, 0.2]
        assert key


async def test_two_calls_have_two_keys_and_one_may_bring_its_own() -> None:
    async with story(*[task_answer()] * 3) as told:
        await told.client.cancel_task(TASK.id)
        await told.client.cancel_task(TASK.id)
        await told.client.cancel_task(TASK.id, request_key="mine")
        first, second, mine = told.asked("idempotency-key")
        assert first != second
        assert mine == "mine"


async def test_the_first_request_may_still_run() -> None:
    running = problem_answer(409, "request_in_progress", retry_after=1)
    async with story(DROP, running, running, task_answer()) as told:
        assert await told.client.create_task(name="greet") == TASK
        assert told.pauses == [0.1, 1.0, 1.0]


async def test_somebody_elses_request_with_this_key_is_not_waited_for() -> None:
    async with story(problem_answer(409, "request_in_progress", retry_after=1)) as told:
        with pytest.raises(ServerProblem):
            await told.client.create_task(name="greet", request_key="shared")
        assert told.pauses == []


async def test_what_has_no_key_is_never_sent_twice() -> None:
    async with story(DROP) as told:
        with pytest.raises(ServerUnreachable) as raised:
            await told.client.heartbeat_agent("a")
        assert raised.value.was_sent
        assert told.asked("idempotency-key") == [""]
        assert told.pauses == []


async def test_who_names_a_version_is_not_repeated_either() -> None:
    """The first time would have made another version."""
    async with story(DROP) as told:
        with pytest.raises(ServerUnreachable):
            await told.client.set_setting("x", value=1, if_match=4)
        assert told.asked("if-match") == ['"4"']
        assert told.pauses == []


async def test_where_a_version_must_be_named_none_is_any() -> None:
    async with story(task_answer(), task_answer()) as told:
        await told.client.edit_task(TASK.id, description="x", if_match=None)
        await told.client.edit_task(TASK.id, description="x", if_match=3)
        assert told.asked("if-match") == ["*", '"3"']


async def test_what_was_removed_by_the_first_time_is_removed() -> None:
    async with story(DROP, problem_answer(404, "unknown_agent")) as told:
        await told.client.remove_agent("a")
        assert told.lines == ["DELETE /api/v1/agents/a"] * 2


async def test_a_server_that_does_not_come_back_is_told_of() -> None:
    async with story(*[DROP] * 4) as told:
        with pytest.raises(ServerUnreachable) as raised:
            await told.client.get_task("t")
        assert raised.value.was_sent
        assert len(told.server.asked) == 4


async def test_a_server_that_is_started_anew_is_waited_for() -> None:
    """It asks for patience because it is about to stop, is not there for a moment, and then is back."""
    said = [problem_answer(503, "unavailable", headers="retry-after: 1\r\n"), task_answer()]

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Visit(reader, writer, 1).request()
        writer.write(said.pop(0))
        writer.close()

    reserved = ReservedPort()
    port = reserved.number
    listening = await asyncio.start_server(visited, "127.0.0.1", port)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal listening
        pauses.append(seconds)
        if len(pauses) == 1:
            listening.close()
        else:
            listening = await asyncio.start_server(visited, "127.0.0.1", port)

    transport = HttpTransport(f"http://127.0.0.1:{port}", token=TOKEN, sleep=sleep, randomness=lambda: 0.5)
    async with Client(transport) as client:
        assert await client.get_task(TASK.id, wait=5) == TASK
    assert pauses == [1.0, 0.2]
    listening.close()
    reserved.release()


async def test_a_server_that_is_not_there_is_told_of_at_once() -> None:
    async with story() as told:
        pass
    pauses = told.pauses
    with pytest.raises(ServerUnreachable, match="no connection to 127") as raised:
        await told.client.get_task("t")
    assert (raised.value.was_sent, pauses) == (False, [])


async def test_a_slow_server_is_waited_for_as_long_as_was_asked() -> None:
    """`wait` comes on top of the time for the answer itself."""

    async def silent(server: Server, visit: Visit) -> None:
        server.asked.append(await visit.request())
        await visit.gone()

    async with serving(silent) as server:
        transport = HttpTransport(server.url, timeout_s=0.5)
        with pytest.raises(ServerUnreachable, match=r"within 0\.5 seconds"):
            await Client(transport).heartbeat_agent("a")
        await transport.close()


@pytest.mark.parametrize(
    "answer",
    [
        json_answer([1, 2]),
        json_answer({"id": 7}),
        json_answer({"id": "t", "name": "n", "created_at": "yesterday"}),
        json_answer("x", status="204 No Content")[:-3],
        json_answer({}, status="302 Found", headers="location: https://elsewhere.example\r\n"),
        json_answer("<html>", status="502 Bad Gateway"),
    ],
)
async def test_what_is_no_answer_of_ours_is_told_so(answer: bytes) -> None:
    async with story(answer, repeats=0) as told:
        with pytest.raises(ServerProblem):
            await told.client.get_task("t")


def test_a_token_never_goes_where_others_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidUrl, match="unencrypted") as raised:
        ade.connect("http://ade.example.org", token=TOKEN)
    assert TOKEN not in str(raised.value)
    ade.connect("http://ade.example.org", token=TOKEN, allow_plain=True)
    for loopback in ("http://127.0.0.1:8000", "http://localhost", "http://[::1]:80"):
        ade.connect(loopback, token=TOKEN)
    ade.connect("https://ade.example.org", token=TOKEN)
    ade.connect("http://ade.example.org")
    monkeypatch.setenv("ADE_TOKEN", TOKEN)
    with pytest.raises(InvalidUrl, match="unencrypted"):
        ade.connect("http://ade.example.org")


async def test_the_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADE_TOKEN", "from-there")
    async with story(task_answer()) as told, ade.connect(told.server.url) as client:
        await client.get_task("t")
        assert told.asked("authorization") == ["Bearer from-there"]


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ümlaut"])
def test_what_can_be_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(NotAuthenticated) as raised:
        ade.connect("https://ade.example.org", token=token)
    assert "words" not in str(raised.value)


@pytest.mark.parametrize("url", ["redis://h", "ade.example.org", "https://", "https://a@b", "https://a/?x=1"])
def test_only_addresses_of_servers_are_taken(url: str) -> None:
    with pytest.raises(InvalidUrl):
        ade.connect(url)


async def test_a_version_that_is_not_in_the_record_comes_with_it() -> None:
    schedule = Schedule(name="nightly", cron="0 3 * * *", task_name="greet")
    async with story(json_answer(to_wire(schedule), headers='etag: "12"\r\n'), json_answer(to_wire(schedule))) as told:
        assert await told.client.get_schedule("nightly") == VersionedRecord(schedule, 12)
        with pytest.raises(ServerProblem, match="has no ETag"):
            await told.client.get_schedule("nightly")


async def test_every_goes_through_all_pages() -> None:
    first, second = replace(TASK, id="a"), replace(TASK, id="b")
    pages = ({"items": [to_wire(first)], "next": "c1"}, {"items": [to_wire(second)]})
    async with story(*map(json_answer, pages)) as told:
        assert [task.id async for task in told.client.every(told.client.list_tasks, queue="mail")] == ["a", "b"]
        assert [line.partition("cursor=")[2][:2] for line in told.lines] == ["", "c1"]
        assert all("queue=mail" in line for line in told.lines)


async def test_a_task_is_waited_for_in_portions() -> None:
    final = replace(TASK, status=Status.COMPLETED)
    async with story(task_answer(), task_answer(), task_answer(final), task_answer()) as told:
        assert await told.client.wait_for_task(TASK.id) == final
        assert [line.partition("?wait=")[2][:2] for line in told.lines] == ["", "60", "60"]
        with pytest.raises(WaitTimeout, match="was pending after 0 seconds"):
            await told.client.wait_for_task(TASK.id, timeout=0)


async def test_a_task_is_waited_for_over_a_restart_of_the_server() -> None:
    final = replace(TASK, status=Status.COMPLETED)
    async with story(task_answer(), *[DROP] * 4, task_answer(final)) as told:
        assert await told.client.wait_for_task(TASK.id) == final
        assert len(told.lines) == 6


async def test_a_client_that_is_closed_waits_for_nothing_any_more() -> None:
    is_asked = asyncio.Event()

    async def behave(server: Server, visit: Visit) -> None:
        await visit.request()
        await visit.say(task_answer())
        await visit.request()
        is_asked.set()
        await visit.gone()

    async with serving(behave) as server:
        client = ade.connect(server.url, token=TOKEN)
        waiting = asyncio.create_task(client.wait_for_task(TASK.id))
        await is_asked.wait()
        await client.close()
        with pytest.raises(ServerUnreachable):
            await waiting
        assert server.visits == 1


async def test_a_certificate_that_is_not_trusted_is_refused(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ours, theirs = contexts

    async def behave(server: Server, visit: Visit) -> None:
        server.asked.append(await visit.request())
        await visit.say(task_answer())

    async with serving(behave, tls=ours) as server:
        url = f"https://localhost:{server.port}"
        async with ade.connect(url, token=TOKEN, tls=theirs) as client:
            assert await client.get_task(TASK.id) == TASK
        async with ade.connect(url, token=TOKEN) as stranger:
            with pytest.raises(ServerUnreachable, match="its certificate is not accepted"):
                await stranger.get_task(TASK.id)
        assert len(server.asked) == 1

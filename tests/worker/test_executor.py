"""What becomes of a run, however its handler ends."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.structs import replace

from ade import Status, Task
from ade.approvals.repository import NEWEST, RulebookCache
from ade.errors import InvalidTask, StoreUnavailable
from ade.failures import FailureKind
from ade.tasks.outcomes import Outcome, RateLimited, Retry, Succeeded, Unrecoverable
from ade.worker.failures import failure_of
from ade.worker.handler_call import HandlerInvoker
from tests.domain import HandlerMode, Payloads, Run, StopReason
from tests.waiting import eventually
from tests.worker import process_tasks
from tests.worker.harness import Replaced, Shift, Workshop, plain


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this exception cannot even be shown")


class Odd(BaseException):
    """Not an Exception, and none of Python's own."""


class Classless(Exception):
    """Cannot even be asked what it is."""

    @property  # type: ignore[misc]  # wrong on purpose
    def __class__(self) -> type:
        raise ValueError("no class")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Classless(), FailureKind.RAISED),
        (ValueError("wrong"), FailureKind.RAISED),
        (Unrecoverable("hopeless"), FailureKind.UNRECOVERABLE),
        (Retry("again", after=0), FailureKind.RETRY_ASKED),
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (SystemExit(3), FailureKind.RAISED),
        (KeyboardInterrupt(), FailureKind.RAISED),
        (TimeoutError("its own"), FailureKind.RAISED),
        (asyncio.CancelledError(), FailureKind.RAISED),
        (Unprintable(), FailureKind.RAISED),
        (RecursionError("deep"), FailureKind.RAISED),
        (Odd("strange"), FailureKind.RAISED),
        (GeneratorExit(), FailureKind.RAISED),
    ],
    ids=lambda value: value if issubclass(type(value), str) else type(value).__name__,
)
@pytest.mark.parametrize("mode", [HandlerMode.ASYNC, HandlerMode.THREAD])
async def test_whatever_a_handler_raises_is_a_failure_of_its_task_alone(
    workshop: Workshop, error: BaseException, kind: FailureKind, mode: HandlerMode
) -> None:
    async def raise_async() -> None:
        raise error

    def raise_plainly() -> None:
        raise error

    workshop.handle(raise_async if mode is HandlerMode.ASYNC else raise_plainly, name="bad", mode=mode)
    task = await workshop.perform("bad", max_attempts=1)

    assert task.status is Status.FAILED
    assert task.error is not None
    assert task.error.kind is kind
    assert task.error.type == type(error).__name__


async def test_a_rate_limited_run_waits_as_asked_and_costs_no_attempt(workshop: Workshop) -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RateLimited("slow down", retry_after=0.05)

    workshop.handle(call)
    task = await workshop.perform("call", max_attempts=1)

    assert (task.status, task.attempt, task.throttles) == (Status.COMPLETED, 1, 1)


async def test_a_traceback_is_kept_but_bounded(workshop: Workshop) -> None:
    async def deep() -> None:
        def fall(left: int) -> None:
            if left == 0:
                raise ValueError("x" * 100_000)
            fall(left - 1)

        fall(200)

    workshop.handle(deep)
    task = await workshop.perform("deep", max_attempts=1)

    assert task.error is not None
    assert task.error.details is not None
    assert len(task.error.message) <= 2_000
    assert len(str(task.error.details["traceback"])) <= 8_100


async def test_the_traceback_shows_where_the_handler_failed(workshop: Workshop) -> None:
    async def stumble() -> None:
        raise ValueError("over a stone")

    workshop.handle(stumble)
    task = await workshop.perform("stumble", max_attempts=1)

    assert task.error is not None
    assert "in stumble" in str(task.error.details)


async def test_arguments_that_do_not_fit_fail_without_a_second_try(workshop: Workshop) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    workshop.handle(add)
    task = await workshop.perform("add", {"a": 1, "b": "two"})

    assert task.error is not None
    assert (task.status, task.attempt, task.error.kind) == (Status.FAILED, 1, FailureKind.BAD_ARGUMENTS)


@pytest.mark.parametrize("is_damaged", [True, False])
async def test_a_run_whose_handler_was_not_called_counts_as_never_begun(workshop: Workshop, is_damaged: bool) -> None:
    async def add(a: int, b: str) -> None: ...

    workshop.handle(add)
    task = await workshop.enqueue("add", {"a": 1 if is_damaged else "one", "b": "x" * 300_000}, max_attempts=1)
    if is_damaged:
        await workshop.stores.blobs.remove_blobs([task.id])
    async with workshop.worker():
        await workshop.final(task)

    events = await workshop.stores.events.read(0, 1000, task_id=task.id)
    assert [event.payload.get("has_begun") for event in events if event.type == "task.failed"] == [False]


async def test_a_result_that_is_not_what_was_declared_fails_without_a_second_try(workshop: Workshop) -> None:
    async def count() -> int:
        return "many"  # type: ignore[return-value]  # what the test is about

    workshop.handle(count)
    task = await workshop.perform("count")

    assert task.error is not None
    assert (task.attempt, task.error.kind) == (1, FailureKind.BAD_RESULT)


async def test_large_arguments_and_results_go_through_the_blob_store(workshop: Workshop) -> None:
    async def echo(text: str) -> str:
        return text

    workshop.payloads = Payloads(workshop.stores.blobs, inline_limit=100, hard_limit=10_000)
    workshop.handle(echo)
    text = "x" * 1_000
    task = await workshop.perform("echo", {"text": text})

    assert task.result is not None
    assert len(task.result) < 300
    assert plain(await workshop.payloads.load(task.result)) == text


async def test_a_result_past_the_hard_limit_is_a_failure_that_says_so(workshop: Workshop) -> None:
    async def produce() -> str:
        return "x" * 20_000

    workshop.payloads = Payloads(workshop.stores.blobs, inline_limit=100, hard_limit=10_000)
    workshop.handle(produce)
    task = await workshop.perform("produce")

    assert task.error is not None
    assert (task.attempt, task.error.kind, task.error.type) == (1, FailureKind.BAD_RESULT, "PayloadTooLarge")


async def test_plain_functions_run_in_threads_and_see_the_callers_context(workshop: Workshop) -> None:
    def who() -> str:
        return threading.current_thread().name

    workshop.handle(who)
    task = await workshop.perform("who")

    assert plain(task.result).startswith("ade-handler")


async def test_middleware_wraps_every_run_outermost_first(workshop: Workshop) -> None:
    order: list[str] = []

    def layer(name: str) -> Callable[[Task, Callable[[], Awaitable[Outcome]]], Awaitable[Outcome]]:
        async def wrap(task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
            order.append(f"{name} in")
            outcome = await proceed()
            order.append(f"{name} out")
            return outcome

        return wrap

    async def work() -> None:
        order.append("work")

    workshop.handle(work)
    async with workshop.worker(middleware=[layer("outer"), layer("inner")]):
        await workshop.final(await workshop.enqueue("work"))

    assert order == ["outer in", "inner in", "work", "inner out", "outer out"]


async def test_middleware_that_fails_fails_the_run_and_nothing_else(workshop: Workshop) -> None:
    async def broken(task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        raise LookupError("no tenant")

    async def work() -> None: ...

    workshop.handle(work)
    async with workshop.worker(middleware=[broken]):
        task = await workshop.final(await workshop.enqueue("work", max_attempts=1))

    assert task.error is not None
    assert task.error.type == "LookupError"


@pytest.mark.parametrize("error", [Odd("strange"), GeneratorExit(), KeyboardInterrupt()])
async def test_middleware_may_raise_anything_too(workshop: Workshop, error: BaseException) -> None:
    async def broken(task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        raise error

    async def work() -> None: ...

    workshop.handle(work)
    async with workshop.worker(middleware=[broken]):
        task = await workshop.final(await workshop.enqueue("work", max_attempts=1))

    assert task.error is not None
    assert task.error.type == type(error).__name__


@pytest.mark.parametrize("answer", [None, "done"])
async def test_middleware_that_returns_no_outcome_fails_its_task_and_says_so(workshop: Workshop, answer: Any) -> None:
    async def forgetful(task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Any:
        outcome = await proceed()
        return answer if task.name == "bad" else outcome

    async def work() -> None: ...

    workshop.handle(work, name="bad")
    workshop.handle(work, name="good")
    bad, good = await workshop.enqueue("bad"), await workshop.enqueue("good")
    async with workshop.worker(middleware=[forgetful]):
        assert (await workshop.final(good)).status is Status.COMPLETED
        failed = await workshop.final(bad)

    assert failed.error is not None
    assert failed.error.kind is FailureKind.BAD_RESULT


async def test_a_handler_that_cancels_itself_fails_and_does_not_keep_its_task(workshop: Workshop) -> None:
    async def give_in() -> None:
        job = asyncio.current_task()
        assert job is not None
        job.cancel()
        await asyncio.sleep(0)

    workshop.handle(give_in)
    task = await workshop.perform("give_in", max_attempts=1)
    assert task.error is not None
    assert task.error.type == "CancelledError"


async def test_an_error_that_cannot_be_written_as_text_is_kept_spelled_out(workshop: Workshop) -> None:
    async def find() -> None:
        raise ValueError("no file \udcff")

    workshop.handle(find)
    task = await workshop.perform("find", max_attempts=1)
    assert task.error is not None
    assert (task.error.type, task.error.message) == ("ValueError", "no file \\udcff")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "soon"])
def test_a_delay_that_is_none_leaves_the_usual_backoff(seconds: Any) -> None:
    assert failure_of(Retry("later", after=seconds)).retry_after_ms is None


class TestInProcesses:
    """Handlers that compute run in processes of their own."""

    async def run(self, workshop: Workshop, function: Callable[..., Any], args: dict[str, Any] | None = None) -> Task:
        workshop.handle(function, mode=HandlerMode.PROCESS)
        return await workshop.perform(function.__name__, args, max_attempts=1)

    async def test_arguments_and_results_keep_their_types(self, workshop: Workshop) -> None:
        task = await self.run(workshop, process_tasks.mirror, {"point": {"x": 1, "y": 2}})
        assert plain(task.result) == {"x": 2, "y": 1}

    async def test_the_process_is_a_child_and_has_the_environment_of_its_worker(self, workshop: Workshop) -> None:
        task = await self.run(workshop, process_tasks.where_am_i)
        pid, parent, python_path = plain(task.result)
        assert pid != os.getpid()
        assert parent == os.getpid()
        assert python_path == os.environ.get("PYTHONPATH")

    async def test_a_process_is_used_again(self, workshop: Workshop) -> None:
        workshop.handle(process_tasks.where_am_i, mode=HandlerMode.PROCESS)
        async with workshop.worker(cpu_processes=1):
            tasks = [await workshop.final(await workshop.enqueue("where_am_i")) for _ in range(3)]
        assert len({plain(task.result)[0] for task in tasks}) == 1

    @pytest.mark.parametrize(
        ("function", "kind", "type_name"),
        [
            (process_tasks.give_up, FailureKind.UNRECOVERABLE, "Unrecoverable"),
            (process_tasks.use_up_memory, FailureKind.OUT_OF_MEMORY, "MemoryError"),
            (process_tasks.return_nonsense, FailureKind.BAD_RESULT, "InvalidResult"),
            (process_tasks.kill_myself, FailureKind.RAISED, "ProcessDied"),
        ],
    )
    async def test_whatever_happens_in_the_process_is_an_outcome(
        self, workshop: Workshop, function: Callable[..., Any], kind: FailureKind, type_name: str
    ) -> None:
        task = await self.run(workshop, function)
        assert task.error is not None
        assert (task.error.kind, task.error.type) == (kind, type_name)

    async def test_a_killed_process_is_told_by_its_signal(self, workshop: Workshop) -> None:
        task = await self.run(workshop, process_tasks.kill_myself)
        assert task.error is not None
        assert task.error.message == "process died with signal SIGKILL"

    async def test_a_process_that_leaves_without_an_answer_is_told_by_its_exit_code(self, workshop: Workshop) -> None:
        task = await self.run(workshop, process_tasks.leave, {"code": 7})
        assert task.error is not None
        assert task.error.message == "process ended with exit code 7 before it answered"

    async def test_arguments_that_do_not_fit_are_noticed_in_the_process(self, workshop: Workshop) -> None:
        task = await self.run(workshop, process_tasks.leave, {"code": "seven"})
        assert task.error is not None
        assert task.error.kind is FailureKind.BAD_ARGUMENTS

    async def test_the_context_works_from_a_process(self, workshop: Workshop) -> None:
        task = await self.run(workshop, process_tasks.talk)
        assert plain(task.result) == [task.id, "1", "effect of a", "effect of a"]
        assert plain(task.progress) == 0.5
        lines = await workshop.stores.outputs.read_output(task.id, 0, 10)
        assert [line.text for line in lines] == ["half way done=1"]

    async def test_a_function_that_no_process_could_import_is_refused_at_start(self, workshop: Workshop) -> None:
        def local() -> None: ...

        from ade.worker.worker import WorkerService

        workshop.handle(local, mode=HandlerMode.PROCESS)
        with pytest.raises(InvalidTask, match="top of its module"):
            WorkerService(workshop.stores, workshop.registry)


def test_the_delay_a_handler_asks_for_is_kept() -> None:
    assert failure_of(Retry(after=2.5)).retry_after_ms == 2500
    assert failure_of(Retry()).retry_after_ms is None
    assert failure_of(RateLimited(retry_after=7)).retry_after_ms == 7000
    assert failure_of(RateLimited(retry_after=-7)).retry_after_ms == 0


async def test_a_run_whose_rules_cannot_be_read_goes_back_to_the_queue_and_uses_no_attempt(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, is_open, real = 2, True, workshop.stores.documents  # open: the worker reads them when it starts

    async def read(kind: str, ids: Sequence[str]) -> Any:
        nonlocal failures
        if is_open or not failures or kind != NEWEST.kind:
            return await real.fetch(kind, ids)
        failures -= 1
        raise StoreUnavailable("no route to the store")

    async def work() -> str:
        return "done"

    workshop.handle(work)
    stores = replace(workshop.stores, documents=cast("Any", Replaced(real, {"fetch": read})))
    async with workshop.worker(stores=stores, poll_s=0.05) as shift:
        await eventually(lambda: _has_started(shift))
        is_open = False
        monkeypatch.setattr(RulebookCache, "fresh", lambda _: None)
        task = await workshop.final(await workshop.enqueue("work", max_attempts=1))

    assert (task.status, task.attempt, failures) == (Status.COMPLETED, 1, 0)
    assert (await workshop.event_types(task)).count("task.released") == 2


async def test_a_run_can_be_ended_after_its_large_preview_was_stored_at_the_second_attempt(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.worker.handler_call._SPILL_PAUSE_S", 0.0)
    troubles = [StoreUnavailable("no route to the store")]

    async def spill(*args: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return Raw(b'"stored"')

    async def plan() -> str:
        return "x" * 300_000

    workshop.handle(plan)
    run = Run(workshop.new("plan"), workshop.registry.by_name["plan"])
    payloads = cast("Any", Replaced(workshop.payloads, {"spill": spill}))
    outcome = await HandlerInvoker(cast("Any", None), payloads).attempt(run, workshop.registry.by_name["plan"])

    assert isinstance(outcome, Succeeded)
    assert (troubles, run.finishing) == ([], False)
    assert run.end(StopReason.TIMED_OUT)


async def _has_started(shift: Shift) -> bool:
    backend = shift.runtime._backend
    return backend is not None and backend.gates is not None and backend.gates._rules is not None

"""What a handler can do through its context, the same in every mode."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec import Struct

from ade import Context, Status, SyncContext
from ade.errors import EffectInProgress, EffectUnknown, InvalidResult, InvalidTask
from ade.failures import FailureKind
from ade.tasks.model import Effect, Task
from ade.worker.messages import BeginEffect, EffectState, FinishEffect, ForgetEffect, Request, RunInfo
from tests.domain import HandlerMode
from tests.worker.harness import Gate, Workshop, plain, soon


class Receipt(Struct):
    amount: int


class Book:
    """A ledger in memory that answers a context's requests as a worker's desk would."""

    def __init__(self) -> None:
        self.effects: dict[str, Effect] = {}
        self.live_runs: set[str] = set()

    def context(self, run_id: str, name: str = "pay") -> Context:
        async def ask(request: Request) -> Any:
            match request:
                case BeginEffect(key):
                    effect = self.effects.setdefault(key, Effect(key=key, run_id=run_id))
                    return EffectState(effect, live=effect.run_id in self.live_runs)
                case FinishEffect(key, answer):
                    self.effects[key] = Effect(key=key, run_id=run_id, done=True, answer=answer)
                case ForgetEffect(key):
                    self.effects.pop(key, None)
            return None

        return Context(RunInfo(task_id="t", name=name, attempt=1, worker="w", run_id=run_id), ask, lambda: False)


class TestOnce:
    async def test_an_effect_that_is_done_is_answered_from_the_ledger(self) -> None:
        book = Book()
        paid: list[int] = []

        async def pay(amount: int) -> Receipt:
            paid.append(amount)
            return Receipt(amount)

        assert await book.context("run 1").once("order 7", pay, 5) == Receipt(5)
        assert await book.context("run 2").once("order 7", pay, 5) == Receipt(5)
        assert paid == [5]

    async def test_plain_functions_can_be_effects_too(self) -> None:
        book = Book()
        assert await book.context("run 1").once("sum", sum, [1, 2]) == 3
        assert await book.context("run 2").once("sum", sum, [1, 2]) == 3

    async def test_an_effect_that_a_dead_run_began_is_unknown_and_not_repeated(self) -> None:
        book = Book()
        book.effects["pay/order 7"] = Effect(key="pay/order 7", run_id="run 1")
        with pytest.raises(EffectUnknown, match="order 7"):
            await book.context("run 2").once("order 7", self._must_not_run)

    async def test_an_effect_that_a_live_run_is_at_is_in_progress(self) -> None:
        book = Book()
        book.effects["pay/order 7"] = Effect(key="pay/order 7", run_id="run 1")
        book.live_runs.add("run 1")
        with pytest.raises(EffectInProgress, match="order 7"):
            await book.context("run 2").once("order 7", self._must_not_run)

    async def test_an_effect_that_raised_may_have_happened_so_it_is_unknown_afterwards(self) -> None:
        book = Book()
        context = book.context("run 1")

        def stumble() -> None:
            raise TimeoutError("no answer from the bank")

        with pytest.raises(TimeoutError):
            await context.once("order 7", stumble)
        with pytest.raises(EffectUnknown):
            await context.once("order 7", self._must_not_run)
        with pytest.raises(EffectUnknown):
            await book.context("run 2").once("order 7", self._must_not_run)

    async def test_somebody_who_found_out_can_settle_an_unknown_effect(self) -> None:
        book = Book()
        book.effects["pay/order 7"] = Effect(key="pay/order 7", run_id="run 1")
        context = book.context("run 2")
        await context.settle("order 7", {"amount": 5})

        def pay() -> Receipt:
            raise AssertionError("it was performed again")

        assert await context.once("order 7", pay) == Receipt(5)

    async def test_somebody_who_found_out_can_have_it_performed_after_all(self) -> None:
        book = Book()
        book.effects["pay/order 7"] = Effect(key="pay/order 7", run_id="run 1")
        context = book.context("run 2")
        await context.forget("order 7")
        assert await context.once("order 7", lambda: "paid") == "paid"

    async def test_keys_of_different_tasks_do_not_meet(self) -> None:
        book = Book()
        assert await book.context("run 1", name="pay").once("order 7", lambda: "paid") == "paid"
        assert await book.context("run 2", name="ship").once("order 7", lambda: "shipped") == "shipped"

    async def test_an_answer_that_json_cannot_carry_does_not_make_the_effect_unknown(self) -> None:
        book = Book()
        with pytest.raises(InvalidResult, match="is done"):
            await book.context("run 1").once("order 7", lambda: object())
        assert book.effects["pay/order 7"].done
        await book.context("run 2").once("order 7", self._must_not_run)

    def test_a_plain_function_cannot_wait_for_an_async_effect(self) -> None:
        async def asynchronous() -> None:
            await asyncio.sleep(0)

        context = SyncContext(Book().context("run 1"))
        with pytest.raises(InvalidTask, match="plain function"):
            asyncio.run(context.once("order 7", asynchronous))

    @staticmethod
    def _must_not_run() -> None:
        raise AssertionError("the effect was performed")


class TestInAWorker:
    async def test_progress_and_lines_are_kept_with_the_task(self, workshop: Workshop) -> None:
        async def work(ctx: Context) -> str:
            await ctx.progress({"done": 3, "of": 10})
            await ctx.log("reading", page=4)
            await ctx.log("x" * 20_000)
            return f"{ctx.name} {ctx.attempt} {ctx.worker}"

        workshop.handle(work)
        async with workshop.worker() as shift:
            task = await workshop.final(await workshop.enqueue("work"))

        assert plain(task.result) == f"work 1 {shift.runtime.id}"
        assert plain(task.progress) == {"done": 3, "of": 10}
        lines = await workshop.stores.outputs.read_output(task.id, 0, 10)
        assert [line.text for line in lines] == ["reading page=4", "x" * 8_000]
        assert {(line.attempt, line.run_id) for line in lines} == {(1, task.run_id)}

    async def test_the_same_from_a_thread(self, workshop: Workshop) -> None:
        def work(ctx: SyncContext) -> str:
            ctx.progress(0.25)
            ctx.log("from a thread")
            return ctx.once("greeting", lambda: "hello")

        workshop.handle(work)
        task = await workshop.perform("work")

        assert (plain(task.result), plain(task.progress)) == ("hello", 0.25)
        [line] = await workshop.stores.outputs.read_output(task.id, 0, 10)
        assert line.text == "from a thread"

    async def test_an_effect_outlives_the_run_that_performed_it(self, workshop: Workshop) -> None:
        performed: list[int] = []

        async def pay(ctx: Context) -> int:
            await ctx.once("charge", lambda: performed.append(ctx.attempt))
            if ctx.attempt < 3:
                raise ConnectionError("after the charge")
            return ctx.attempt

        workshop.handle(pay)
        task = await workshop.perform("pay")

        assert (task.status, plain(task.result), performed) == (Status.COMPLETED, 3, [1])

    async def test_an_effect_nobody_knows_the_end_of_goes_to_the_dead_letters(self, workshop: Workshop) -> None:
        async def pay(ctx: Context) -> None:
            await ctx.once("charge", self._stumble)

        workshop.handle(pay)
        task = await workshop.perform("pay", max_attempts=5)

        assert task.error is not None
        assert (task.status, task.attempt) == (Status.FAILED, 2)
        assert (task.error.kind, task.error.type) == (FailureKind.UNRECOVERABLE, "EffectUnknown")

    async def test_children_know_their_parent(self, workshop: Workshop) -> None:
        async def child(number: int) -> int:
            return number * 2

        async def parent(ctx: Context) -> str:
            return await ctx.enqueue(ById(workshop, "child"), number=21)

        workshop.handle(child)
        workshop.handle(parent)
        async with workshop.worker():
            task = await workshop.final(await workshop.enqueue("parent"))
            [stored] = await workshop.stores.tasks.get([plain(task.result)])
            assert stored is not None
            final = await workshop.final(stored)

        assert final.parent_id == task.id
        assert plain(final.result) == 42

    @pytest.mark.parametrize("mode", [HandlerMode.ASYNC, HandlerMode.THREAD])
    async def test_a_run_that_lost_its_lease_can_change_nothing(self, workshop: Workshop, mode: HandlerMode) -> None:
        from ade.tasks.service import cancel

        gate = Gate()
        errors: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def ask_in_thread(ctx: SyncContext) -> None:
            asyncio.run_coroutine_threadsafe(gate(), loop).result()
            try:
                ctx.progress(1)
            except Exception as error:
                loop.call_soon_threadsafe(errors.put_nowait, type(error).__name__)

        handler: Callable[..., Any] = ask_in_thread if mode is HandlerMode.THREAD else self._stubborn(gate, errors)
        workshop.handle(handler, name="late", mode=mode)
        task = await workshop.enqueue("late")
        async with workshop.worker():
            await soon(gate.reached)
            await cancel(workshop.stores, task.id, None)
            gate.open()
            assert await asyncio.wait_for(errors.get(), 60) == "StaleLease"

        assert (await workshop.get(task)).progress is None

    def _stubborn(self, gate: Gate, errors: "asyncio.Queue[str]") -> Callable[..., Any]:
        """An async handler that goes on when it is cancelled."""

        async def handler(ctx: Context) -> None:
            with suppress(asyncio.CancelledError):
                await gate()
            await self._report(ctx, errors)

        return handler

    async def _report(self, ctx: Context, errors: "asyncio.Queue[str]") -> None:
        try:
            await ctx.progress(1)
        except Exception as error:
            errors.put_nowait(type(error).__name__)

    @staticmethod
    def _stumble() -> None:
        raise TimeoutError("no answer")


class ById:
    """A task function as far as a context needs it; its handle is just the id."""

    def __init__(self, workshop: Workshop, name: str) -> None:
        self._workshop = workshop
        self._name = name

    def make_task(self, **arguments: Any) -> Task:
        return self._workshop.new(self._name, arguments)

    def handle_of(self, task: Task) -> str:
        return task.id

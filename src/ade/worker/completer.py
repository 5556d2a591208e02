"""Outcomes become commits: one in flight, and everything that ended meanwhile goes into the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ade.errors import AdeError, DiskFull, StaleWrite, StoreReadOnly, StoreUnavailable
from ade.logs import Log
from ade.stores.ports import DONE, WORK, Stores
from ade.tasks.changes import Change
from ade.tasks.decisions import settle
from ade.tasks.lifecycle import Status, Verb
from ade.tasks.outcomes import Deferred, Failed, Outcome, Released, Succeeded, Withheld
from ade.worker.failures import unwritable
from ade.worker.instrumentation import COMMITTED, WorkerProbe
from ade.worker.output_buffer import OutputBuffer
from ade.worker.run import Run

Ended = tuple[Run, Outcome]
Answered = tuple[Change, AdeError | None]  # what was written, or why it was not
_PASSING = (StoreUnavailable, DiskFull, StoreReadOnly)  # the store will come back, or somebody will see to it
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
log = Log("ade.worker")


class Completer:
    """Keeps an outcome until the store has answered for it: a lost reply is asked for again, never guessed."""

    def __init__(
        self,
        stores: Stores,
        outputs: OutputBuffer,
        probe: WorkerProbe,
        dice: Callable[[], float],
        on_settled: Callable[[Sequence[Run]], None],
    ) -> None:
        self._stores = stores
        self._outputs = outputs
        self._probe = probe
        self._dice = dice
        self._on_settled = on_settled
        self._waiting: list[Ended] = []
        self._wake = asyncio.Event()
        self._tells_all = log.tells_all()
        self.prepare: Callable[[Sequence[Change]], Awaitable[None]] = _nobody_prepares
        self.released: list[str] = []  # ids of tasks that were handed back

    def add(self, run: Run, outcome: Outcome) -> None:
        run.finishing = True
        self._waiting.append((run, outcome))
        self._wake.set()

    async def work(self) -> None:
        """Commit what ends, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await self._commit(batch)
                except Exception:  # whatever it is, other runs must still be able to end
                    log.exception("commit.failed", task_ids=[run.task.id for run, _ in batch])
                    self._on_settled([run for run, _ in batch])

    async def _commit(self, batch: list[Ended]) -> None:
        if self._outputs:
            await self._outputs.flush()
        now = self._stores.clock.now()
        changes = [self._change(run, outcome, now) for run, outcome in batch]
        answers = await self._until_answered(changes)
        done = work = False
        for (run, _), (change, answer) in zip(batch, answers, strict=True):
            if answer is not None:
                _tell_thrown_away(change, answer)
                continue
            if change.verb is not Verb.SUCCEED or self._tells_all:
                self._note(change)
            done = done or change.after.is_final
            work = work or _frees_work(run, change)
        if self._probe.armed:
            await self._probe(COMMITTED)
        if done:
            self._stores.hints.ring(DONE)
        if work:
            self._stores.hints.ring(WORK)
        self._on_settled([run for run, _ in batch])

    def _change(self, run: Run, outcome: object, now: int) -> Change:
        """What the outcome means. One that means nothing, as middleware may make it, is a failure of its task alone."""
        try:
            if isinstance(outcome, Succeeded | Failed | Released | Deferred | Withheld):
                return settle(run.task, outcome, now=now, dice=self._dice())
            reason = f"a run ends in an Outcome, and not in {type(outcome).__name__}"
        except Exception as error:
            log.exception("outcome.impossible", task_id=run.task.id)
            reason = f"{type(error).__name__}: {error}"
        return settle(run.task, unwritable(reason), now=now, dice=self._dice())

    async def _until_answered(self, changes: Sequence[Change]) -> list[Answered]:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                await self.prepare(changes)
                answers = await self._stores.tasks.commit_each(changes)
                return list(zip(changes, answers, strict=True))
            except _PASSING as error:  # the outcome waits
                log.warning("commit.repeated", tasks=len(changes), error=str(error), pause_s=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            except Exception as error:
                if len(changes) == 1:
                    return [await self._instead_of(changes[0], error)]
                each = [await self._until_answered([change]) for change in changes]
                return [answer for answers in each for answer in answers]

    async def _instead_of(self, change: Change, error: Exception) -> Answered:
        """A change the store cannot take: its task fails for that, rather than wait for its lease to run out."""
        log.exception("commit.impossible", task_id=change.task_id)
        now, reason = self._stores.clock.now(), f"{type(error).__name__}: {error}"
        plain = settle(change.before, unwritable(reason), now=now, dice=self._dice())
        try:
            [answer] = await self._stores.tasks.commit_each([plain])
        except Exception as again:
            return plain, AdeError(f"its change could not be written: {again}")
        return plain, answer

    def _note(self, change: Change) -> None:
        task = change.before
        if change.verb is Verb.RELEASE:
            self.released.append(task.id)
        error = change.after.error
        tell = log.debug if change.verb is Verb.SUCCEED else log.info
        tell(
            f"task.{change.verb}",
            task_id=task.id,
            attempt=task.attempt,
            worker=task.worker_id,
            error=None if error is None or change.verb is Verb.RELEASE else f"{error.type}: {error.message}"[:200],
        )


async def _nobody_prepares(changes: Sequence[Change]) -> None: ...


def _frees_work(run: Run, change: Change) -> bool:
    """Whether somebody may claim because of this change: a limit has room again, or the task itself is due."""
    if change.before.concurrency_key is not None:
        return True
    if run.handler is not None and run.handler.definition.concurrency is not None:
        return True
    after = change.after
    return after.status is Status.PENDING and after.run_after <= after.updated_at


def _tell_thrown_away(change: Change, answer: AdeError) -> None:
    known: dict[str, Any] = {
        "task_id": change.task_id,
        "attempt": change.before.attempt,
        "worker": change.before.worker_id,
    }
    event = "task.result_thrown_away" if isinstance(answer, StaleWrite) else "task.not_written"
    log.warning(event, **known, verb=change.verb, reason=str(answer))

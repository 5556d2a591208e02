"""The last look before a run: nothing that people must approve begins without their approval of exactly this."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, structs

from ade.core.admission import PREVIEW_SUFFIX, ROLLBACK_SUFFIX
from ade.core.approvals.refusals import Denied, InvalidPolicy, InvalidSubject
from ade.core.change import Change
from ade.core.control import Leave
from ade.core.errors import InvalidTask
from ade.core.failure import FailureKind, TaskError
from ade.core.outcome import Failed, Outcome, Succeeded, Withheld
from ade.core.records import SYSTEM, Task
from ade.core.task import admit
from ade.logs import Log
from ade.ports import Stores
from ade.queue.enqueue import keep
from ade.queue.handlers import Handler, Registry
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads
from ade.worker.run import Run
from ade.worker.undoing import prepare_rollbacks
from ade.worker.wire import Hold, Look

if TYPE_CHECKING:
    from ade.governance.approvals.situation import Situation
    from ade.governance.rulebook import RulebookCache
    from ade.governance.runtime import RuntimeCache

_LARGEST_STEP = 256 * 1024  # bytes that people can be shown
log = Log("ade.worker")
Perform = Callable[[Run, Handler], Awaitable[Outcome]]


class Gatekeeper:
    """Costs a plain task nothing but a look at the rulebook that is known already."""

    def __init__(self, stores: Stores, payloads: Payloads, registry: Registry) -> None:
        self._stores = stores
        self._payloads = payloads
        self._handlers = registry.by_name
        self._rules: RulebookCache | None = None
        self._runtime: RuntimeCache | None = None
        self.perform: Perform = _nobody_performs

    async def open(self) -> None:
        """Before the first run: which rules there are must be known. Raises StoreUnavailable."""
        from ade.governance.rulebook import RulebookCache
        from ade.governance.runtime import RuntimeCache

        self._rules, self._runtime = RulebookCache(self._stores), RuntimeCache(self._stores)
        await self._rules.current()

    def close(self) -> None:
        for followed in (self._rules, self._runtime):
            if followed is not None:
                followed.close()

    async def enqueue(self, tasks: Sequence[Task]) -> list[Task]:
        """Store what a run enqueues; the guard is asked first."""
        from ade.governance.approvals.admitting import admitted
        from ade.governance.approvals.submitting import follow_up

        assert self._rules is not None  # it was opened before the first run
        assert self._runtime is not None
        rulebook, runtime = await asyncio.gather(self._rules.current(), self._runtime.current())
        now = self._stores.clock.now()
        new = [admit(task, now=now) for task in runtime.limited(tasks)]
        held = await admitted(self._stores, self._payloads, new, rulebook)
        stored = await keep(self._stores, self._payloads, held)
        await follow_up(self._stores, self._payloads, stored)
        return stored

    def check(self, run: Run) -> Awaitable[Outcome | None] | None:
        """None lets the run begin at once; else what to wait for, which answers None or how it ends before it began."""
        task, handler, rules = run.task, run.handler, self._rules
        if task.source == SYSTEM:
            return self._serve(run) if task.name.endswith(ROLLBACK_SUFFIX) else None
        if handler is None or rules is None:
            return None
        if task.review is None and not handler.definition.has_preview:
            rulebook = rules.fresh()
            if rulebook is not None and not rulebook.guard:
                return None
        return self._check(run, handler, rules)

    async def _serve(self, run: Run) -> Outcome | None:
        from ade.governance.approvals.rolling_back import is_needless

        return Succeeded(Raw(b"null")) if await is_needless(self._stores, self._payloads, run.task) else None

    async def prepare(self, changes: Sequence[Change]) -> None:
        """Before runs end in failure: what undoes them is stored first."""
        await prepare_rollbacks(self._stores, self._payloads, changes)

    async def _check(self, run: Run, handler: Handler, rules: "RulebookCache") -> Outcome | None:
        rulebook = await rules.current()
        if run.task.review is None and not handler.definition.has_preview and not rulebook.guard:
            return None
        return await self._judge(run, handler)

    async def _judge(self, run: Run, handler: Handler) -> Outcome | None:
        """Whatever cannot be judged does not run, and has not run."""
        try:
            return await self._ruling(run, handler)
        except (InvalidSubject, InvalidPolicy) as error:
            return _refused(FailureKind.DENIED, error.detail)

    async def _ruling(self, run: Run, handler: Handler) -> Outcome | None:
        from ade.core.approvals.deciding import ANOTHER, TOO_LATE
        from ade.core.approvals.running import STALE, asked_anew, assessed_anew, clearance_of, previewed_anew
        from ade.core.guard import Occasion, Verdict
        from ade.governance.approvals.guarding import ruled, tell_denied
        from ade.governance.approvals.situation import demanded, load_situation

        task, stores, now = run.task, self._stores, self._stores.clock.now()
        situation = await load_situation(stores)
        ruling = await ruled(stores, self._payloads, task, situation, Occasion.RUN)
        if ruling.verdict is Verdict.DENY:
            await tell_denied(stores, task, ruling, Occasion.RUN)
            return _refused(FailureKind.DENIED, f"a guard rule forbids it: {ruling.reason}")
        wanted = ruling.policy if ruling.verdict is Verdict.DEMAND else None
        clearance = clearance_of(task, situation.people.directory, now=now, policy=wanted)
        if clearance.is_good:
            if not handler.definition.has_preview or await self._is_as_previewed(run, handler):
                return None
            return previewed_anew(task, STALE, preview_id=fresh_id(now), now=now)
        if clearance.reason == TOO_LATE:
            return _refused(FailureKind.DEADLINE_PASSED, TOO_LATE)
        reason = clearance.reason or ruling.reason
        if handler.definition.has_preview:
            return previewed_anew(task, reason or "it has not been approved", preview_id=fresh_id(now), now=now)
        own = task.review.policies if task.review is not None else ()
        if ruling.verdict is Verdict.ALLOW and not own and not clearance.reason:
            return None
        named = () if wanted is None else (wanted,)
        demand = await demanded(stores, task, situation, preview=task.preview, named=named, reason=reason)
        log.info("task.held", task_id=task.id, attempt=task.attempt, worker=task.worker_id, reason=reason)
        if demand.is_automatic and clearance.reason != ANOTHER:
            return assessed_anew(task, reason or "its policy lets it pass", now=now)
        by_people = structs.replace(demand, is_automatic=False)  # somebody has changed what had passed
        return asked_anew(task, by_people, situation.people, now=now)

    async def _is_as_previewed(self, run: Run, handler: Handler) -> bool:
        """Whether a preview made now sees the same versions, where the first one named any."""
        from ade.core.approvals.running import has_begun, has_changed, is_bypassed, wants_versions, whole_gate

        previewer, gate = self._handlers.get(f"{handler.name}{PREVIEW_SUFFIX}"), whole_gate(run.task)
        if gate is not None and is_bypassed(run.task, gate):
            return True  # the glass is broken: it runs as things are
        if gate is not None and has_begun(run.task, gate):
            return True  # what has changed may be its own doing
        if run.task.preview is None:
            return False  # nobody has seen what it would do
        if previewer is None or not wants_versions(run.task.preview):
            return True
        outcome = await self.perform(run, previewer)
        if not isinstance(outcome, Succeeded):
            return False
        return not has_changed(run.task.preview, await self._payloads.load(outcome.result))

    async def after(self, run: Run, outcome: Outcome) -> None:
        """A preview that was made is put before people, as part of the run that made it."""
        if (
            run.task.source != SYSTEM
            or not run.task.name.endswith(PREVIEW_SUFFIX)
            or not isinstance(outcome, Succeeded)
        ):
            return
        from ade.governance.approvals.submitting import previewed

        await previewed(self._stores, run.task, outcome.result, self._payloads)

    async def hold(self, run: Run, wanted: Hold) -> bool:
        """Whether the run may go on; if not, it ends and waits without a worker, whatever it says. Raises Denied."""
        from ade.core.approvals.records import AFTER_THE_FACT, MOST_STEPS_ASKED
        from ade.core.approvals.running import asked_anew
        from ade.governance.approvals.situation import demanded, load_situation

        if len(wanted.about) > _LARGEST_STEP:
            raise InvalidTask(f"a step can be about at most {_LARGEST_STEP:,} bytes, not {len(wanted.about):,}")
        if not wanted.is_tool and (wanted.step == AFTER_THE_FACT or wanted.step.startswith("tool ")):
            raise InvalidTask(f"{wanted.step!r} is a name of ADE's own; call the step otherwise")
        about = msgspec.json.decode(wanted.about)
        situation = await load_situation(self._stores)
        named, reason, step = wanted.policies, wanted.reason, wanted.step
        if wanted.is_tool:
            ruling = await self._ruled_on_tool(run.task, situation, wanted)
            if ruling is None:
                return True
            named, reason = (*named, *ruling[0]), ruling[1]
        if self._have_agreed(run.task, step, about, named, situation):
            return True
        if run.task.review is not None and len(run.task.review.gates) > MOST_STEPS_ASKED:
            raise InvalidTask(
                f"a task can ask people about at most {MOST_STEPS_ASKED} steps; ask about several at once"
            )
        demand = await demanded(
            self._stores,
            run.task,
            situation,
            preview=run.task.preview,
            named=named,
            reason=reason,
            step=step,
            about=about,
        )
        run.withheld = asked_anew(run.task, demand, situation.people, now=self._stores.clock.now())
        return False

    async def look(self, run: Run, asked: Look) -> Leave:
        """Whether a tool may be used like this by now. Raises Denied."""
        from ade.governance.approvals.situation import load_situation

        situation = await load_situation(self._stores)
        wanted = Hold(step=f"tool {asked.tool}", about=asked.about, is_tool=True, judged=asked.judged)
        ruling = await self._ruled_on_tool(run.task, situation, wanted)
        if ruling is None:
            return Leave.FREE
        about = msgspec.json.decode(wanted.about)
        have_agreed = self._have_agreed(run.task, wanted.step, about, ruling[0], situation)
        return Leave.GRANTED if have_agreed else Leave.NEEDED

    def _have_agreed(
        self, task: Task, step: str, about: object, policies: Sequence[str], situation: "Situation"
    ) -> bool:
        from ade.core.approvals.running import may_go_on, step_gate

        gate, now = step_gate(task, step, about), self._stores.clock.now()
        is_enough = gate is not None and set(policies) <= {*gate.policies}  # the guard may demand more by now
        return gate is not None and is_enough and may_go_on(task, gate, situation.people.directory, now=now)

    async def _ruled_on_tool(
        self, task: Task, situation: "Situation", wanted: Hold
    ) -> tuple[tuple[str, ...], str] | None:
        """None where the call is allowed; else which policy it needs and why."""
        from ade.core.approvals.subjects import resources_of
        from ade.core.guard import Case, Occasion, Verdict, rule_on
        from ade.governance.approvals.guarding import tell_denied

        tool = wanted.step.removeprefix("tool ")
        arguments = msgspec.json.decode(wanted.about if wanted.judged is None else wanted.judged)
        case = Case(name=task.name, tool=tool, arguments=arguments, resources=resources_of(task), tags=task.tags)
        ruling = rule_on(situation.rulebook, case, Occasion.TOOL)
        if ruling.verdict is Verdict.ALLOW:
            return None
        if ruling.verdict is Verdict.DENY:
            await tell_denied(self._stores, task, ruling, Occasion.TOOL, tool)
            raise Denied(f"the tool {tool} must not be used like this: {ruling.reason}")
        return (ruling.policy,) if ruling.policy else (), ruling.reason


def _refused(kind: FailureKind, message: str) -> Failed:
    return Failed(TaskError(kind=kind, type="Denied", message=message, retryable=False))


async def _nobody_performs(run: Run, handler: Handler) -> Outcome:
    return Withheld(reason="nobody can preview it here")

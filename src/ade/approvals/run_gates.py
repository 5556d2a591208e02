"""Gates at run time: the check before a run starts, and steps or tool calls within a run that need approval."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from ade.approvals.decisions import (
    ANOTHER,
    STALE,
    Clearance,
    clearance_of,
    code_change,
    edited_gate,
    may_go_on,
    meets,
    reassessed,
    requested_again,
    step_gate,
    whole_gate,
)
from ade.approvals.errors import Denied, InvalidPolicy, InvalidSubject, StepDenied, TooManyApprovals
from ade.approvals.guard import GuardCase, GuardOccasion, GuardRulesVerdict, rule_on
from ade.approvals.model import AFTER_THE_FACT, MAX_STEP_REQUESTS, Decision, Gate, Vote
from ade.approvals.repository import ApprovalInputs, counted, demanded, load_situation
from ade.approvals.review_requests import TOO_LATE, ApprovalRequirement, review_of
from ade.approvals.rulebook import USUAL, Rulebook, policies_of
from ade.approvals.submission import apply_guard, case_of, log_denied, ruled
from ade.approvals.usage import ApprovalUsage
from ade.approvals.votes import LARGEST_STEP
from ade.common.patterns import matches_any
from ade.common.text import HIDDEN
from ade.errors import InvalidTask, StoreUnavailable
from ade.failures import FailureKind, TaskError
from ade.logs import Log
from ade.stores.ports import Stores
from ade.tasks.admission import is_rollback
from ade.tasks.decisions import deadline_error, is_overdue
from ade.tasks.enqueue import fresh_id
from ade.tasks.model import MaybeRaw, Task
from ade.tasks.outcomes import Failed, HoldResponse, Leave, Outcome, Withheld
from ade.tasks.payloads import Payloads


class RunStep(Struct, frozen=True, kw_only=True):
    """A step of a run, or a tool call, that might need approval."""

    step: str
    about: Raw
    policies: tuple[str, ...] = ()
    reason: str = ""
    is_tool: bool = False  # then the guard decides whether approval is needed
    judged: MaybeRaw = None  # what the guard judges, if reviewers are shown something else
    responses: bool = False  # whether the handler reads responses; otherwise they raise StepDenied


async def request_step_approval(
    stores: Stores, task: Task, request: RunStep, *, version: str = ""
) -> Withheld | HoldResponse:
    """Return what reviewers decided; otherwise the outcome with which the run waits, whatever it reports.

    `version` is that of the code that runs. Raises Denied, StepDenied, InvalidTask, and TooManyApprovals:
    the run decides what to do without the approval.
    """
    if len(request.about) > LARGEST_STEP:
        raise InvalidTask(f"a step can be about at most {LARGEST_STEP:,} bytes, not {len(request.about):,}")
    if not request.is_tool and (request.step == AFTER_THE_FACT or request.step.startswith("tool ")):
        raise InvalidTask(f"{request.step!r} is reserved for ADE; use another name for the step")
    about = msgspec.json.decode(request.about)
    situation = await load_situation(stores)
    required: tuple[str, ...] = ()
    reason, step = request.reason, request.step
    if request.is_tool:
        ruling = await _ruled_on_tool(stores, task, situation, request)
        if ruling is None:
            return HoldResponse(is_approved=True)
        required, reason = ruling
        about = await _tied(request)
    gate, edit = _deciding_gate(task, step, about, follows=request.responses and not request.is_tool)
    if gate is not None and (response := gate.response) is not None:
        return HoldResponse(is_approved=False, text=_text_of(response), by=response.voter)
    if _have_agreed(stores, task, gate, (*request.policies, *required), situation, version):
        return _approval(gate, edit)
    if gate is not None:
        about = gate.about  # as a reviewer edited it
        reason = code_change(gate.code, version) or reason
    if task.review is not None and len(task.review.gates) > MAX_STEP_REQUESTS:
        raise InvalidTask(
            f"a task can request approval of at most {MAX_STEP_REQUESTS} steps; ask about several at once"
        )

    async def ask(usage: ApprovalUsage) -> ApprovalRequirement:
        await usage.open_approval(task)
        return await demanded(
            stores,
            task,
            situation,
            usage,
            preview=task.preview,
            required=required,
            chosen=request.policies,
            reason=reason,
            step=step,
            about=about,
        )

    demand = await counted(stores, situation, ask)
    return requested_again(task, demand, situation.people, now=stores.clock.now())


async def check_tool_call(
    stores: Stores, task: Task, tool: str, about: Raw, judged: Raw | None, *, version: str = ""
) -> Leave:
    """Return whether a tool can be used with these arguments now. Raises Denied."""
    situation = await load_situation(stores)
    request = RunStep(step=f"tool {tool}", about=about, is_tool=True, judged=judged)
    ruling = await _ruled_on_tool(stores, task, situation, request)
    if ruling is None:
        return Leave.FREE
    gate, _ = _deciding_gate(task, request.step, await _tied(request), follows=False)
    return Leave.GRANTED if _have_agreed(stores, task, gate, ruling[0], situation, version) else Leave.NEEDED


def _deciding_gate(task: Task, step: str, about: object, *, follows: bool) -> tuple[Gate | None, Vote | None]:
    """Return the gate that decides on a step, if any, and the response that edited its arguments. Raises StepDenied.

    Without `follows` the run does what it asked about or nothing, so any response denies the step.
    """
    gate, edit = step_gate(task, step, about), None
    while gate is not None and (response := gate.response) is not None:
        after = edited_gate(task, gate)
        if not follows:
            raise StepDenied(_denial(step, response, None if after is None else after.about))
        if after is None:
            break
        gate, edit = after, response
    return gate, edit


def _text_of(vote: Vote) -> str:
    return vote.text or vote.reason


def _denial(step: str, response: Vote, args: Any) -> str:
    """Return what a denied handler or agent reads."""
    denial = f"{response.voter} did not approve: {step}{'' if step.endswith(('.', '?', '!')) else '.'}"
    if text := _text_of(response).strip():
        denial += f" Response: {text}"
    if args is not None:
        denial += f" Use these arguments instead: {msgspec.json.encode(args).decode()}"
    return denial


def _approval(gate: Gate | None, edit: Vote | None) -> HoldResponse:
    votes = () if gate is None else gate.votes
    last = edit or next((vote for vote in reversed(votes) if vote.decision is Decision.APPROVE), None)
    return HoldResponse(
        is_approved=True,
        text="" if last is None else _text_of(last),
        args=None if gate is None or edit is None else gate.about,
        by="" if last is None else last.voter,
    )


def _have_agreed(
    stores: Stores,
    task: Task,
    gate: Gate | None,
    policies: Sequence[str],
    situation: ApprovalInputs,
    version: str,
) -> bool:
    if gate is None or not meets(gate, policies):  # the guard might demand more by now
        return False
    return may_go_on(task, gate, situation.people.directory, now=stores.clock.now(), version=version)


async def _ruled_on_tool(
    stores: Stores, task: Task, situation: ApprovalInputs, request: RunStep
) -> tuple[tuple[str, ...], str] | None:
    """Return None if the call is allowed, otherwise the policies it needs and why. Raises Denied, and InvalidTask if
    reviewers would see something else than what is judged."""
    tool, arguments = request.step.removeprefix("tool "), _judged(request)
    case = await case_of(stores, task, situation, arguments=arguments, tool=tool)
    ruling = await apply_guard(situation.rulebook, case, GuardOccasion.TOOL)
    if ruling.verdict is GuardRulesVerdict.ALLOW:
        return None
    if ruling.verdict is GuardRulesVerdict.DENY:
        await log_denied(stores, task, ruling, GuardOccasion.TOOL, tool)
        raise Denied(f"the tool {tool} must not be used like this: {ruling.reason}")
    return policies_of(ruling), ruling.reason


# Reviewers may be shown less of a tool call than the guard judges, where it contains secrets, but nothing else.


DIGEST = "digest of what is hidden"
_SALT = b"ade-run-"


def _judged(request: RunStep) -> Any:
    """Return the arguments that the guard judges. Raises InvalidTask unless reviewers are shown the same, in which only
    texts are hidden."""
    about = msgspec.json.decode(request.about)
    if request.judged is None:
        return about
    judged = msgspec.json.decode(request.judged)
    shown = {name: value for name, value in about.items() if name != DIGEST} if isinstance(about, dict) else about
    if about != judged and not _hides_only(judged, shown):
        raise InvalidTask(
            f"reviewers must be shown the arguments of the tool call; only texts in them can be replaced by {HIDDEN}"
        )
    return judged


def _hides_only(whole: object, shown: object) -> bool:
    """Whether one value is the other with parts of its texts hidden."""
    if isinstance(whole, str) and isinstance(shown, str):
        return _hides_part(whole, shown)
    if isinstance(whole, dict) and isinstance(shown, dict):
        pairs = zip(whole.items(), shown.items(), strict=False)
        return len(whole) == len(shown) and all(
            _hides_part(name, other) and _hides_only(value, inner) for (name, value), (other, inner) in pairs
        )
    if isinstance(whole, list) and isinstance(shown, list):
        return len(whole) == len(shown) and all(map(_hides_only, whole, shown))
    return type(whole) is type(shown) and whole == shown


def _hides_part(whole: str, shown: str) -> bool:
    """Find the visible parts one after the other, each at its earliest position."""
    first, *others = shown.split(HIDDEN)
    if not others:
        return whole == shown
    *middle, last = others
    at = len(first)
    for part in middle:
        found = whole.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return whole.startswith(first) and whole.endswith(last) and len(whole) - len(last) >= at


async def _tied(request: RunStep) -> Any:
    """Return what reviewers approve: what they are shown, and the digest of everything if something is hidden."""
    about = msgspec.json.decode(request.about)
    if request.judged is None or (judged := msgspec.json.decode(request.judged)) == about:
        return about
    return {**about, DIGEST: await asyncio.to_thread(digest_of_hidden, judged)}


def digest_of_hidden(arguments: object) -> str:
    """Return a digest that is slow on purpose, so that a reader cannot find a short secret by brute force."""
    text = json.dumps(arguments, sort_keys=True).encode("utf-8", "replace")
    return hashlib.scrypt(text, salt=_SALT, n=2**13, r=8, p=1, dklen=16).hex()


# The last check before a run: a task that needs approval runs only exactly as approved.


log = Log("ade.worker")
IsAsPreviewed = Callable[[], Awaitable[bool]]


async def check_before_run(
    stores: Stores,
    payloads: Payloads,
    task: Task,
    is_as_previewed: IsAsPreviewed | None = None,
    *,
    version: str = "",
) -> Outcome | None:
    """Return None to let a run start; otherwise the outcome with which it ends before it starts.

    `is_as_previewed` is given if the handler has a preview: whether a new preview would see the same. `version` is that
    of the code of the worker that is about to run it. A task that cannot be judged does not run.
    """
    if is_overdue(task, stores.clock.now()):
        return Failed(deadline_error(), has_begun=False)
    try:
        return await _ruling(stores, payloads, task, is_as_previewed, version)
    except (InvalidSubject, InvalidPolicy) as error:
        return _refused(FailureKind.DENIED, error.detail)


async def _ruling(
    stores: Stores, payloads: Payloads, task: Task, is_as_previewed: IsAsPreviewed | None, version: str
) -> Outcome | None:
    now, situation = stores.clock.now(), await load_situation(stores)
    ruling = await ruled(stores, payloads, task, situation, GuardOccasion.RUN)
    if ruling.verdict is GuardRulesVerdict.DENY:
        await log_denied(stores, task, ruling, GuardOccasion.RUN)
        return _refused(FailureKind.DENIED, f"a guard rule forbids it: {ruling.reason}")
    required = policies_of(ruling)
    if is_as_previewed is not None:
        required = (*required, USUAL)
    clearance = clearance_of(
        task,
        situation.people.directory,
        now=now,
        required=required,
        version=version,
        needs_version=situation.runtime.is_on("require_code_version"),
    )
    _report_stale(task, clearance, version)
    if clearance.is_good:
        if is_as_previewed is None or await is_as_previewed():
            return None
        return reassessed(task, STALE, preview_id=fresh_id(now), now=now)
    if clearance.reason == TOO_LATE:
        return Failed(deadline_error(TOO_LATE), has_begun=False)
    reason = clearance.reason or ruling.reason
    if is_as_previewed is not None:
        return reassessed(task, reason or "it has not been approved", preview_id=fresh_id(now), now=now)
    review = review_of(task)
    is_asked = review.policies or review.required
    if ruling.verdict is GuardRulesVerdict.ALLOW and not is_asked and not clearance.reason:
        return None
    return await _waiting(stores, task, situation, required, reason, was_changed=clearance.reason == ANOTHER)


async def _waiting(
    stores: Stores,
    task: Task,
    situation: ApprovalInputs,
    required: Sequence[str],
    reason: str,
    *,
    was_changed: bool,
) -> Outcome:
    """Return the outcome with which a task that must be approved ends before it starts."""

    async def ask(usage: ApprovalUsage) -> ApprovalRequirement:
        demand = await demanded(stores, task, situation, usage, preview=task.preview, required=required, reason=reason)
        if not demand.is_automatic:
            await usage.open_approval(task)
        return demand

    try:
        demand = await counted(stores, situation, ask)
    except TooManyApprovals as error:  # it is tried again later, and does not count as an attempt
        return _refused(FailureKind.RATE_LIMITED, error.detail, retryable=True)
    log.info("task.held", task_id=task.id, attempt=task.attempt, worker=task.worker_id, reason=reason)
    if demand.is_automatic and not was_changed:
        return reassessed(task, reason or "its policy lets it pass", now=stores.clock.now())
    by_people = structs.replace(demand, is_automatic=False)  # the task was changed after it had passed
    return requested_again(task, by_people, situation.people, now=stores.clock.now())


def _report_stale(task: Task, clearance: Clearance, version: str) -> None:
    gate = whole_gate(task)
    if gate is None or not clearance.reason or clearance.reason != code_change(gate.code, version, is_required=True):
        return
    log.warning(
        "approval.stale",
        task_id=task.id,
        approval=gate.id,
        worker=task.worker_id,
        version=version,
        approved=gate.code,
        reason=clearance.reason,
    )


def _refused(kind: FailureKind, message: str, *, retryable: bool = False) -> Failed:
    error = TaskError(kind=kind, type="Denied", message=message, retryable=retryable)
    return Failed(error, has_begun=False)


# Rules that cannot be read: only what they certainly allow goes on.


def check_on_stale_rules(task: Task, rulebook: Rulebook, *occasions: GuardOccasion) -> None:
    """Raise StoreUnavailable unless rules that were in force a while ago let a task pass without approval.

    Whatever needs more than the rules waits until they can be read again: reviews, previews, rules about arguments,
    resources, or tags, and who may lock. So does a task that they deny, because they might have changed.
    """
    rules = [rule for rule in rulebook.guard if rule.name is None or matches_any((rule.name,), task.name)]
    needs_facts = any(
        rule.resources or rule.tags or rule.from_score is not None or rule.when or rule.paths for rule in rules
    )
    if task.review is None and not needs_facts and not (task.locks and rulebook.locks) and not is_rollback(task):
        rulings = [rule_on(rulebook, GuardCase(name=task.name), each) for each in occasions if rulebook.guards(each)]
        if all(ruling.verdict is GuardRulesVerdict.ALLOW for ruling in rulings):
            return
    raise StoreUnavailable(
        f"the approval rules cannot be read, so {task.name} must wait: its partition of the cluster does not respond"
    )

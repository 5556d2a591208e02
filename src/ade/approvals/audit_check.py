"""Verifies an audit copy: its chain, the approval of every run, and that the stored records match the log."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import structs

from ade.accounts.model import USER_ADDED, USER_CHANGED, User
from ade.accounts.users import USERS
from ade.approvals.delegations import DELEGATIONS, RETENTION_MS
from ade.approvals.digest import digest_of, signed_at
from ade.approvals.errors import InvalidSubject
from ade.approvals.model import AFTER_THE_FACT, MOST_GATES, Delegation, Gate, GateState, Review
from ade.approvals.proof import ApprovalProof, LoggedDelegation
from ade.approvals.repository import CURRENT, EDITIONS, NEWEST, RULEBOOK_CHANGED, RulebookVersion
from ade.approvals.review_requests import review_of
from ade.errors import AuditBroken
from ade.events.audit_chain import AuditReport
from ade.events.audit_copy import AuditCopy, EntriesRotated, copy_events, events_after, verify
from ade.events.model import APPROVAL_REQUESTED, Event, content_digest, record_digest
from ade.stores.ports import Stores
from ade.tasks.changes import QUEUED
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

_BATCH = 200
_ROUNDS = 5  # for a record that changes while it is compared
_MOST_LISTED = 1_000
# What is settled when approval is requested, and never changes.
_REQUESTED = (
    *("digest", "subject", "policy", "policies", "required", "code", "conflicts", "opened_at", "step", "reason"),
    *("generation", "after_attempt", "after_throttles", "in_batch", "is_automatic", "unverified"),
)
_EDITED = frozenset({"task.edited", "task.submitted", "task.replayed"})


async def audit_report(
    stores: Stores, copy: AuditCopy, on_progress: Callable[[int, int], object] = lambda _checked, _total: None
) -> AuditReport:
    """Verify the whole copy. A broken chain and different records are results, not errors."""
    while True:
        with suppress(EntriesRotated):
            return await _report(stores, copy, on_progress)


async def _report(stores: Stores, copy: AuditCopy, on_progress: Callable[[int, int], object]) -> AuditReport:
    checked, proof = 0, ApprovalProof()
    logged = LoggedRecords(proof)
    try:
        async for so_far, total in verify(stores.events, copy, logged):
            checked = so_far
            on_progress(so_far, total)
        differences = [each async for each in logged.differences(stores, copy)]
    except AuditBroken as error:
        return AuditReport(
            holds=False,
            entries=checked,
            approved_starts=proof.starts,
            unknown_starts=proof.unknown,
            differences=tuple(proof.unproven_votes()[:_MOST_LISTED]),
            broken=error.detail,
            advice=error.advice or None,
        )
    head = await copy.head()
    return AuditReport(
        holds=not differences,
        entries=checked,
        seq=head.seq,
        begins_after=(await copy.base()).seq,
        hash=head.hash,
        approved_starts=proof.starts,
        unknown_starts=proof.unknown,
        records=logged.compared,
        differences=tuple(differences[:_MOST_LISTED]),
        broken=_summary(len(differences)) if differences else None,
    )


def _summary(differences: int) -> str:
    counted = "1 difference" if differences == 1 else f"{differences} differences"
    return f"{counted} between the records and the log: they were edited without ADE"


@dataclass(slots=True)
class _LoggedTask:
    """What the log contains about one governed task, in addition to its gates."""

    gate: str = ""  # the one that the record must match: the newest for the whole task, if nothing was edited since
    steps: set[str] = field(default_factory=set)  # gates of its runs since it was last edited
    passed: set[str] = field(default_factory=set)  # gates that let it through
    result: str | None = None  # the digest of its result
    has_succeeded: bool = False


@dataclass(slots=True)
class _LoggedUser:
    roles: list[str] | None = None  # None: they were last changed before the copy began
    is_active: bool = True
    digest: str | None = None  # None: the event is from before digests of accounts were logged


@dataclass(slots=True)
class LoggedRecords:
    """Takes every event in order, and compares the stored records with the events.

    Records that retention removed are not compared, and neither are changes from before the copy began.
    """

    proof: ApprovalProof
    compared: int = 0
    _seq: int = 0
    _since: int | None = None  # the time of the first event
    _tasks: dict[str, _LoggedTask] = field(default_factory=dict)
    _users: dict[str, _LoggedUser] = field(default_factory=dict)
    _rulebooks: dict[int, str] = field(default_factory=dict)

    def add(self, event: Event) -> str | None:
        """Take an event. Returns what is wrong with it, or None."""
        self._seq = event.seq
        if self._since is None:
            self._since = event.at
        if event.type in (USER_ADDED, USER_CHANGED):
            self._add_user(event)
        elif event.type == RULEBOOK_CHANGED:
            self._rulebooks[_whole(event, "version")] = str(event.payload.get("digest"))
        elif event.task_id is not None:
            self._add_to_task(event.task_id, event)
        return self.proof.add(event)

    def _add_user(self, event: Event) -> None:
        name, payload = str(event.payload.get("account")), event.payload
        known = self._users.setdefault(name, _LoggedUser())
        if isinstance(roles := payload.get("roles"), list):
            known.roles = [str(role) for role in roles]
        known.is_active = bool(payload.get("is_active", known.is_active))
        known.digest = str(payload["digest"]) if "digest" in payload else None

    def _add_to_task(self, task_id: str, event: Event) -> None:
        if event.type == APPROVAL_REQUESTED:
            gate, requested = event.payload.get("gate"), self._tasks.setdefault(task_id, _LoggedTask())
            if isinstance(gate, dict) and gate.get("step") not in (None, "", AFTER_THE_FACT):
                requested.steps.add(str(gate.get("id")))
            elif isinstance(gate, dict) and not gate.get("step"):
                requested.gate = str(gate.get("id"))
            return
        known = self._tasks.get(task_id)
        if known is None:
            return
        if event.type == QUEUED or "automatic" in event.payload:
            known.passed.add(str(event.payload.get("approval")))
        if event.type in _EDITED or (event.type == "task.held" and event.payload.get("has_begun") is False):
            known.gate = ""
            known.steps.clear()
        elif event.type == "task.succeeded":
            known.has_succeeded = True
            digest = event.payload.get("result_digest")
            known.result = digest if isinstance(digest, str) else None

    async def differences(self, stores: Stores, copy: AuditCopy) -> AsyncIterator[str]:
        """Yield a line for each difference. Records that change meanwhile are read again, with their new events."""
        ids = list(self._tasks)
        for start in range(0, len(ids), _BATCH):
            for task in await stores.tasks.get(ids[start : start + _BATCH]):
                if task is None:
                    continue  # removed by retention
                self.compared += 1
                for line in await self._settled(stores, copy, task):
                    yield line
        for line in await self._settled_documents(stores, copy):
            yield line
        for line in self.proof.unproven_votes():
            yield line

    async def _settled(self, stores: Stores, copy: AuditCopy, task: Task) -> list[str]:
        """Compare a task until it did not change between the two reads around the comparison."""
        lines = list(self.task_differences(task))
        for _ in range(_ROUNDS):
            if not lines:
                break
            await self._catch_up(stores, copy)
            [again] = await stores.tasks.get([task.id])
            if again is None:
                return []
            is_settled, task = again.version == task.version, again
            lines = list(self.task_differences(task))
            if is_settled:
                break
        return lines

    async def _settled_documents(self, stores: Stores, copy: AuditCopy) -> list[str]:
        lines = await self.document_differences(stores)
        for _ in range(_ROUNDS):
            if not lines:
                break
            before = lines
            await self._catch_up(stores, copy)
            lines = await self.document_differences(stores)
            if lines == before:
                break
        return lines

    async def _catch_up(self, stores: Stores, copy: AuditCopy) -> None:
        while await copy_events(stores.events, copy):
            pass
        async for event in events_after(copy, self._seq):
            if (fault := self.add(event)) is not None:
                raise AuditBroken(f"entry {event.seq}: {fault}")

    # Tasks

    def task_differences(self, task: Task) -> Iterator[str]:
        """Yield a line for each difference between a task and the log. It has none if it is not governed."""
        logged, gates = self._tasks.get(task.id), self.proof.gates_of(task.id)
        if logged is None:
            return
        review = review_of(task)
        for gate in review.gates:
            if gate.id in gates:
                yield from _of_gate(task, gate, gates[gate.id], is_passed=gate.id in logged.passed)
            elif not self._is_older(gate.opened_at):
                yield f"task {task.id}: approval {gate.id} is in the record, and not in the log"
        for missing in _missing(review, gates):
            yield f"task {task.id}: approval {missing.id} is in the log, and missing in the record"
        if logged.gate:
            yield from _of_subject(task, gates.get(logged.gate))
        for gate in review.gates:
            if gate.id in logged.steps and signed_at(task, gate) is None:
                yield f"task {task.id}: its arguments, or what approval {gate.id} is about, were edited"
        yield from _of_result(task, logged)

    def _is_older(self, at: int) -> bool:
        return self._since is None or at < self._since

    # Accounts, delegations, and rulebooks

    async def document_differences(self, stores: Stores) -> list[str]:
        """Return a line for each difference between accounts, delegations, or rulebooks and the log."""
        return [
            *await self._of_users(stores),
            *await self._of_delegations(stores),
            *await self._of_rulebooks(stores),
        ]

    async def _of_users(self, stores: Stores) -> list[str]:
        lines: list[str] = []
        users = {name: stored.record for name, stored in (await USERS.all(stores)).items()}
        for name, user in users.items():
            logged = self._users.get(name)
            if logged is None:
                if not self._is_older(user.created_at):
                    lines.append(f"account {name} is in the store, and was never added by the log")
                continue
            lines += _of_user(name, user, logged)
        lines += [
            f"account {name} is in the log, and missing in the store" for name in self._users if name not in users
        ]
        self.compared += len(users)
        return lines

    async def _of_delegations(self, stores: Stores) -> list[str]:
        lines: list[str] = []
        stored = {name: each.record for name, each in (await DELEGATIONS.all(stores)).items()}
        logged, now = self.proof.delegations, stores.clock.now()
        for name, record in stored.items():
            what = f"delegation {name} from {record.delegator} to {record.delegate}"
            if name in logged:
                lines += _of_delegation(what, record, logged[name])
            elif not self.proof.may_be_older(record.delegator, record.delegate, record.starts_at):
                lines.append(f"{what} is in the store, and was never created by the log")
        lines += [
            f"delegation {name} is in the log, and missing in the store"
            for name, each in logged.items()
            if name not in stored and now < each.record.ends_at + RETENTION_MS
        ]
        self.compared += len(stored)
        return lines

    async def _of_rulebooks(self, stores: Stores) -> list[str]:
        newest = await NEWEST.get(stores, CURRENT)
        editions = {stored.record.version: stored.record for stored in (await EDITIONS.all(stores)).values()}
        lines: list[str] = []
        if newest is not None:
            lines += self._of_rulebook("the rulebook in force", newest.record)
            last = max(self._rulebooks, default=newest.record.version)
            if newest.record.version != last:
                lines.append(f"the rulebook in force is version {newest.record.version}; by the log it is {last}")
        elif self._rulebooks:
            lines.append(f"no rulebook is in force; by the log it is version {max(self._rulebooks)}")
        for version, edition in sorted(editions.items()):
            lines += self._of_rulebook(f"version {version} of the rulebook", edition)
        self.compared += len(editions)
        return lines

    def _of_rulebook(self, what: str, stored: RulebookVersion) -> list[str]:
        logged = self._rulebooks.get(stored.version)
        if logged is None:
            return [] if self._is_older(stored.at) else [f"{what} ({stored.version}) was never applied by the log"]
        try:
            actual = digest_of(stored.rules)
        except InvalidSubject:
            actual = ""
        return [] if actual == logged == stored.digest else [f"{what} is not what was applied: its rules were edited"]


def _missing(review: Review, logged: Mapping[str, Gate]) -> Iterator[Gate]:
    """Yield the gates of the log that the record must still hold. Old ones are dropped only from a full record, and
    never the newest, a bypassed one, or those that limit later gates."""
    stored = {gate.id for gate in review.gates}
    newest = max((gate.number for gate in logged.values()), default=0)
    for gate in logged.values():
        stays = gate.number == newest or gate.is_bypassed or gate.still_decides
        if gate.id not in stored and (stays or len(stored) < MOST_GATES):
            yield gate


def _of_gate(task: Task, stored: Gate, logged: Gate, *, is_passed: bool) -> Iterator[str]:
    where = f"task {task.id}: approval {stored.id}"
    changed = [name for name in _REQUESTED if getattr(stored, name) != getattr(logged, name)]
    if changed:
        yield f"{where} is not what was requested ({', '.join(changed)})"
    if stored.is_bypassed != logged.is_bypassed:
        yield f"{where} is {'bypassed' if stored.is_bypassed else 'not bypassed'} in the record, and not so by the log"
    if stored.early != logged.early:
        yield f"{where} has early escalation steps that are not those of the log"
    for vote in stored.votes:
        if vote not in logged.votes:
            yield f"{where} has a vote by {vote.voter} ({vote.decision}) that is not in the log"
    for vote in logged.votes:
        if vote not in stored.votes:
            yield f"{where} lacks a vote by {vote.voter} ({vote.decision}) that is in the log"
    if stored.state is GateState.APPROVED and not is_passed and stored.step != AFTER_THE_FACT:
        yield f"{where} is approved in the record, and not by the log"


def _of_subject(task: Task, gate: Gate | None) -> Iterator[str]:
    if gate is None:
        return
    if signed_at(task, gate) is None:
        yield f"task {task.id}: its arguments or options are not those of approval {gate.id}: they were edited"
    elif task.digest != gate.digest:
        yield f"task {task.id}: its digest is not that of approval {gate.id}"


def _of_result(task: Task, logged: _LoggedTask) -> Iterator[str]:
    if task.status is not Status.COMPLETED:
        return
    if not logged.has_succeeded:
        yield f"task {task.id} is completed in the record, and has not succeeded by the log"
    elif not task.result_expired and logged.result not in (None, task.result and content_digest(task.result)):
        yield f"task {task.id}: its result is not the one that its run returned"


def _of_user(name: str, user: User, logged: _LoggedUser) -> list[str]:
    lines: list[str] = []
    if logged.roles is not None and sorted(user.roles) != sorted(logged.roles):
        by_log = ", ".join(sorted(logged.roles)) or "none"
        lines.append(f"account {name} has the roles {', '.join(sorted(user.roles)) or 'none'}; by the log {by_log}")
    if user.is_active != logged.is_active:
        lines.append(f"account {name} is {'active' if user.is_active else 'not active'}, and not so by the log")
    if not lines and logged.digest is not None and record_digest(user) != logged.digest:
        lines.append(f"account {name} is not as it was written: its password, owner, or name was edited")
    return lines


def _of_delegation(what: str, stored: Delegation, logged: LoggedDelegation) -> list[str]:
    lines: list[str] = []
    if stored.is_revoked != (logged.revoked_at is not None):
        lines.append(f"{what} is {'revoked' if stored.is_revoked else 'not revoked'}, and not so by the log")
    cascades = logged.record.cascades if logged.tells_cascades else stored.cascades
    if structs.replace(stored, is_revoked=False) != structs.replace(logged.record, cascades=cascades):
        lines.append(f"{what} is not what was created: it was edited")
    return lines


def _whole(event: Event, name: str) -> int:
    value = event.payload.get(name)
    return value if isinstance(value, int) else 0

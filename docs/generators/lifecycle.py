"""The state table, the failure table and the backoff, as the code has them."""

from collections.abc import Iterator, Mapping

from ade.failures import FAILURES, MAX_THROTTLES, TIMEOUT_GROWTH, TIMEOUT_LIMIT, Backoff, FailureKind
from ade.tasks.changes import EVENT_OF
from ade.tasks.lifecycle import FINAL, RULES, Status, Verb
from docs.generators.tables import listed, table

# Every status, verb and kind of failure has its sentence: a new one without it stops the build.
STATUS_MEANS: Mapping[Status, str] = {
    Status.DRAFT: "being written; can be edited; nothing runs",
    Status.SUBMITTED: "frozen; being validated, previewed, and scored; no side effects",
    Status.REVIEWING: "waits for reviewers; holds no lease",
    Status.APPROVED: "enough reviewers approved exactly this; waits for its start",
    Status.PENDING: "can be claimed once `run_after` has passed and its dependencies have ended",
    Status.RUNNING: "one worker holds the lease",
    Status.STALLED: "its worker was lost; any worker can take it over",
    Status.COMPLETED: "it succeeded",
    Status.FAILED: "attempts used up, or not worth repeating; listed as a dead letter, and can be replayed",
    Status.REJECTED: "reviewers rejected it, or the quorum was not met in time",
    Status.CANCELLED: "a person or another task stopped it",
}
VERB_MEANS: Mapping[Verb, str] = {
    Verb.CREATE: "comes in as pending, as a draft, to be previewed, or waiting for approval",
    Verb.EDIT: "a draft is changed and checked again",
    Verb.SUBMIT: "the draft is frozen",
    Verb.ASSESS: "waits for reviewers, is approved by policy, or is sent back with errors",
    Verb.REVIEW: "a vote or comment that decides nothing yet; the status stays",
    Verb.APPROVE: "the quorum is met; it joins its queue in the same write unless it has a manual start",
    Verb.REJECT: "reviewers reject it",
    Verb.REQUEST_CHANGES: "back to its author; after a change, earlier votes no longer count",
    Verb.RESPOND: "reviewers respond to a step of a held run instead of approving it; the run continues without it",
    Verb.REOPEN: "the request for changes is withdrawn or overruled while the draft is unchanged",
    Verb.REVOKE: "an approval is revoked before the run: approval is requested again",
    Verb.BREAK_GLASS: "it runs without approval; reviewers are asked to review it afterwards",
    Verb.EXPIRE: "the quorum was not met in time, or the approval expired",
    Verb.START: "an approved task joins its queue",
    Verb.CLAIM: "a worker claims it with a lease; the attempt counts from here",
    Verb.SUCCEED: "the run reports its result",
    Verb.RETRY: "the run failed and is retried; `run_after` moves by the backoff",
    Verb.FAIL: "the end without success; before a run only by a broken dependency, a deadline, or the end of a window",
    Verb.HOLD: "a run reaches a gate, gives up its lease, and waits for approval or a new preview",
    Verb.STALL: "the lease expired",
    Verb.RELEASE: "a worker that shuts down, or cannot start it, returns it to the queue; no attempt is used up",
    Verb.DEFER: "its locks are not free, so it waits for them without a worker; no attempt is used up",
    Verb.RECALL: "its locks were granted, so it can be claimed immediately",
    Verb.RESCHEDULE: "a person or a program changes its priority or start time; approvals stay valid",
    Verb.CANCEL: "immediate, in every status that is not final; a stale result is rejected",
    Verb.REPLAY: "a dead letter runs again: a new generation with fresh attempts",
    Verb.DISCARD: "a dead letter is discarded, with the reason; its record stays",
}
FAILURE_MEANS: Mapping[FailureKind, str] = {
    FailureKind.RAISED: "the handler raised, or an agent exited with an error",
    FailureKind.RETRY_ASKED: "the handler raised `Retry`; a time it names replaces the backoff",
    FailureKind.WORKER_DIED: "the worker was lost and the lease expired",
    FailureKind.UNRECOVERABLE: "the handler raised `Unrecoverable`",
    FailureKind.BAD_ARGUMENTS: "the stored arguments do not match the handler",
    FailureKind.BAD_RESULT: "the result does not match the declared type, or is too large",
    FailureKind.UNKNOWN_NAME: "no handler has this name",
    FailureKind.TIMED_OUT: "the run took longer than its time limit",
    FailureKind.RATE_LIMITED: "the handler raised `RateLimited`",
    FailureKind.OUT_OF_MEMORY: "the run ran out of memory",
    FailureKind.DEPENDENCY_FAILED: "a dependency did not complete, and `after_failure` is `fail`",
    FailureKind.DENIED: "a guard rule forbids it",
    FailureKind.DEADLOCK: "the run was the victim of a deadlock",
    FailureKind.DEADLINE_PASSED: "its deadline passed before it ran",
}


def statuses() -> str:
    rows = [[f"`{status}`", STATUS_MEANS[status], "yes" if status in FINAL else ""] for status in Status]
    return table(["status", "meaning", "final"], rows)


def verbs() -> str:
    def row(verb: Verb) -> list[str]:
        sources = [status for status in Status if status in RULES[verb].sources]
        return [
            f"`{verb}`",
            listed(sources),
            listed(RULES[verb].targets) if RULES[verb].targets else "stays",
            listed(EVENT_OF[verb]),
            VERB_MEANS[verb],
        ]

    return table(["verb", "from", "to", "events", "what happens"], map(row, RULES))


def edges() -> Iterator[tuple[str, str, Verb]]:
    for verb, rule in RULES.items():
        sources: list[str] = [status for status in Status if status in rule.sources]
        for source in sources or ["[*]"]:
            yield from ((source, target, verb) for target in rule.targets)


def state_diagram() -> str:
    """One arrow for each pair of statuses, with all verbs that lead this way."""
    arrows: dict[tuple[str, str], list[Verb]] = {}
    for source, target, verb in edges():
        arrows.setdefault((source, target), []).append(verb)
    lines = [f"    {source} --> {target}: {', '.join(ways)}" for (source, target), ways in arrows.items()]
    ends = [f"    {status} --> [*]" for status in Status if status in FINAL]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, *ends, "```"])


def what_follows(kind: FailureKind) -> str:
    policy = FAILURES[kind]
    if not policy.retry:
        return "it fails immediately" + (", with an `alert` event" if policy.alert else "")
    if kind is FailureKind.WORKER_DIED:
        return "it is stalled, and another worker can take it over immediately"
    if not policy.counts:
        return f"after the longer of the backoff and the requested time; the first {MAX_THROTTLES} times use no attempt"
    if policy.grows_timeout:
        return f"after the backoff, with a time limit {TIMEOUT_GROWTH:g} times as long, up to {TIMEOUT_LIMIT:g} times"
    return "after the backoff"


def failures() -> str:
    def row(kind: FailureKind) -> list[str]:
        again = "yes" if FAILURES[kind].retry else "no"
        return [f"`{kind}`", FAILURE_MEANS[kind], again, what_follows(kind)]

    return table(["kind", "what happened", "again?", "what follows"], map(row, FAILURES))


def backoff() -> str:
    usual = Backoff()
    delays = [usual.delay_ms(failures, 0.5) // 1000 for failures in range(1, 12)]
    return table(
        ["after failed attempt", *(str(number) for number in range(1, len(delays) + 1))],
        [["seconds", *(str(delay) for delay in delays)]],
    )

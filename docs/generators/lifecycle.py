"""The state table, the failure table and the backoff, as the code has them."""

from collections.abc import Iterator, Mapping

from ade.failures import FAILURES, MAX_THROTTLES, TIMEOUT_GROWTH, TIMEOUT_LIMIT, Backoff, FailureKind
from ade.tasks.changes import EVENT_OF
from ade.tasks.lifecycle import FINAL, RULES, Status, Verb
from docs.generators.tables import listed, table

# Every status, verb and kind of failure has its sentence: a new one without it stops the build.
STATUS_MEANS: Mapping[Status, str] = {
    Status.DRAFT: "being written; may be edited; nothing runs",
    Status.SUBMITTED: "frozen; being validated, previewed and scored; no side effects",
    Status.REVIEWING: "waits for people; holds no lease",
    Status.APPROVED: "enough people agreed to exactly this; waits for its start",
    Status.PENDING: "may be claimed once `run_after` has passed and what it depends on has ended",
    Status.RUNNING: "one worker holds the lease",
    Status.STALLED: "its worker went silent; any worker can take it over",
    Status.COMPLETED: "it succeeded",
    Status.FAILED: "attempts used up, or not worth repeating; listed as a dead letter, and can be replayed",
    Status.REJECTED: "people said no, or no one answered in time",
    Status.CANCELLED: "a person or another task stopped it",
}
VERB_MEANS: Mapping[Verb, str] = {
    Verb.CREATE: "comes in as pending, as a draft, to be previewed, or waiting for approval",
    Verb.EDIT: "a draft is changed and checked again",
    Verb.SUBMIT: "the draft is frozen",
    Verb.ASSESS: "waits for people, is approved by policy, or goes back with what is wrong",
    Verb.REVIEW: "somebody says something that decides nothing yet: a vote, a comment; the status stays",
    Verb.APPROVE: "the quorum is met; it joins its queue in the same write unless it is started by hand",
    Verb.REJECT: "people say no",
    Verb.REQUEST_CHANGES: "back to its author; once something has changed, votes given so far no longer count",
    Verb.RESPOND: "reviewers respond to a step of a held run instead of approving it; the run continues without it",
    Verb.REOPEN: "whoever asked for changes thinks again, or is overruled, while the draft is unchanged",
    Verb.REVOKE: "an approval is taken back before the run: people are asked anew",
    Verb.BREAK_GLASS: "it runs without approval, in the open; people look at it after the fact",
    Verb.EXPIRE: "nobody answered, or the approval grew stale",
    Verb.START: "an approved task joins its queue",
    Verb.CLAIM: "a worker takes it with a lease; the attempt counts from here",
    Verb.SUCCEED: "the run reports its result",
    Verb.RETRY: "the run failed and is worth repeating; `run_after` moves on by the backoff",
    Verb.FAIL: "the end without success; before a run only by a broken dependency or, if pending, a deadline",
    Verb.HOLD: "a run meets a gate, gives up its lease and waits for people, or for a new preview",
    Verb.STALL: "the lease ran out",
    Verb.RELEASE: "a worker that shuts down hands it back; no attempt is used up",
    Verb.DEFER: "its locks are not free, so it waits for them without a worker; no attempt is used up",
    Verb.RECALL: "its locks were granted, so it may be claimed at once",
    Verb.CANCEL: "at once, in every status that is not final; a late result is refused",
    Verb.REPLAY: "a dead letter runs again: a new generation with fresh attempts",
    Verb.DISCARD: "a dead letter is struck off the list, with the reason; it stays on record",
}
FAILURE_MEANS: Mapping[FailureKind, str] = {
    FailureKind.RAISED: "the handler raised, or an agent exited with an error",
    FailureKind.RETRY_ASKED: "the handler raised `Retry`; a time it names replaces the backoff",
    FailureKind.WORKER_DIED: "the worker went silent and the lease ran out",
    FailureKind.UNRECOVERABLE: "the handler raised `Unrecoverable`",
    FailureKind.BAD_ARGUMENTS: "the stored arguments do not fit the handler",
    FailureKind.BAD_RESULT: "the handler returned what it does not declare, or too much",
    FailureKind.UNKNOWN_NAME: "no handler has this name",
    FailureKind.TIMED_OUT: "the run took longer than its time limit",
    FailureKind.RATE_LIMITED: "the handler raised `RateLimited`",
    FailureKind.OUT_OF_MEMORY: "the run ran out of memory",
    FailureKind.DEPENDENCY_FAILED: "a task it waits for did not complete, and it asked to fail then",
    FailureKind.DENIED: "a guard rule forbids it",
    FailureKind.DEADLOCK: "the run waited in a deadlock, and was chosen to give way",
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
        return "it fails at once" + (", and an `alert` event tells the administrators" if policy.alert else "")
    if kind is FailureKind.WORKER_DIED:
        return "it is stalled, and another worker may take it over at once"
    if not policy.counts:
        return f"after the backoff or the time asked for, the longer one; free of charge {MAX_THROTTLES} times"
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

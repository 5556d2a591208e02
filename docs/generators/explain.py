"""Every reason that `explain` can give, by its code."""

from collections.abc import Mapping

from docs.generators.tables import table

REASONS: Mapping[str, str] = {
    "stalled": "its worker was lost; any worker can take it over",
    "waits_for": "its dependencies have not ended; the facts name them and their statuses",
    "delayed": "its `run_after` is in the future: a delay, a start time, or the backoff after a failed attempt",
    "deadline_passed": "its deadline has passed; the next sweep fails it",
    "queue_paused": "its queue is paused",
    "no_worker": "no worker is running, none serves its name and queue, or all that do are draining or stuck",
    "capabilities": "no worker for it has all the capabilities it needs; the facts name the missing ones",
    "deadlock": "it waits for something that in turn waits for it; the facts contain the whole cycle",
    "workers_busy": "every worker that could run it is at its concurrency",
    "agent_capacity": "every worker that could run it works for an agent that is full, draining, or offline; the facts "
    "name them",
    "concurrency_limit": "the limit of its name is reached; the facts name the tasks that run",
    "locked": "others hold one of its locks, or wait ahead of it; the facts name the holders and count the waiters",
    "concurrency_key": "the limit of its key is reached; the facts name the tasks that run",
    "rate_limit": "the rate of its name is used up; the facts contain the time of the next possible start",
    "behind": "other tasks of its queue go first, by priority and age; the facts count them, up to 10,000. Only "
    "reported if a worker claims from the queue",
    "ready": "nothing blocks it",
    "workers_may_be_busy": "nothing in the store blocks it, but every worker for it is running tasks and might be at "
    "its limit of threads or processes, which the store does not contain",
    "running_on": "it is running; the facts name the worker, the attempt, and the start time",
    "lease_lost": "it is running, but its lease has expired; the next sweep makes it available to another worker",
    "attempts_used_up": "it failed, and all its attempts are used up",
    "final": "it has ended: completed, cancelled, rejected, or failed without a retry",
    "draft": "it is still being written",
    "changes_requested": "a reviewer requested changes before approval; the facts name the reviewer and the changes",
    "sent_back": "it could not be assessed and went back to its author; the facts contain the reason",
    "submitted": "it is being validated and assessed; the facts name the preview task",
    "waits_for_approval": "it waits for approval; the facts name the eligible voters, missing votes, and the expiry",
    "approval_blocked": "it waits for approval, but no eligible voters are left to meet the rules",
    "waits_for_start": "it was approved and waits for a manual start or for its time window",
}


def reasons() -> str:
    return table(["code", "what keeps it"], ([f"`{code}`", sentence] for code, sentence in REASONS.items()))

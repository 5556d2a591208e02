"""Every reason that `explain` can give, by its code."""

from collections.abc import Mapping

from docs.generators.tables import table

REASONS: Mapping[str, str] = {
    "stalled": "its worker went silent; any worker can take it over",
    "waits_for": "tasks it depends on have not ended; the facts name them and their statuses",
    "delayed": "its `run_after` has not come: a delay, a schedule of its caller, or the backoff after a failed attempt",
    "deadline_passed": "its deadline has passed; the next sweep fails it",
    "queue_paused": "its queue is paused",
    "no_worker": "no worker is running, or none of them has its name or looks at its queue, or all that do are "
    "draining or stuck",
    "capabilities": "none of the workers for it has all the capabilities it needs; the facts say what is missing",
    "deadlock": "it waits for something that in turn waits for it; the facts have the whole cycle",
    "workers_busy": "every worker that could run it is at its concurrency",
    "agent_capacity": "every worker that could run it works for an agent that is full, draining or offline; the facts "
    "name them",
    "concurrency_limit": "the limit of its name is reached; the facts name the tasks that run",
    "locked": "others hold a lock it names, or waited earlier for it; the facts name the holders and count the others",
    "concurrency_key": "the limit of its key is reached; the facts name the tasks that run",
    "rate_limit": "the rate of its name is used up; the facts say when the next start is possible",
    "behind": "other tasks of its queue go first, by priority and age; the facts count them, up to 10,000. Only told "
    "where a worker claims from the queue",
    "ready": "nothing stands in its way",
    "workers_may_be_busy": "nothing in the store stands in its way, but every worker for it is running something and "
    "may be at a limit of threads or processes, which only the worker knows",
    "running_on": "it is running; the facts name the worker, the attempt and since when",
    "lease_lost": "it is running, but its worker has been silent past its lease; the next sweep gives it to another",
    "attempts_used_up": "it failed, and all its attempts are used up",
    "final": "it has ended: completed, cancelled, rejected, or failed in a way that no further attempt could help",
    "draft": "it is still being written",
    "changes_requested": "somebody asked for changes before it can be approved; the facts say who, and which",
    "sent_back": "it could not be assessed and went back to its author; the facts say why",
    "submitted": "it is being validated and assessed; the facts name the task that makes its preview",
    "waits_for_approval": "it waits for people; the facts say who may answer, what is missing and when it expires",
    "approval_blocked": "it waits for people, but nobody is left who could meet the rules",
    "waits_for_start": "it was approved and waits for a hand, or for the window it may start in",
}


def reasons() -> str:
    return table(["code", "what keeps it"], ([f"`{code}`", sentence] for code, sentence in REASONS.items()))

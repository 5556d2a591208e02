"""The events of approvals and of the guard."""

from collections.abc import Mapping

from ade.approvals import rollback, submission
from ade.events import model as events_model
from docs.generators.told import Told

_GATE = ("approval", "digest")

APPROVAL_EVENTS: Mapping[str, Told] = {
    "task.submitted": Told("a draft was frozen, to be previewed and assessed"),
    "task.assessed": Told(
        "it was scored and submitted to reviewers, approved by its policy, or sent back with errors",
        (),
        ("approval", "automatic", "digest", "errors", "level", "score"),
    ),
    "task.approved": Told("its quorum is met", (*_GATE, "automatic")),
    "task.rejected": Told("reviewers rejected it", ("approval", "reason")),
    "task.queued": Told("it joined its queue, under this approval", _GATE),
    "task.held": Told(
        "a run waits for approval or a new preview before it starts or continues; it does not count as an attempt",
        ("reason", "run_id", "worker"),
        ("has_begun",),
    ),
    events_model.APPROVAL_REQUESTED: Told("reviewers are asked", ("approval", "gate")),
    events_model.APPROVAL_APPROVED: Told("a reviewer approved it", (*_GATE, "vote")),
    events_model.APPROVAL_REJECTED: Told("a reviewer rejected it", (*_GATE, "vote")),
    events_model.APPROVAL_RESPONDED: Told(
        "a reviewer responded to a step of a run instead of approving it; the run continues with the response, or with"
        " edited arguments once others approve them",
        (*_GATE, "vote"),
    ),
    "approval.changes_requested": Told("a reviewer requested changes", (*_GATE, "vote")),
    "approval.reopened": Told(
        "the request for changes was withdrawn while the draft was unchanged", ("approval",), ("automatic", "digest")
    ),
    "approval.revoked": Told("an approval was revoked before the run", (*_GATE, "reason")),
    "approval.bypassed": Told("break-glass: it runs without approval", (*_GATE, "reason")),
    "approval.expired": Told("the quorum was not met, or the approval was not used, in time", ("approval", "reason")),
    events_model.APPROVAL_COMMENTED: Told("an account added a comment", (*_GATE, "text")),
    events_model.APPROVAL_DISMISSED: Told("a request for changes was dismissed", (*_GATE, "reason", "voter")),
    events_model.APPROVAL_ESCALATED: Told(
        "an escalation step added voters", (*_GATE, "is_early", "roles", "step", "users")
    ),
    events_model.APPROVAL_BLOCKED: Told("no eligible voters are left to meet its rules", _GATE, ("missing",)),
    events_model.APPROVAL_STALE: Told(
        "an approval no longer counts, because something else would run than was approved", (*_GATE, "code", "reason")
    ),
    events_model.APPROVAL_UNBLOCKED: Told("its rules can be met again", _GATE),
    rollback.ROLLBACK_NOT_STORED: Told(
        "the automatic rollback of a task that failed was refused; the task is not rolled back",
        ("code", "name", "reason", "task"),
    ),
    submission.GUARD_DENIED: Told(
        "a guard rule denied a request; no task was stored, or its run did not start",
        ("name", "occasion", "reason", "rule"),
        ("task", "tool"),
    ),
}

APPROVAL_FIELDS: Mapping[str, str] = {
    "approval": "the id of the gate: that of the task, a dot, and a number",
    "automatic": "whether the policy approved it automatically",
    "code": "the approved version of the task's code; empty if no worker had reported one",
    "errors": "what its author must fix",
    "gate": "the whole gate: policy, subject, digest, author conflicts; `opened_at` and `decided_at` are moments",
    "is_early": "whether it fired early, because no one else could vote",
    "level": "low, medium, high, or critical",
    "missing": "what its rules still need",
    "occasion": "enqueue, run, or tool",
    "rule": "the number of the guard rule, from 1",
    "score": "the risk, 0 to 100",
    "step": "the number of the step, from 0",
    "task": "its id",
    "text": "the comment",
    "tool": "the requested tool",
    "users": "accounts that can vote from then on",
    "vote": "the voter, decision, digest, time (`at`, a moment), delegator, reason, and roles",
    "voter": "the account that made the request",
}

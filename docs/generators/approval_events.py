"""The events of approvals and of the guard."""

from collections.abc import Mapping

from ade.approvals import submission
from ade.events import model as events_model
from docs.generators.told import Told

_GATE = ("approval", "digest")

APPROVAL_EVENTS: Mapping[str, Told] = {
    "task.submitted": Told("a draft was frozen, to be previewed and assessed"),
    "task.assessed": Told(
        "it was scored and put before people, approved by its policy, or sent back with what is wrong",
        (),
        ("approval", "automatic", "digest", "errors", "level", "score"),
    ),
    "task.approved": Told("its quorum is met", (*_GATE, "automatic")),
    "task.rejected": Told("people said no", ("approval", "reason")),
    "task.queued": Told("it stands in line, under this approval", _GATE),
    "task.held": Told(
        "a run may not begin, or not go on, before people agree or a new preview is made; it does not count",
        ("reason", "run_id", "worker"),
        ("has_begun",),
    ),
    events_model.APPROVAL_REQUESTED: Told("people are asked", ("approval", "gate")),
    events_model.APPROVAL_APPROVED: Told("somebody said yes", (*_GATE, "vote")),
    events_model.APPROVAL_REJECTED: Told("somebody said no", (*_GATE, "vote")),
    events_model.APPROVAL_RESPONDED: Told(
        "a reviewer responded to a step of a run instead of approving it; the run continues with the response, or with"
        " edited arguments once others approve them",
        (*_GATE, "vote"),
    ),
    "approval.changes_requested": Told("somebody wants it changed first", (*_GATE, "vote")),
    "approval.reopened": Told(
        "nobody wants it changed any more, and it is unchanged", ("approval",), ("automatic", "digest")
    ),
    "approval.revoked": Told("an approval was taken back before the run", (*_GATE, "reason")),
    "approval.bypassed": Told("somebody broke the glass: it runs without approval", (*_GATE, "reason")),
    "approval.expired": Told("nobody answered, or the approval was not used, in time", ("approval", "reason")),
    events_model.APPROVAL_COMMENTED: Told("somebody said something that is no vote", (*_GATE, "text")),
    events_model.APPROVAL_DISMISSED: Told("somebody's request for changes was struck out", (*_GATE, "reason", "voter")),
    events_model.APPROVAL_ESCALATED: Told(
        "an escalation step has come: others may answer too", (*_GATE, "is_early", "roles", "step", "users")
    ),
    events_model.APPROVAL_BLOCKED: Told("nobody is left who could meet its rules", _GATE, ("missing",)),
    events_model.APPROVAL_STALE: Told(
        "an approval no longer counts, because something else would run than was approved", (*_GATE, "code", "reason")
    ),
    events_model.APPROVAL_UNBLOCKED: Told("its rules can be met again", _GATE),
    submission.GUARD_DENIED: Told(
        "a guard rule refused something; no task was stored, or its run did not begin",
        ("name", "occasion", "reason", "rule"),
        ("task", "tool"),
    ),
}

APPROVAL_FIELDS: Mapping[str, str] = {
    "approval": "the id of the gate: that of the task, a dot, and a number",
    "automatic": "whether the policy approved it by itself",
    "code": "the version of the task's code that was approved; empty if none was known",
    "errors": "what its author must mend",
    "gate": "all of the gate: policy, subject, digest, who may not answer; `opened_at` and `decided_at` are moments",
    "is_early": "whether it came before its time, because nobody else could answer",
    "level": "low, medium, high or critical",
    "missing": "what its rules still need",
    "occasion": "enqueue, run or tool",
    "rule": "the number of the guard rule, from 1",
    "score": "the risk, 0 to 100",
    "step": "the number of the step, from 0",
    "task": "its id",
    "text": "what was said",
    "tool": "the tool that was to be used",
    "users": "accounts that may answer from then on",
    "vote": "who said what about which digest, when (`at`, a moment), for whom, why, and with which roles",
    "voter": "whose request it was",
}

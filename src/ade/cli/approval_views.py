"""How approvals look: as JSON, and to people."""

from collections.abc import Sequence
from typing import Any

from ade.cli.output import Cell, Output, Row, compact
from ade.cli.times import clock_time, distance, local, local_with_distance
from ade.cli.views import risk_view, view
from ade.core.approvals.records import UNDECIDED, GateState
from ade.insight.approvals import InboxItem
from ade.insight.gates import GateView, ReviewView, RuleView, VoteView
from ade.insight.reasons import listed

INBOX_HEAD = ("id", "name", "prio", "risk", "due", "digest", "who", "missing")
INBOX_SPARE = ("prio", "due")
_STYLES = {
    GateState.OPEN: "magenta",
    GateState.APPROVED: "green",
    GateState.CONSUMED: "green",
    GateState.REJECTED: "red",
    GateState.BLOCKED: "bold red",
}
_FACTORS = ("criticality", "magnitude", "blast_radius", "failure_rate")
_MOST_CHANGES, _LONGEST = 50, 300
SHORT = 12  # characters of a digest that are shown where there is little room


def inbox_rows(items: Sequence[InboxItem], *, mine: bool, now: int) -> list[Row]:
    return [
        (
            item.task_id,
            f"{item.name} ({item.step})" if item.step else item.name,
            str(item.priority),
            str(item.level) if item.score is None or item.step else f"{item.level} {item.score:g}",
            distance(item.due_at, now=now),
            item.digest[:SHORT],
            _who(item, mine),
            "; ".join(item.missing),
        )
        for item in items
    ]


def _who(item: InboxItem, mine: bool) -> str | Cell:
    if mine:
        return f"you, for {item.for_whom}" if item.for_whom else "you"
    return listed(item.may_answer) or Cell("nobody", "bold red")


def review_document(review: ReviewView) -> dict[str, Any]:
    """Times as text, all else as it is."""
    shown = view(review)
    shown["gates"] = [_gate_document(gate) for gate in review.gates]
    if review.risk is not None:
        shown["risk"] = risk_view(review.risk)
    shown["comments"] = [view(comment) for comment in review.comments]
    if review.bypass is not None:
        shown["bypass"] = view(review.bypass)
    return shown


def _gate_document(gate: GateView) -> dict[str, Any]:
    shown = view(gate)
    for name in ("rules", "votes", "escalations"):
        shown[name] = [view(part) for part in shown[name]]
    return shown


def print_review(out: Output, review: ReviewView, *, now: int, earlier: bool = False) -> None:
    """The gate that matters, what people said, and what they are shown. `earlier`: the gates before it too."""
    shown = [gate for gate in review.gates if gate.state in UNDECIDED] or review.gates[-1:]
    for gate in review.gates if earlier else shown:
        out.line()
        out.styled("approval", bold=True)
        _print_gate(out, gate, review, now)
    _print_facts(out, review, now)
    _print_comments(out, review)
    _print_preview(out, review)


def _print_gate(out: Output, gate: GateView, review: ReviewView, now: int) -> None:
    is_waiting = gate.state in UNDECIDED
    out.facts(
        [
            ("approval", gate.id),
            ("state", Cell(str(gate.state), _STYLES.get(gate.state, ""))),
            ("step", gate.step),
            ("about", "" if gate.about is None else compact(gate.about)),
            ("why", gate.reason),
            ("digest", gate.digest),
            ("risk", _risk(gate, review)),
            ("policy", f"{gate.policy}, version {gate.policy_version}"),
            ("opened", local_with_distance(gate.opened_at, now=now)),
            ("decided", local_with_distance(gate.decided_at, now=now)),
            ("expires", local_with_distance(gate.expires_at, now=now) if is_waiting else ""),
            ("good until", local_with_distance(gate.valid_until, now=now)),
            ("missing", "; ".join(gate.missing)),
            ("may answer", (", ".join(gate.may_answer) or "nobody") if is_waiting else ""),
            ("may not", f"{', '.join(gate.conflicts)} (a hand in the task)" if gate.conflicts and is_waiting else ""),
            ("passed", "by the policy itself" if gate.is_automatic else ""),
        ]
    )
    out.table(("needed", "of", "approved by"), [_rule_row(rule) for rule in gate.rules])
    if gate.votes:
        out.table(("at", "by", "answer", "counts", "reason"), [_vote_row(vote) for vote in gate.votes])
    if gate.escalations and is_waiting:
        out.table(("from", "also", "told"), [_step_row(step) for step in gate.escalations])


def _risk(gate: GateView, review: ReviewView) -> str:
    if review.risk is None or gate.step:
        return str(gate.level)
    factors = ", ".join(f"{name.replace('_', ' ')} {review.risk[name]:g}" for name in _FACTORS if name in review.risk)
    return f"{gate.level}, {review.risk['score']:g} ({factors})"


def _rule_row(rule: RuleView) -> Row:
    out_of = [*rule.users, *(f"role {role}" for role in rule.roles)]
    named = f"{rule.name}: {', '.join(out_of)}" if rule.name else ", ".join(out_of)
    return (str(rule.needed), named, ", ".join(rule.filled_by))


def _vote_row(vote: VoteView) -> Row:
    who = f"{vote.voter} for {vote.for_whom}" if vote.for_whom else vote.voter
    counts = Cell(f"no: {vote.why_not}", "dim") if vote.why_not else "yes"
    return (local(vote.at), who, str(vote.decision).replace("_", " "), counts, vote.reason)


def _step_row(step: Any) -> Row:
    told = "early" if step.is_early else "yes" if step.is_fired else ""
    return (local(step.at), ", ".join([*step.users, *(f"role {role}" for role in step.roles)]), told)


def _print_facts(out: Output, review: ReviewView, now: int) -> None:
    bypass = review.bypass
    window = [local(moment) for moment in (review.not_before, review.not_after) if moment is not None]
    out.facts(
        [
            ("start", "by hand" if review.start == "by_hand" else ""),
            ("window", " to ".join(window)),
            ("sent back", "; ".join(review.errors)),
            (
                "bypassed",
                "" if bypass is None else f"by {bypass.by}, {local_with_distance(bypass.at, now=now)}: {bypass.reason}",
            ),
        ]
    )


def _print_comments(out: Output, review: ReviewView) -> None:
    for comment in review.comments:
        out.line(f"{clock_time(comment.at)}  {comment.by}: {comment.text}")


def _print_preview(out: Output, review: ReviewView) -> None:
    preview = review.preview
    if not isinstance(preview, dict):
        return
    out.line()
    out.styled("preview", bold=True)
    changes = preview.get("changes", [])
    for change in changes[:_MOST_CHANGES]:
        text = change if isinstance(change, str) else compact(change)
        out.line(f"- {text}" if len(text) <= _LONGEST else f"- {text[:_LONGEST]}…")
    if len(changes) > _MOST_CHANGES:
        out.line(f"… and {len(changes) - _MOST_CHANGES} more; --json shows all")
    for warning in preview.get("warnings", []):
        out.styled(f"! {warning}", fg="yellow")
    versions = preview.get("versions", {})
    if versions:
        out.line("seen at " + ", ".join(f"{name} {version}" for name, version in versions.items()))

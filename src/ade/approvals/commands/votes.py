"""The voting commands of `ade approvals`, and how approvals are printed.

Each vote sends the approval and the whole digest that the command displayed. Approving a high risk requires a
password.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from ade.approvals.api import BatchItem
from ade.approvals.errors import DigestMismatch, NoGate, UnknownApproval
from ade.approvals.model import UNDECIDED, Decision, Gate, GateState
from ade.approvals.risk import RiskLevel
from ade.approvals.service import BatchVoteResult
from ade.approvals.views import ApprovalView, GateView, PendingApproval, ReviewView, RuleView, VoteView
from ade.approvals.votes import gate_to_answer
from ade.cli.command import command
from ade.cli.exit_codes import ExitCode
from ade.cli.identity import account_of, as_option
from ade.cli.ids import find_id
from ade.cli.interaction import ask, ask_password
from ade.cli.output import Cell, CommandOutput, Row, compact
from ade.cli.parameters import JSON_OBJECT, clock_time, distance, local, local_with_distance, now_ms
from ade.common.text import with_name
from ade.errors import AdeError, StoreError
from ade.tasks.model import Task
from ade.tasks.reasons import listed, short_span

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


# Output of approvals.


INBOX_HEAD = ("id", "name", "arguments", "author", "age", "prio", "risk", "due", "digest", "who", "missing")
INBOX_SPARE = ("prio", "due", "missing")
_STYLES = {
    GateState.OPEN: "magenta",
    GateState.APPROVED: "green",
    GateState.CONSUMED: "green",
    GateState.REJECTED: "red",
    GateState.RESPONDED: "yellow",
    GateState.BLOCKED: "bold red",
}
_FACTORS = ("criticality", "magnitude", "blast_radius", "failure_rate")
_MOST_CHANGES, _LONGEST, _LONGEST_CELL = 50, 300, 60
SHORT = 12  # characters of a digest that are shown where space is limited


def inbox_rows(items: Sequence[PendingApproval], *, mine: bool, now: int) -> list[Row]:
    """Return the table rows of pending approvals."""
    return [
        (
            item.task_id,
            f"{item.name} ({item.step})" if item.step else item.name,
            item.arguments if len(item.arguments) <= _LONGEST_CELL else f"{item.arguments[:_LONGEST_CELL]}…",
            item.author or Cell("none", "bold red"),
            short_span(max(1_000, now - item.opened_at)),
            str(item.priority),
            str(item.level) if item.score is None or item.step else f"{item.level} {item.score:g}",
            distance(item.due_at, now=now),
            item.digest[:SHORT],
            _who(item, mine),
            "; ".join(item.missing),
        )
        for item in items
    ]


def _who(item: PendingApproval, mine: bool) -> str | Cell:
    if mine:
        return f"you, for {item.for_whom}" if item.for_whom else "you"
    return listed(item.may_answer) or Cell("no one", "bold red")


def print_review(out: CommandOutput, review: ReviewView, *, now: int, earlier: bool = False) -> None:
    """Print the undecided or newest gates, the votes, and the preview. `earlier`: all gates."""
    shown = [gate for gate in review.gates if gate.state in UNDECIDED] or review.gates[-1:]
    for gate in review.gates if earlier else shown:
        out.line()
        out.styled("approval", bold=True)
        _print_gate(out, gate, review, now)
    _print_facts(out, review, now)
    _print_comments(out, review)
    _print_preview(out, review)


def _print_gate(out: CommandOutput, gate: GateView, review: ReviewView, now: int) -> None:
    is_waiting = gate.state in UNDECIDED
    out.facts(
        [
            ("approval", gate.id),
            ("state", Cell(str(gate.state), _STYLES.get(gate.state, ""))),
            ("step", gate.step),
            ("about", "" if gate.about is None else compact(gate.about)),
            ("why", gate.reason),
            ("digest", gate.digest),
            ("code", gate.code or "unknown: no worker has reported a version"),
            ("risk", _risk(gate, review)),
            ("policy", f"{gate.policy}, version {gate.policy_version}"),
            ("opened", local_with_distance(gate.opened_at, now=now)),
            ("ended", gate.end_reason),
            ("decided", local_with_distance(gate.decided_at, now=now)),
            ("expires", local_with_distance(gate.expires_at, now=now) if is_waiting else ""),
            ("good until", local_with_distance(gate.valid_until, now=now)),
            ("missing", "; ".join(gate.missing)),
            ("may answer", (", ".join(_named(gate.may_answer, gate)) or "no one") if is_waiting else ""),
            (
                "may not",
                f"{', '.join(_named(gate.conflicts, gate))} (author conflict)" if gate.conflicts and is_waiting else "",
            ),
            ("passed", "by the policy itself" if gate.is_automatic else ""),
        ]
    )
    out.table(("needed", "of", "approved by"), [_rule_row(rule) for rule in gate.rules])
    _print_signed(out, gate, is_waiting)
    if gate.votes:
        out.table(("at", "by", "answer", "counts", "reason"), [_vote_row(vote) for vote in gate.votes])
    if gate.escalations and is_waiting:
        out.table(("from", "also", "told"), [_step_row(step) for step in gate.escalations])


def _named(accounts: Sequence[str], gate: GateView) -> list[str]:
    return [with_name(account, gate.names.get(account)) for account in accounts]


def _print_signed(out: CommandOutput, gate: GateView, is_waiting: bool) -> None:
    """Print every field that the digest covers, and the differences from the previous gate."""
    if is_waiting and gate.signed is not None:
        rows: list[Row] = [(name, _brief(compact(value))) for name, value in gate.signed.items()]
        out.table(("digest covers", "value"), rows)
    elif is_waiting:
        out.styled("! the task has changed since, and has a new digest", fg="yellow")
    if gate.changes:
        changed: list[Row] = [
            (
                each.path,
                "" if each.kind == "added" else compact(each.before),  # the part that differs, never shortened
                "" if each.kind == "removed" else compact(each.after),
            )
            for each in gate.changes
            if each.kind != "more"
        ]
        out.table(("changed since the last approval", "before", "after"), changed)
        for each in gate.changes:
            if each.kind == "more":
                out.styled(f"! {each.after:,} more differences; compare all that the digest covers", fg="red")


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters; --json shows all)"


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
    voter = with_name(vote.voter, vote.voter_name)
    who = f"{voter} for {vote.for_whom}" if vote.for_whom else voter
    counts = Cell(f"no: {vote.why_not}", "dim") if vote.why_not else "yes"
    if vote.password_set_by is not None:
        who = f"{who} (password set by {vote.password_set_by})"
    answer = "reject, continue" if vote.go_on else str(vote.decision).replace("_", " ")
    edited = f"edited: see {vote.edited}" if vote.edited else ""
    return (local(vote.at), who, answer, counts, "; ".join(each for each in (vote.reason, vote.text, edited) if each))


def _step_row(step: Any) -> Row:
    fired = "early" if step.is_early else "yes" if step.is_fired else ""
    return (local(step.at), ", ".join([*step.users, *(f"role {role}" for role in step.roles)]), fired)


def _print_facts(out: CommandOutput, review: ReviewView, now: int) -> None:
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


def _print_comments(out: CommandOutput, review: ReviewView) -> None:
    for comment in review.comments:
        out.line(f"{clock_time(comment.at)}  {comment.by}: {comment.text}")


def _print_preview(out: CommandOutput, review: ReviewView) -> None:
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


F = TypeVar("F", bound=Callable[..., Any])
_Alike = Literal["approve", "reject"]  # the decisions of a batch vote
LEAST = SHORT  # characters of a digest that can be typed: as many as lists show
_ASKED = {
    Decision.APPROVE: "Approve exactly this?",
    Decision.REJECT: "Reject this?",
    Decision.REQUEST_CHANGES: "Ask for changes of this?",
    Decision.RESPOND: "Respond to this?",
}
password_option = click.option("--password-stdin", is_flag=True, help="Read your password from stdin.")


def _answer_options(command: F) -> F:
    for option in (
        as_option,
        click.option("--for", "for_whom", metavar="NAME", help="Answer for the account that delegated to you."),
        click.option("--digest", help=f"The digest of what you reviewed; its first {LEAST} characters are enough."),
        click.argument("task_id", metavar="ID"),
    ):
        command = option(command)
    return command


@command("approve")
@_answer_options
@click.option("--reason", default="", help="The reason; stored with the vote.")
@password_option
async def approve(session: "Session", /, **options: Any) -> None:
    """Approve exactly what has this digest. A high risk requires your password.

    On a terminal, and without --digest, the task is shown, and you are asked.
    """
    await _answer(session, Decision.APPROVE, **options)


@command("reject")
@_answer_options
@click.option("--reason", default="", help="The reason; stored with the vote.")
@click.option("--continue", "go_on", is_flag=True, help="Reject a step of a run; let the run continue without it.")
async def reject(session: "Session", /, **options: Any) -> None:
    """Reject a task. If the policy requires several rejections, it waits for the others."""
    await _answer(session, Decision.REJECT, **options)


@command("request-changes")
@_answer_options
@click.option("--reason", required=True, help="The requested changes; stored with the vote.")
async def request_changes(session: "Session", /, **options: Any) -> None:
    """Request changes and return a task to its author."""
    await _answer(session, Decision.REQUEST_CHANGES, **options)


@command("respond")
@_answer_options
@click.option("--text", default="", help="The response; the handler or the agent reads it.")
@click.option("--args", "args", type=JSON_OBJECT, metavar="JSON", help="Edited arguments, which others must approve.")
async def respond(session: "Session", /, **options: Any) -> None:
    """Respond to a step or tool call of a run: it is not approved, and the run continues with your response."""
    if not options["text"].strip() and options["args"] is None:
        raise click.UsageError("Give a response: --text or --args.")
    await _answer(session, Decision.RESPOND, reason="", **options)


async def _answer(
    session: "Session",
    decision: Decision,
    *,
    task_id: str,
    digest: str | None,
    for_whom: str | None,
    reason: str,
    password_stdin: bool = False,
    text: str = "",
    args: dict[str, Any] | None = None,
    go_on: bool = False,
) -> None:
    async with session.api() as api:
        found, gate_id = await named_gate(api, task_id)
        approval = await api.get_approval(found)
        gate = _gate_to_answer(approval, gate_id)
        if digest is None:
            _show_and_ask(session, approval, decision)
        else:
            check_digest(gate, digest)
            session.out.note(_about(approval, gate))
        voted = await api.respond_to_approval(
            found,
            decision=decision,
            approval=gate.id,  # this and the digest as displayed: a vote on what has changed since is rejected
            digest=gate.digest,
            reason=reason,
            text=text,
            args=args,
            go_on=go_on,
            for_whom=for_whom,
            password=await _password_for(session, api, gate, decision, password_stdin),
        )
    if session.out.as_json:
        session.out.document(voted)
        return
    print_vote(session, voted.task)
    if voted.missing:
        session.out.note(f"Still missing: {'; '.join(voted.missing)}.")


async def named_gate(api: "Client", text: str) -> tuple[str, str | None]:
    """Return the IDs of the task, and of its gate if one is named: `ID.2` is the second one. Raises UnknownTask."""
    task_text, _, number = text.partition(".")
    task_id = await find_id(api, task_text)
    return task_id, f"{task_id}.{number}" if number else None


async def gate_with_digest(api: "Client", text: str, *, whole: bool = False) -> tuple[Task, Gate]:
    """Return the task, and the gate to vote at: the named one, or the newest. Raises UnknownTask, UnknownApproval, and
    NoGate.

    `whole`: with its arguments, however large they are.
    """
    task_id, gate_id = await named_gate(api, text)
    task = await api.get_task(task_id, whole=whole)
    return task, gate_to_answer(task, gate_id)


def _gate_to_answer(approval: ApprovalView, gate_id: str | None) -> GateView:
    """Return the gate with this ID; by default the newest undecided one, or else the newest. Raises UnknownApproval and
    NoGate."""
    gates = [gate for gate in approval.review.gates if gate_id in (None, gate.id)]
    if not gates and gate_id is not None:
        raise UnknownApproval(f"task {approval.task_id} has no approval {gate_id[:100]}")
    if not gates:
        raise NoGate(f"no approval is needed for task {approval.task_id} now")
    return ([gate for gate in gates if gate.state in UNDECIDED] or gates)[-1]


def _about(approval: ApprovalView, gate: GateView) -> str:
    return f"{approval.name} {_brief(bytes(approval.args).decode())}\napproval {gate.id}, digest {gate.digest}"


def check_digest(gate: Gate | GateView, prefix: str) -> None:
    """Raise DigestMismatch unless this is the beginning of the gate's digest."""
    text = prefix.strip().lower()
    if len(text) < LEAST:
        raise click.UsageError(f"Give at least the first {LEAST} characters of the digest.")
    if not gate.digest.startswith(text):
        raise DigestMismatch(
            f"the task is not what has the digest {text[:SHORT]}: its digest is {gate.digest[:SHORT]}; nothing was"
            f" counted. Look at it with `ade approvals show {gate.id.partition('.')[0]}`, then answer"
        )


def _show_and_ask(session: "Session", approval: ApprovalView, decision: Decision) -> None:
    if not session.is_interactive:
        raise click.UsageError(
            f"Name what you reviewed: --digest D. `ade approvals show {approval.task_id}` shows it with its digest."
        )
    session.out.line(f"{approval.name} {bytes(approval.args).decode()}")
    print_background(session.out, approval)
    print_review(session.out, approval.review, now=now_ms())
    ask(_ASKED[decision])


async def _password_for(
    session: "Session", api: "Client", gate: GateView, decision: Decision, from_stdin: bool
) -> str | None:
    is_high = gate.level.rank >= RiskLevel.HIGH.rank
    if decision is not Decision.APPROVE or not (is_high and gate.state in UNDECIDED):
        return None
    return ask_password(session, await account_of(session, api), from_stdin=from_stdin)


@command("batch")
@click.argument("given", metavar="FILE|ID:DIGEST...", nargs=-1, required=True)
@click.option("--approve/--reject", "approves", default=None, help="The answer to all of them.")
@click.option("--reason", default="", help="The reason; stored with each vote.")
@as_option
@password_option
async def batch(
    session: "Session", given: tuple[str, ...], approves: bool | None, reason: str, password_stdin: bool
) -> int:
    """Give the same answer to up to fifty tasks. Each is counted by itself; a high risk is left out.

    FILE has a line ID:DIGEST for each task; - is stdin.
    """
    if approves is None:
        raise click.UsageError("Say what to answer: --approve or --reject.")
    pairs = [pair for text in given for pair in _pairs(text)]
    decision: _Alike = "approve" if approves else "reject"
    async with session.api() as api:
        password = None
        if password_stdin:
            password = ask_password(session, await account_of(session, api), from_stdin=True)
        items = [await _item(session, api, *pair) for pair in pairs]
        results = await _answered(api, decision, items, reason, password)
    for each in results:
        if session.out.as_json:
            session.out.record(each)
        else:
            session.out.line(f"{each.task_id}  {each.status or f'{each.code}: {each.error}'}")
    return ExitCode.PROBLEM if any(each.error for each in results) else ExitCode.OK


def _pairs(text: str) -> list[tuple[str, str]]:
    if ":" in text:
        return [_pair(text)]
    with click.open_file(text, encoding="utf-8") as file:
        return [_pair(line.strip()) for line in file if line.strip()]


def _pair(text: str) -> tuple[str, str]:
    task_id, _, digest = text.replace(" ", ":", 1).partition(":")
    if not task_id or len(digest.strip()) < LEAST:
        raise click.UsageError(f"{text[:80]!r} is not ID:DIGEST with at least {LEAST} characters of the digest.")
    return task_id.strip(), digest.strip().lower()


async def _item(session: "Session", api: "Client", text: str, digest: str) -> BatchItem | BatchVoteResult:
    """Display an approval, and return the vote on exactly that; or the error why there is none."""
    try:
        task_id, gate_id = await named_gate(api, text)
        approval = await api.get_approval(task_id)
        gate = _gate_to_answer(approval, gate_id)
        check_digest(gate, digest)
    except StoreError:
        raise
    except AdeError as error:
        return BatchVoteResult(task_id=text, code=error.code, error=error.detail)
    session.out.note(_about(approval, gate))
    return BatchItem(task_id=task_id, approval=gate.id, digest=gate.digest)


async def _answered(
    api: "Client",
    decision: _Alike,
    items: Sequence[BatchItem | BatchVoteResult],
    reason: str,
    password: str | None,
) -> list[BatchVoteResult]:
    """Send the votes, and return all results in the order of the items."""
    votes = [item for item in items if isinstance(item, BatchItem)]
    sent: list[BatchVoteResult] = []
    if votes:
        page = await api.respond_to_approvals(decision=decision, items=votes, reason=reason, password=password)
        sent = list(page.items)
    answers = iter(sent)
    return [next(answers) if isinstance(item, BatchItem) else item for item in items]


def print_background(out: CommandOutput, approval: ApprovalView) -> None:
    """Print the resources behind the risk, and the earlier runs."""
    if approval.resources:
        resources: list[Row] = [
            (each.name, str(each.criticality), ", ".join(each.sources), str(each.recent_tasks))
            for each in approval.resources
        ]
        out.table(("resource", "criticality", "named by", "recent tasks"), resources)
    if approval.runs:
        runs: list[Row] = [
            (run.label, local(run.started_at), run.ended, run.worker or "", _brief(run.error or ""))
            for run in approval.runs
        ]
        out.table(("earlier run", "started", "ended", "worker", "error"), runs)
    if approval.masked:
        out.note(f"Masked for you: {', '.join(approval.masked)}. The digest covers the real values.")


def print_vote(session: "Session", task: Task) -> None:
    """Print a task after a vote."""
    if session.out.as_json:
        session.out.document(task)
    else:
        session.out.line(f"{task.id}  {task.status}")

"""The content of notifications: from an event to a message, and its form for each kind of channel.

Names, descriptions, and reasons come from authors, agents, and reviewers. They are shortened and masked first, and then
escaped for the channel, so that none of them can mention people, add links, or break the format.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from ade.accounts.model import (
    LOGIN_LINK_CREATED,
    PASSWORD_CHANGED,
    PASSWORD_SET,
    ROLES_CHANGED,
    TOKEN_CREATED,
    TOKEN_REVOKED,
    USER_CHANGED,
    InvalidAccount,
    User,
    normal_id,
)
from ade.agents.protocols.base import without_secrets
from ade.approvals.model import DELEGATION_CREATED, Gate
from ade.approvals.review_requests import review_of
from ade.approvals.risk import RiskLevel
from ade.events.model import APPROVAL_ESCALATED, APPROVAL_REQUESTED, APPROVAL_UNBLOCKED, Event
from ade.notifications.model import (
    ASKS_FOR_VOTE,
    CHANNEL_ADDED,
    CHANNEL_DISABLED,
    CHANNEL_REMOVED,
    PREFERENCES_CHANGED,
    Channel,
    ChannelKind,
    Notification,
    NotificationDelivery,
    NotificationKind,
    Preferences,
    local_time,
    topic_of,
)
from ade.server.wire_format import write_time
from ade.tasks.model import Task

_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_CHANGE, _LONGEST_TITLE = 120, 500, 200, 200
_MOST_SHOWN = 20  # notifications in one message; the rest is counted. A message has fewer changes of an account
LARGEST_JSON = 20_000  # bytes

# From an event to a notification. Decisions and account changes also name the account that they concern.

DECISIONS = {
    "task.approved": "approved",
    "approval.reopened": "approved",  # only if the last vote also approved it
    "task.rejected": "rejected",
    "approval.changes_requested": "changes_requested",
    "approval.responded": "responded",
    "approval.expired": "expired",
    "approval.revoked": "revoked",
    "approval.bypassed": "bypassed",
}
REQUESTS = {
    APPROVAL_REQUESTED: NotificationKind.REVIEW,
    APPROVAL_ESCALATED: NotificationKind.ESCALATION,
    APPROVAL_UNBLOCKED: NotificationKind.REVIEW,
}
_ACCOUNT_CHANGES = {
    USER_CHANGED: "Your account was changed",
    ROLES_CHANGED: "The roles of your account were changed",
    PASSWORD_SET: "The password of your account was set by another account, or through its login link",
    PASSWORD_CHANGED: "The password of your account was changed",
    TOKEN_CREATED: "An access token was created for your account",
    TOKEN_REVOKED: "An access token of your account was revoked",
    LOGIN_LINK_CREATED: "A login link was created for your account",
    DELEGATION_CREATED: "The vote of your account was delegated",
    CHANNEL_ADDED: "A notification channel was added to your account",
    CHANNEL_REMOVED: "A notification channel was removed from your account",
    CHANNEL_DISABLED: "A notification channel of your account was disabled",
    PREFERENCES_CHANGED: "The notification preferences of your account were changed",
}
# The rest is reported in any case: someone else might have used your session, or a password that they set.
_UNLESS_ONESELF = frozenset({USER_CHANGED, TOKEN_REVOKED})
_OWN_EVENT = re.compile(r"roles|password.*|must_change_password|updated_at")  # fields that have one, or need none
_URGENT_PRIORITY = 1


def is_relevant(event: Event) -> bool:
    """Whether some person might have to be notified of this event."""
    return event.type in REQUESTS or event.type in DECISIONS or event.type in _ACCOUNT_CHANGES


def gate_of(task: Task | None, event: Event) -> Gate | None:
    """Return the gate that an event is about, or None."""
    gates = () if task is None else review_of(task).gates
    return next((gate for gate in gates if gate.id == event.payload.get("approval")), None)


def request_of(task: Task, gate: Gate, event: Event, users: Mapping[str, User]) -> Notification:
    """Return the notification that asks for a vote."""
    return structs.replace(
        _about(task, event, users, REQUESTS[event.type]),
        approval=gate.id,
        level=gate.subject.level,
        due_at=gate.expires_at,
        reason=gate.reason[:600],
    )


def decision_of(task: Task | None, event: Event, users: Mapping[str, User]) -> tuple[str, Notification] | None:
    """Return the notification of the author; None if the author acted, or no person was involved."""
    author = _account(task.author_id) if task is not None else None
    if task is None or author is None or event.payload.get("automatic") is True or event.actor == author:
        return None
    if event.type == "approval.reopened" and "digest" not in event.payload:
        return None
    vote = event.payload.get("vote")
    text = vote.get("reason") or vote.get("text", "") if isinstance(vote, dict) else ""  # `text` is that of a response
    reason = event.payload.get("reason") or text
    gate = gate_of(task, event)
    notification = structs.replace(
        _about(task, event, users, NotificationKind.DECISION),
        approval=str(event.payload.get("approval", "")),
        outcome=DECISIONS[event.type],
        actor=event.actor or "",
        reason=str(reason)[:600],
        level=None if gate is None else gate.subject.level,
    )
    return author, notification


def _about(task: Task, event: Event, users: Mapping[str, User], kind: NotificationKind) -> Notification:
    author = users.get(_account(task.author_id) or "")
    return Notification(
        kind=kind,
        at=event.at,
        seq=event.seq,
        task_id=task.id,
        name=task.name,
        description=(task.description or "")[:600],
        author=(task.author_id or "")[:200],
        author_name="" if author is None else author.display_name,
        is_urgent=task.priority <= _URGENT_PRIORITY,
    )


def account_change_of(event: Event, users: Mapping[str, User]) -> tuple[str, Notification] | None:
    """Return the notification of the person whose account has changed; None for small changes of their own. Another
    account of the person is someone else: linking two accounts must not hide later changes."""
    account, actor = str(event.payload.get("account") or event.payload.get("delegator", "")), event.actor or ""
    if not account or (actor == account and event.type in _UNLESS_ONESELF):
        return None
    fields, roles = event.payload.get("fields"), event.payload.get("roles")
    changed = [str(each) for each in fields if not _OWN_EVENT.fullmatch(str(each))] if isinstance(fields, list) else []
    if event.type == USER_CHANGED and not changed:
        return None
    if event.type == ROLES_CHANGED and isinstance(roles, list):
        changed = [f"roles are now {', '.join(map(str, roles)) or 'none'}"]
    if event.type == DELEGATION_CREATED:
        changed = [f"{event.payload.get('delegate')} can vote on behalf of {account}"]
    text, is_owned = _ACCOUNT_CHANGES[event.type], account in users and not users[account].is_human
    return account, Notification(
        kind=NotificationKind.ACCOUNT,
        at=event.at,
        seq=event.seq,
        outcome=text,
        about=account,
        is_owned=is_owned,
        actor=actor or "unknown",
        reason=", ".join(changed),
        is_urgent=True,
    )


def _account(name: str | None) -> str | None:
    try:
        return None if not name else normal_id(name)
    except InvalidAccount:
        return None


# From notifications to a message.

_OUTCOMES = {
    "approved": "Approved",
    "rejected": "Rejected",
    "changes_requested": "Changes requested",
    "responded": "Response received",
    "expired": "Expired",
    "revoked": "Approval revoked",
    "bypassed": "Approval bypassed",
}


class MessagePart(Struct, frozen=True, kw_only=True):
    """One notification as text: a heading, facts, and where to act on it."""

    heading: str
    facts: tuple[tuple[str, str], ...] = ()
    link: str = ""  # empty: there is no public URL
    command: str = ""


class Message(Struct, frozen=True, kw_only=True):
    """A message before it is formatted. All texts are plain, on one line each, and masked."""

    title: str
    parts: tuple[MessagePart, ...]
    more: int = 0  # notifications that are not shown
    hint: str = ""  # where to find these
    level: RiskLevel | None = None  # the highest
    is_urgent: bool = False


def plain(text: str, limit: int) -> str:
    """Return untrusted text on one line: without control and formatting characters, with secrets masked, and cut."""
    visible = "".join(char if char.isprintable() else " " for char in text[: 20 * limit])
    masked = " ".join(without_secrets(visible).split())
    return masked if len(masked) <= limit else f"{masked[: limit - 1]}…"


def compose(
    notifications: Sequence[Notification],
    preferences: Preferences,
    *,
    more: int = 0,
    public_url: str = "",
    arguments: Mapping[str, str] | None = None,  # by task, if they are shown at all
) -> Message:
    """Return the message about these notifications."""
    shown = notifications[:_MOST_SHOWN]
    parts = tuple(_part(each, preferences, public_url, (arguments or {}).get(each.task_id, "")) for each in shown)
    hidden = more + len(notifications) - len(shown)
    levels = [each.level for each in notifications if each.level is not None]
    return Message(
        title=parts[0].heading if len(parts) == 1 and not hidden else _summary(notifications, more),
        parts=parts,
        more=hidden,
        hint=_hint(notifications[_MOST_SHOWN:], more) if hidden else "",
        level=max(levels, key=lambda level: level.rank, default=None),
        is_urgent=any(each.is_urgent for each in notifications),
    )


def _hint(cut: Sequence[Notification], more: int) -> str:
    """Return where to find what a message does not show: requests, decisions, or both."""
    asked = sum(each.kind in ASKS_FOR_VOTE for each in cut)
    commands = ["`ade approvals` lists all that wait for you."] if asked or more else []
    return " ".join([*commands, "`ade tasks` lists decided tasks."] if asked < len(cut) or more else commands)


def _summary(notifications: Sequence[Notification], more: int) -> str:
    if all(each.kind is NotificationKind.ACCOUNT for each in notifications):
        return f"{sum(each.count for each in notifications)} account changes"
    asked = sum(each.kind in ASKS_FOR_VOTE for each in notifications)
    total = len(notifications) + more
    if asked:
        return f"{total} notifications, {asked} need{'s' if asked == 1 else ''} your approval"
    return f"{total} notifications"


def _part(each: Notification, preferences: Preferences, public_url: str, arguments: str) -> MessagePart:
    facts = [
        ("Task", plain(each.name, _LONGEST_NAME)),
        ("Description", plain(each.description, _LONGEST_TEXT)),
        ("Arguments", arguments),
        ("Requested by", _person(each)),
        ("Risk", "" if each.level is None else str(each.level)),
        ("Account", plain(each.about, _LONGEST_NAME)),
        ("By", plain(each.actor, _LONGEST_NAME)),
        ("Reason", plain(each.reason, _LONGEST_CHANGE if each.kind is NotificationKind.ACCOUNT else _LONGEST_TEXT)),
        ("Due", "" if each.due_at is None else f"{local_time(preferences, each.due_at):%Y-%m-%d %H:%M %Z}"),
    ]
    base = public_url.rstrip("/")
    return MessagePart(
        heading=plain(_heading(each), _LONGEST_TITLE),
        facts=tuple((label, value) for label, value in facts if value),
        link=f"{base}/api/v1/approvals/{each.task_id}" if base and each.task_id else "",
        command=f"ade approvals show {each.task_id}" if each.task_id else "",
    )


def _heading(each: Notification) -> str:
    match each.kind:
        case NotificationKind.REVIEW:
            return f"Approval needed: {each.name}"
        case NotificationKind.ESCALATION:
            return f"Approval needed (escalated): {each.name}"
        case NotificationKind.DECISION:
            return f"{_OUTCOMES.get(each.outcome, each.outcome)}: {each.name}"
        case NotificationKind.ACCOUNT:
            name = plain(each.about, _LONGEST_NAME) if each.is_owned else "your account"
            text = each.outcome.replace("your account", name)
            return text if each.count == 1 else f"{text} ({each.count} times)"
        case NotificationKind.TEST:
            return "Test notification from ADE"


def _person(each: Notification) -> str:
    if not each.author_name:
        return plain(each.author, _LONGEST_NAME)
    return f"{plain(each.author_name, _LONGEST_NAME)} ({plain(each.author, _LONGEST_NAME)})"


def text_of(message: Message) -> str:
    """Return the message as plain text, for email and for the delivery log."""
    lines = []
    for part in message.parts:
        lines += [part.heading, *(f"  {label}: {value}" for label, value in part.facts)]
        lines += [f"  Review: {part.link or part.command}", ""] if part.link or part.command else [""]
    return "\n".join([*lines, *_more_lines(message)]).rstrip() + "\n"


def _more_lines(message: Message) -> list[str]:
    return [f"And {message.more} more. {message.hint}"] if message.more else []


def html_of(message: Message) -> str:
    """Return the message as a simple HTML page without styles, scripts, or remote content."""
    blocks = []
    for part in message.parts:
        rows = "".join(
            f"<tr><th align=left valign=top>{html.escape(label)}</th><td>{html.escape(value)}</td></tr>"
            for label, value in part.facts
        )
        action = f'<p><a href="{html.escape(part.link)}">Review</a></p>' if part.link else ""
        command = f"<p><code>{html.escape(part.command)}</code></p>" if part.command and not part.link else ""
        blocks.append(f"<h3>{html.escape(part.heading)}</h3><table>{rows}</table>{action}{command}")
    blocks += [f"<p>{html.escape(line)}</p>" for line in _more_lines(message)]
    return f"<!doctype html><html><body>{''.join(blocks)}</body></html>"


# Formats of chat services. Each returns the JSON of one POST request.


def slack_escape(text: str) -> str:
    """Escape the three characters by which Slack recognizes links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack(message: Message, channel: Channel) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    for part in message.parts[:_MOST_SHOWN]:
        lines = [part.heading, *(f"{label}: {value}" for label, value in part.facts)]
        # plain_text is not parsed for formatting, but mentions are still escaped.
        text = slack_escape("\n".join(lines))[:2_900]
        blocks.append({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}})
        action = f"<{slack_escape(part.link)}|Review>" if part.link else f"`{part.command}`" if part.command else ""
        if action:
            blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": action}]})
    blocks += [
        {"type": "section", "text": {"type": "plain_text", "text": line, "emoji": False}}
        for line in _more_lines(message)
    ]
    return {"text": slack_escape(message.title), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _teams(message: Message, channel: Channel) -> dict[str, Any]:
    body: list[dict[str, Any]] = []
    for part in message.parts:
        body.append(_runs([(part.heading, True)]))
        body += [_runs([(f"{label}: ", True), (value, False)]) for label, value in part.facts]
        if part.command and not part.link:
            body.append(_runs([(part.command, False)]))
    body += [_runs([(line, False)]) for line in _more_lines(message)]
    links = [(part.heading, part.link) for part in message.parts if part.link]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": [
            {"type": "Action.OpenUrl", "title": "Review" if len(links) == 1 else heading[:60], "url": link}
            for heading, link in links[:6]  # a card shows at most six
        ],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _runs(texts: Sequence[tuple[str, bool]]) -> dict[str, Any]:
    """Return a block of text runs, in which Teams parses no Markdown."""
    inlines = [{"type": "TextRun", "text": text, "weight": "Bolder" if bold else "Default"} for text, bold in texts]
    return {"type": "RichTextBlock", "inlines": inlines}


_DISCORD_MARKS = re.compile(r"([\\*_~`|>#\-\[\]()<@:.!+])")
_DISCORD_LIMIT = 5_500  # of 6,000 characters in all embeds
_COLORS = {RiskLevel.CRITICAL: 0xB00020, RiskLevel.HIGH: 0xD97706}


def discord_escape(text: str) -> str:
    """Escape the characters that Discord reads as formatting, links, and mentions."""
    return _DISCORD_MARKS.sub(r"\\\1", text)


def _discord(message: Message, channel: Channel) -> dict[str, Any]:
    embeds: list[dict[str, Any]] = []
    used = 0
    for part in message.parts[:10]:  # a message has at most ten
        fields = [
            {"name": label, "value": _cut_escaped(value, 1_000), "inline": False} for label, value in part.facts[:25]
        ]
        title = _cut_escaped(part.heading, 250)
        embed: dict[str, Any] = {"title": title, "fields": fields}
        if message.level in _COLORS:
            embed["color"] = _COLORS[message.level]
        if part.link:
            embed["url"] = part.link
        elif part.command:
            embed["description"] = f"`{part.command}`"
        size = len(title) + sum(len(label) + len(_cut_escaped(value, 1_000)) for label, value in part.facts) + 100
        if used + size > _DISCORD_LIMIT:
            break
        used += size
        embeds.append(embed)
    hidden = message.more + len(message.parts) - len(embeds)
    content = _cut_escaped(message.title, 1_500) + (f"\n(and {hidden} more)" if hidden else "")
    return {"content": content, "embeds": embeds, "allowed_mentions": {"parse": []}}


def _cut_escaped(text: str, limit: int) -> str:
    """Escape and cut, without leaving half of an escape sequence at the end."""
    escaped = discord_escape(text)
    return escaped if len(escaped) <= limit else discord_escape(text[: limit // 2 - 1]) + "…"


def _ntfy(message: Message, channel: Channel) -> dict[str, Any]:
    links = [part.link for part in message.parts if part.link]
    body: dict[str, Any] = {
        "topic": topic_of(channel.target),
        "title": message.title,
        "message": text_of(message)[:4_000],  # longer ones become attachments
        "priority": _ntfy_priority(message),
    }
    return body if len(links) != 1 else {**body, "click": links[0]}


def _ntfy_priority(message: Message) -> int:
    if message.is_urgent or message.level is RiskLevel.CRITICAL:
        return 5
    return 4 if message.level is RiskLevel.HIGH else 3


_FORMATS: Mapping[ChannelKind, Callable[[Message, Channel], dict[str, Any]]] = {
    ChannelKind.SLACK: _slack,
    ChannelKind.TEAMS: _teams,
    ChannelKind.DISCORD: _discord,
    ChannelKind.NTFY: _ntfy,
}


def http_body(channel: Channel, message: Message, delivery: NotificationDelivery) -> bytes:
    """Return the body of the POST request to this channel."""
    if channel.kind is ChannelKind.WEBHOOK:
        return _signed_json(message, delivery)
    return msgspec.json.encode(_FORMATS[channel.kind](message, channel))


def _signed_json(message: Message, delivery: NotificationDelivery) -> bytes:
    items = [
        {
            "kind": each.kind,
            "task_id": each.task_id,
            "approval": each.approval,
            "outcome": each.outcome,
            "level": each.level,
            "due_at": None if each.due_at is None else write_time(each.due_at),
            "heading": part.heading,
            "facts": dict(part.facts),
            "link": part.link,
            "command": part.command,
        }
        for each, part in zip(delivery.notifications, message.parts, strict=False)
    ]
    body: dict[str, Any] = {
        "type": "notification",
        "timestamp": write_time(delivery.created_at),
        "data": {"account": delivery.account, "title": message.title, "items": items, "more": message.more},
    }
    while len(encoded := msgspec.json.encode(body, order="deterministic")) > LARGEST_JSON and items:
        items.pop()
        body["data"]["more"] += 1
    return encoded


def ntfy_address(url: str) -> str:
    """Return the URL to which ntfy messages are published as JSON: that of the topic without the topic."""
    return url.partition("?")[0].rpartition("/")[0] + "/"

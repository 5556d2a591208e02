"""The `ade notify` commands and their output."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ade.cli.command import group
from ade.cli.exit_codes import ExitCode
from ade.cli.identity import as_option
from ade.cli.interaction import confirm, own_password_option, read_line, signed_in_api
from ade.cli.output import Cell, CommandOutput, Row, all_of, first_page
from ade.cli.parameters import DURATION, distance, local_with_distance, now_ms, seconds_of
from ade.notifications.model import (
    BreakThrough,
    ChannelKind,
    ChannelView,
    ChannelWithSecret,
    NotificationDelivery,
    PreferencesView,
)
from ade.server.pagination import Page
from ade.webhooks.commands import delivery_state, show_attempts
from ade.webhooks.deliveries import DeliveryState

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client

_CHANNEL_HEAD = ("channel", "kind", "target", "state", "last good", "failures", "label")
_LOG_HEAD = ("delivery", "state", "kind", "when", "attempts", "about", "result")
_LARGEST_PAGE = 100
_CHANNEL_ID = re.compile(r"ch_[0-9a-f]{16}")
user_option = click.option("--user", metavar="NAME", help="Another person, for admins. Default: yourself.")


@group("notify", bare="preferences")
def notify() -> None:
    """Notifications of people: channels, quiet hours, digests, tests, and the delivery log.

    Reviewers are notified of approvals that they can vote on, authors of decisions, and everyone of changes that
    others make to their account.
    """


@group("channels", bare="list")
def channels() -> None:
    """Channels through which you are notified. `ade notify channels` alone lists them."""


notify.add_command(channels)


@channels.command("list", reads=True)
@user_option
@as_option
async def list_channels(session: "Session", user: str | None) -> None:
    """List your channels. URLs are shown without their secret part."""
    async with session.api() as api:
        views = await all_of(api, api.list_channels, account=user)
    if session.out.as_json:
        session.out.items(views)
        return
    session.out.table(_CHANNEL_HEAD, [_channel_row(each, now_ms()) for each in views], ("failures", "label"))
    if not views:
        session.out.note("No channels. `ade notify channels add email ADDRESS` adds one.")


def _channel_row(channel: ChannelView, now: int) -> Row:
    health = channel.health
    return (
        channel.id,
        str(channel.kind),
        channel.target,
        Cell("active", "green") if channel.is_active else Cell(f"disabled: {channel.disabled_why}", "red"),
        "never" if health.succeeded_at is None else distance(health.succeeded_at, now=now),
        str(health.failures),
        channel.label,
    )


@channels.command("add")
@click.argument("kind", type=click.Choice([str(kind) for kind in ChannelKind]))
@click.argument("target", metavar="[TARGET]", required=False)
@click.option("--label", default="", help="What the channel is, such as 'phone'.")
@click.option("--secret-stdin", is_flag=True, help="Read an ntfy access token or a signing secret from stdin.")
@user_option
@own_password_option
@as_option
async def add(
    session: "Session",
    kind: str,
    target: str | None,
    label: str,
    secret_stdin: bool,
    user: str | None,
    own_password_stdin: bool,
) -> None:
    """Add a channel: an email address, the URL of an incoming webhook, or the URL of an ntfy topic.

    Without TARGET, it is read from the first line of stdin, because other users of this machine can see arguments.
    """
    found = target if target is not None else read_line().strip()
    secret = read_line().strip() if secret_stdin else None
    async with signed_in_api(session, own_password_stdin=own_password_stdin, must_exist=False) as api:
        channel = await api.create_channel(
            kind=ChannelKind(kind), target=found, label=label, secret=secret, account=user
        )
    _print_new(session.out, channel)


def _print_new(out: CommandOutput, channel: ChannelWithSecret) -> None:
    if out.as_json:
        out.document(channel)
        return
    out.line(f"{channel.id}: {channel.kind} to {channel.target}")
    if channel.secret is not None:
        out.line(channel.secret)
        out.note("Its receiver checks signatures with this secret. It is not shown again.")
    out.note(f"`ade notify test {channel.id}` sends a test message.")


@channels.command("remove")
@click.argument("channel_id", metavar="CHANNEL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@own_password_option
@as_option
async def remove(session: "Session", channel_id: str, yes: bool, own_password_stdin: bool) -> None:
    """Remove a channel. For a week it receives changes of the account, and nothing else."""
    confirm(session, f"Remove the channel {channel_id}?", yes=yes)
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        await api.remove_channel(channel_id)
    if session.out.as_json:
        session.out.document({"id": channel_id, "removed": True})
    else:
        session.out.line(f"{channel_id}: removed")


@notify.command("preferences")
@click.option("--time-zone", metavar="ZONE", help="The time zone of all times of day, such as Europe/Berlin.")
@click.option("--quiet-hours", metavar="FROM-TO", help="Quiet hours, such as 22:00-07:00; 'none' for none.")
@click.option(
    "--break-through",
    type=click.Choice([str(level) for level in BreakThrough]),
    help="What ignores quiet hours and digests.",
)
@click.option("--digest", metavar="WHEN", help="An interval (30m, 4h), times of day (09:00,16:00), or 'off'.")
@user_option
@own_password_option
@as_option
async def preferences(
    session: "Session",
    time_zone: str | None,
    quiet_hours: str | None,
    break_through: str | None,
    digest: str | None,
    user: str | None,
    own_password_stdin: bool,
) -> None:
    """Show or change when you are notified."""
    changes: dict[str, Any] = {} if digest is None else _digest(digest)
    if time_zone is not None:
        changes["time_zone"] = time_zone
    if quiet_hours is not None:
        changes["quiet_hours"] = "" if quiet_hours == "none" else quiet_hours
    if break_through is not None:
        changes["break_through"] = BreakThrough(break_through)
    needs_session = changes or own_password_stdin
    async with signed_in_api(session, own_password_stdin=own_password_stdin) if needs_session else session.api() as api:
        if changes:
            view = await api.change_notification_preferences(account=user, **changes)
        else:
            view = await api.get_notification_preferences(account=user)
    _show_preferences(session.out, view)


def _digest(text: str) -> dict[str, Any]:
    if text == "off":
        return {"digest_every_s": 0, "digest_at": []}
    seconds = seconds_of(text)
    if seconds is not None:
        return {"digest_every_s": round(seconds)}
    return {"digest_at": [part.strip() for part in text.split(",") if part.strip()]}


def _show_preferences(out: CommandOutput, view: PreferencesView) -> None:
    if out.as_json:
        out.document(view)
        return
    digest = f"every {view.digest_every_s} s" if view.digest_every_s else ", ".join(view.digest_at) or "off"
    out.facts(
        [
            ("account", view.account),
            ("channels", str(view.channels)),
            ("time zone", view.time_zone),
            ("quiet hours", view.quiet_hours or "none"),
            ("break through", str(view.break_through)),
            ("digest", digest),
            ("pending", str(view.pending) if view.pending else ""),
        ]
    )


@notify.command("test")
@click.argument("recipient", metavar="[PERSON|CHANNEL]", required=False)
@click.option("--timeout", type=DURATION, default="30s", show_default=True, help="Wait this long for the result.")
@as_option
async def test(session: "Session", recipient: str | None, timeout: float) -> int:
    """Send a test message and report the result. A worker must be running."""
    is_channel = recipient is not None and _CHANNEL_ID.fullmatch(recipient) is not None
    async with session.api() as api:
        sent = await api.test_notification(
            account=None if is_channel else recipient, channel=recipient if is_channel else None
        )
        for each in sent.items:
            await _ended(api, each.task_id, timeout)
        results = [await api.get_notification(each.delivery, account=each.account) for each in sent.items]
    if session.out.as_json:
        session.out.items(results)
    else:
        _show_log(session.out, results, now=now_ms())
    if any(each.state is DeliveryState.WAITING for each in results):
        session.out.note("Not every message was sent yet. Is a worker running? `ade notify log` shows the result.")
        return ExitCode.TIMED_OUT
    return ExitCode.OK if all(each.state is DeliveryState.DELIVERED for each in results) else ExitCode.PROBLEM


async def _ended(api: "Client", task_id: str, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await api.wait_for_task(task_id)
    except TimeoutError:
        return


@notify.command("log", reads=True)
@click.argument("delivery_id", metavar="[DELIVERY]", required=False)
@click.option("--state", type=click.Choice([str(state) for state in DeliveryState]), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Show at most this many.")
@user_option
@as_option
async def log(session: "Session", delivery_id: str | None, state: str | None, limit: int, user: str | None) -> None:
    """List messages, newest first, or show one with its text and every attempt."""
    async with session.api() as api:
        if delivery_id is not None:
            _show_delivery(session.out, await api.get_notification(delivery_id, account=user), now=now_ms())
            return
        page: Page[NotificationDelivery] = await first_page(
            api.list_notifications,
            limit=limit,
            largest=_LARGEST_PAGE,
            state=None if state is None else DeliveryState(state),
            account=user,
        )
    if session.out.as_json:
        session.out.document(page)
        return
    _show_log(session.out, page.items, now=now_ms())
    if not page.items:
        session.out.note("No messages. They are stored for 14 days.")


def _show_log(out: CommandOutput, deliveries: Sequence[NotificationDelivery], *, now: int) -> None:
    out.table(_LOG_HEAD, [_log_row(each, now) for each in deliveries], ("attempts",))


def _log_row(delivery: NotificationDelivery, now: int) -> Row:
    return (
        delivery.id,
        delivery_state(delivery),
        str(delivery.kind),
        distance(delivery.created_at, now=now),
        str(len(delivery.attempts)),
        _subject(delivery),
        delivery.why,
    )


def _subject(delivery: NotificationDelivery) -> str:
    first = delivery.notifications[0]
    more = len(delivery.notifications) - 1 + delivery.more
    return f"{first.kind} {first.name}".strip() + (f" and {more} more" if more else "")


def _show_delivery(out: CommandOutput, delivery: NotificationDelivery, *, now: int) -> None:
    if out.as_json:
        out.document(delivery)
        return
    out.facts(
        [
            ("delivery", delivery.id),
            ("account", delivery.account),
            ("channel", f"{delivery.channel} ({delivery.kind})"),
            ("state", delivery_state(delivery)),
            ("because", delivery.why),
            ("next attempt", local_with_distance(delivery.next_at, now=now)),
            ("text", delivery.body),
        ]
    )
    show_attempts(out, delivery, now=now)

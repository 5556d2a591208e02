"""The `ade webhooks` commands and their output."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ade.cli.command import group
from ade.cli.identity import as_option
from ade.cli.interaction import confirm, read_line
from ade.cli.output import Cell, CommandOutput, Row, all_of, first_page
from ade.cli.parameters import DURATION, distance, local_with_distance, now_ms
from ade.server.pagination import Page
from ade.webhooks.deliveries import Delivery, DeliveryRecord, DeliveryState
from ade.webhooks.model import SelectTasks
from ade.webhooks.views import WebhookView, WebhookWithSecret

if TYPE_CHECKING:
    from ade.cli.session import Session


_HEAD = ("webhook", "state", "origin", "events", "last good", "failures", "description")
_DELIVERY_HEAD = ("delivery", "state", "event", "when", "attempts", "response")
_STYLES = {
    DeliveryState.DELIVERED: "green",
    DeliveryState.FAILED: "red",
    DeliveryState.WAITING: "yellow",
    DeliveryState.DROPPED: "dim",
}


def show_webhooks(out: CommandOutput, views: Sequence[WebhookView], *, now: int) -> None:
    """Print a list of webhooks."""
    if out.as_json:
        out.items(views)
        return
    out.table(_HEAD, [_row(each, now) for each in views], ("failures", "events"))
    if not views:
        out.note("No webhooks. `ade webhooks create URL --event 'task.*'` creates one.")


def _row(webhook: WebhookView, now: int) -> Row:
    health = webhook.health
    return (
        webhook.id,
        _state(webhook),
        webhook.origin,
        ", ".join(webhook.events),
        "never" if health.succeeded_at is None else distance(health.succeeded_at, now=now),
        str(health.failures),
        webhook.description,
    )


def _state(webhook: WebhookView) -> Cell:
    return Cell("active", "green") if webhook.is_active else Cell("disabled", "red")


def show_webhook(out: CommandOutput, webhook: WebhookView, *, now: int) -> None:
    """Print one webhook."""
    if out.as_json:
        out.document(webhook)
        return
    health = webhook.health
    out.facts(
        [
            ("webhook", webhook.id),
            ("state", _state(webhook)),
            ("disabled", local_with_distance(webhook.disabled_at, now=now)),
            ("because", webhook.disabled_why or ""),
            ("url", webhook.url or ""),
            ("origin", "" if webhook.url else webhook.origin),  # if only admins can see the URL
            ("events", ", ".join(webhook.events)),
            *((f"only {part}", ", ".join(getattr(webhook.tasks, part))) for part in webhook.tasks.__struct_fields__),
            ("description", webhook.description),
            ("old secrets", _old_secrets(webhook, now)),
            ("last good", local_with_distance(health.succeeded_at, now=now)),
            ("last bad", local_with_distance(health.failed_at, now=now)),
            ("failing since", local_with_distance(health.failing_since, now=now)),
            ("failures", str(health.failures) if health.failures else ""),
            ("made by", webhook.created_by or ""),
            ("made", local_with_distance(webhook.created_at, now=now)),
        ]
    )


def _old_secrets(webhook: WebhookView, now: int) -> str:
    if not webhook.old_secrets:
        return ""
    return f"{webhook.old_secrets}, sign until {local_with_distance(webhook.old_secrets_end_at, now=now)}"


def show_deliveries(out: CommandOutput, page: Page[Delivery], *, now: int) -> None:
    """Print a page of deliveries."""
    if out.as_json:
        out.document(page)
        return
    out.table(_DELIVERY_HEAD, [_delivery_row(delivery, now) for delivery in page.items], ("attempts",))
    if not page.items:
        out.note("No deliveries. The newest 500 are stored, for 14 days.")


def _delivery_row(delivery: Delivery, now: int) -> Row:
    last = delivery.attempts[-1] if delivery.attempts else None
    return (
        delivery.id,
        delivery_state(delivery),
        delivery.type,
        distance(delivery.created_at, now=now),
        str(last.number if last else 0),
        delivery.why,
    )


def show_delivery(out: CommandOutput, delivery: Delivery, *, now: int) -> None:
    """Print one delivery and its attempts."""
    if out.as_json:
        out.document(delivery)
        return
    out.facts(
        [
            ("delivery", delivery.id),
            ("webhook", delivery.webhook),
            ("state", delivery_state(delivery)),
            ("because", delivery.why),
            ("next attempt", local_with_distance(delivery.next_at, now=now)),
            ("event", f"{delivery.type} ({delivery.seq})"),
            ("replays", str(delivery.replays) if delivery.replays else ""),
            ("body", delivery.body),
        ]
    )
    show_attempts(out, delivery, now=now)


def delivery_state(delivery: DeliveryRecord) -> Cell:
    """Return the state of a delivery for display."""
    return Cell(str(delivery.state), _STYLES[delivery.state])


def show_attempts(out: CommandOutput, delivery: DeliveryRecord, *, now: int) -> None:
    """Print the attempts of a delivery."""
    rows: list[Row] = [
        (
            str(attempt.number),
            distance(attempt.at, now=now),
            f"{attempt.duration_ms} ms",
            "none" if attempt.status is None else str(attempt.status),
            attempt.error or attempt.excerpt,
        )
        for attempt in delivery.attempts
    ]
    out.table(("attempt", "when", "took", "status", "response"), rows)


def print_webhook(out: CommandOutput, webhook: WebhookView, *, is_own_secret: bool = False) -> None:
    """Print the state of a webhook, and its secret if one was just generated. The secret is not shown again."""
    secret = webhook.secret if isinstance(webhook, WebhookWithSecret) and not is_own_secret else None
    if out.as_json:
        out.document(_without_secret(webhook) if is_own_secret else webhook)
        return
    state = "active" if webhook.is_active else "disabled"
    out.line(f"{webhook.id}: {state}, {', '.join(webhook.events)} to {webhook.origin}")
    if secret is not None:
        out.line(secret)
        out.note("Its receiver checks signatures with this secret. It is not shown again.")


def _without_secret(webhook: WebhookView) -> WebhookView:
    """Omit a secret that the user has supplied, because the output might end up in a log."""
    return WebhookView(**{name: getattr(webhook, name) for name in WebhookView.__struct_fields__})


_LARGEST_PAGE = 100  # each delivery includes all its attempts
_EVENT_HELP = "An event type such as task.failed, a prefix such as task.*, or *; repeatable."
event_option = click.option("--event", "events", multiple=True, metavar="TYPE", help=_EVENT_HELP)
secret_option = click.option(
    "--secret-stdin", is_flag=True, help="Read the secret (whsec_...) from stdin; generated by default."
)


def selection_options(function: Any) -> Any:
    """Add the options that select tasks."""
    for option in (
        click.option("--author", "authors", multiple=True, help="Only events of tasks of this account (repeatable)."),
        click.option("--tag", "tags", multiple=True, help="Only events of tasks with this tag (repeatable)."),
        click.option("--queue", "queues", multiple=True, help="Only events of tasks in this queue (repeatable)."),
        click.option("--name", "names", multiple=True, help="Only events of tasks with this name (repeatable)."),
    ):
        function = option(function)
    return function


def _selection(selected: dict[str, tuple[str, ...]]) -> SelectTasks:
    return SelectTasks(**{name: list(each) for name, each in selected.items()})


def _read_secret(secret_stdin: bool) -> str | None:
    """Read the secret from stdin. Arguments are visible to other users of the machine."""
    return read_line().strip() if secret_stdin else None


@group("webhooks", bare="list")
def webhooks() -> None:
    """Webhooks, which send events to other programs over HTTP. `ade webhooks` alone lists them."""


@webhooks.command("list", reads=True)
async def list_webhooks(session: "Session") -> None:
    """List webhooks and their health."""
    async with session.api() as api:
        views = await all_of(api, api.list_webhooks)
    show_webhooks(session.out, views, now=now_ms())


@webhooks.command("show", reads=True)
@click.argument("webhook_id", metavar="ID")
async def show(session: "Session", webhook_id: str) -> None:
    """Show one webhook, with its whole URL."""
    async with session.api() as api:
        webhook = await api.get_webhook(webhook_id)
    show_webhook(session.out, webhook, now=now_ms())


@webhooks.command("create")
@click.argument("address", metavar="URL")
@event_option
@selection_options
@click.option("--description", default="", help="What it is for.")
@secret_option
@as_option
async def create(
    session: "Session", address: str, events: tuple[str, ...], description: str, secret_stdin: bool, **selected: Any
) -> None:
    """Send events to a URL from now on, and print the secret that signs the messages."""
    secret, tasks = _read_secret(secret_stdin), _selection(selected)
    async with session.api(must_exist=False) as api:
        webhook = await api.create_webhook(
            url=address, events=list(events), description=description, secret=secret, tasks=tasks
        )
    print_webhook(session.out, webhook, is_own_secret=secret is not None)


@webhooks.command("change")
@click.argument("webhook_id", metavar="ID")
@click.option("--address", metavar="URL", help="The new URL.")
@event_option
@selection_options
@click.option("--all-tasks", is_flag=True, help="Events of all tasks again.")
@click.option("--description", help="What it is for.")
@as_option
async def change(
    session: "Session",
    webhook_id: str,
    address: str | None,
    events: tuple[str, ...],
    all_tasks: bool,
    description: str | None,
    **selected: Any,
) -> None:
    """Change a webhook; omitted fields stay unchanged.

    --name, --queue, --tag, and --author together replace the whole selection of tasks; --all-tasks removes it.
    """
    selects = any(selected.values())
    if all_tasks and selects:
        raise click.UsageError("Select tasks with --name, --queue, --tag, and --author, or all with --all-tasks.")
    if address is None and not (events or selects or all_tasks) and description is None:
        raise click.UsageError(
            "Name what to change: --address, --event, --name, --queue, --tag, --author, --all-tasks, or --description."
        )
    tasks = _selection(selected) if selects or all_tasks else None
    await _change(session, webhook_id, url=address, events=list(events) or None, tasks=tasks, description=description)


async def _change(session: "Session", webhook_id: str, **changes: Any) -> None:
    async with session.api() as api:
        print_webhook(session.out, await api.change_webhook(webhook_id, **changes, if_match=None))


@webhooks.command("remove")
@click.argument("webhook_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_option
async def remove(session: "Session", webhook_id: str, yes: bool) -> None:
    """Remove a webhook and its deliveries; pending messages are not sent."""
    confirm(session, f"Remove the webhook {webhook_id} and all its deliveries?", yes=yes)
    async with session.api() as api:
        await api.remove_webhook(webhook_id)
    if session.out.as_json:
        session.out.document({"id": webhook_id, "removed": True})
    else:
        session.out.line(f"{webhook_id}: removed")


@webhooks.command("rotate-secret")
@click.argument("webhook_id", metavar="ID")
@click.option(
    "--overlap",
    type=DURATION,
    default="24h",
    show_default=True,
    help="How long the old secret also signs, at most 7d; 0 if it has leaked.",
)
@secret_option
@as_option
async def rotate_secret(session: "Session", webhook_id: str, overlap: float, secret_stdin: bool) -> None:
    """Give a webhook a new secret and print it. During the overlap, messages are signed with both."""
    secret = _read_secret(secret_stdin)
    async with session.api() as api:
        webhook = await api.rotate_webhook_secret(webhook_id, overlap_s=overlap, secret=secret)
    print_webhook(session.out, webhook, is_own_secret=secret is not None)


@webhooks.command("test")
@click.argument("webhook_id", metavar="ID")
@as_option
async def test(session: "Session", webhook_id: str) -> None:
    """Send a test event of type webhook.tested, whatever event types the webhook receives."""
    async with session.api() as api:
        print_webhook(session.out, await api.test_webhook(webhook_id))
    session.out.note("A worker sends it in a moment. `ade webhooks deliveries ID` shows the result.")


@webhooks.command("enable")
@click.argument("webhook_id", metavar="ID")
@as_option
async def enable(session: "Session", webhook_id: str) -> None:
    """Enable a webhook again. It receives events from now on."""
    await _change(session, webhook_id, is_active=True)


@webhooks.command("disable")
@click.argument("webhook_id", metavar="ID")
@click.option("--reason", default="disabled manually", show_default=True, help="The reason, shown with the webhook.")
@as_option
async def disable(session: "Session", webhook_id: str, reason: str) -> None:
    """Stop sending to a webhook, including pending messages."""
    await _change(session, webhook_id, is_active=False, reason=reason)


@webhooks.command("deliveries", reads=True)
@click.argument("webhook_id", metavar="ID")
@click.option("--state", type=click.Choice([str(state) for state in DeliveryState]), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Show at most this many.")
async def deliveries(session: "Session", webhook_id: str, state: str | None, limit: int) -> None:
    """List the deliveries of a webhook, newest first."""
    wanted = None if state is None else DeliveryState(state)
    async with session.api() as api:
        page = await first_page(api.list_deliveries, webhook_id, limit=limit, largest=_LARGEST_PAGE, state=wanted)
    show_deliveries(session.out, page, now=now_ms())


@webhooks.command("delivery", reads=True)
@click.argument("webhook_id", metavar="ID")
@click.argument("delivery_id", metavar="DELIVERY")
async def delivery(session: "Session", webhook_id: str, delivery_id: str) -> None:
    """Show one delivery: its body, and every attempt to send it."""
    async with session.api() as api:
        found = await api.get_delivery(webhook_id, delivery_id)
    show_delivery(session.out, found, now=now_ms())


@webhooks.command("replay")
@click.argument("webhook_id", metavar="ID")
@click.argument("delivery_id", metavar="DELIVERY")
@as_option
async def replay(session: "Session", webhook_id: str, delivery_id: str) -> None:
    """Send a message again, with the same id."""
    async with session.api() as api:
        task = await api.replay_delivery(webhook_id, delivery_id)
    if session.out.as_json:
        session.out.document(task)
    else:
        session.out.line(f"{delivery_id}: task {task.id}")

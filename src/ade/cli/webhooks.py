"""`ade webhooks`: other programs that are told what happens."""

import sys
from typing import Any

import click

from ade.cli.confirming import confirm
from ade.cli.identity import as_option
from ade.cli.pages import all_of, first_of
from ade.cli.parsing import DURATION
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import now_ms
from ade.cli.webhook_views import show_deliveries, show_delivery, show_webhook, show_webhooks, tell_webhook
from ade.core.webhooks.deliveries import State

_LARGEST_PAGE = 100  # deliveries have all their attempts with them
_EVENT_HELP = "A type of events, such as task.failed; all of a kind: task.*; all: *. Several times."
event_option = click.option("--event", "events", multiple=True, metavar="TYPE", help=_EVENT_HELP)
secret_option = click.option(
    "--secret-stdin", is_flag=True, help="Read the secret from stdin, whsec_...; otherwise one is made."
)


def _given_secret(secret_stdin: bool) -> str | None:
    """Never an argument: arguments are seen by others on the machine."""
    return sys.stdin.readline().strip() if secret_stdin else None


@group("webhooks", bare="list")
def webhooks() -> None:
    """Other programs that are told over HTTP what happens. `ade webhooks` alone lists them."""


@webhooks.command("list")
@pass_session
def list_webhooks(session: Session) -> None:
    """List webhooks and how they fare."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_webhooks)
    show_webhooks(session.out, known, now=now_ms())


@webhooks.command("show")
@click.argument("webhook_id", metavar="ID")
@pass_session
def show(session: Session, webhook_id: str) -> None:
    """Show one webhook, with its whole URL."""
    session.look(_show(session, webhook_id))


async def _show(session: Session, webhook_id: str) -> None:
    async with session.api() as api:
        webhook = await api.get_webhook(webhook_id)
    show_webhook(session.out, webhook, now=now_ms())


@webhooks.command("create")
@click.argument("address", metavar="URL")
@event_option
@click.option("--description", default="", help="What it is for.")
@secret_option
@as_option
@pass_session
def create(session: Session, address: str, events: tuple[str, ...], description: str, secret_stdin: bool) -> None:
    """Tell an address of events from now on, and print the secret that messages are signed with."""
    session.run(_create(session, address, events, description, _given_secret(secret_stdin)))


async def _create(session: Session, url: str, events: tuple[str, ...], description: str, secret: str | None) -> None:
    async with session.api(must_exist=False) as api:
        webhook = await api.create_webhook(url=url, events=list(events), description=description, secret=secret)
    tell_webhook(session.out, webhook, secret=webhook.secret if secret is None else None)


@webhooks.command("change")
@click.argument("webhook_id", metavar="ID")
@click.option("--address", metavar="URL", help="Where it is from now on.")
@event_option
@click.option("--description", help="What it is for.")
@as_option
@pass_session
def change(
    session: Session, webhook_id: str, address: str | None, events: tuple[str, ...], description: str | None
) -> None:
    """Say anew where a webhook is or what it wants; what is not given stays as it is."""
    if address is None and not events and description is None:
        raise click.UsageError("Say what shall be different: --address, --event or --description.")
    wanted = list(events) or None
    session.run(_change(session, webhook_id, url=address, events=wanted, description=description))


async def _change(session: Session, webhook_id: str, **changes: Any) -> None:
    async with session.api() as api:
        tell_webhook(session.out, await api.change_webhook(webhook_id, **changes, if_match=None))


@webhooks.command("remove")
@click.argument("webhook_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_option
@pass_session
def remove(session: Session, webhook_id: str, yes: bool) -> None:
    """Forget a webhook and its deliveries; what is on its way is not sent."""
    confirm(session, f"Remove the webhook {webhook_id} and all that is known of its deliveries?", yes=yes)
    session.run(_remove(session, webhook_id))


async def _remove(session: Session, webhook_id: str) -> None:
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
    help="How long the old secret signs too, 7d at most; 0 for one that has leaked.",
)
@secret_option
@as_option
@pass_session
def rotate_secret(session: Session, webhook_id: str, overlap: float, secret_stdin: bool) -> None:
    """Give a webhook a new secret and print it. Meanwhile messages are signed with both."""
    session.run(_rotate(session, webhook_id, overlap, _given_secret(secret_stdin)))


async def _rotate(session: Session, webhook_id: str, overlap: float, secret: str | None) -> None:
    async with session.api() as api:
        webhook = await api.rotate_webhook_secret(webhook_id, overlap_s=overlap, secret=secret)
    tell_webhook(session.out, webhook, secret=webhook.secret if secret is None else None)


@webhooks.command("test")
@click.argument("webhook_id", metavar="ID")
@as_option
@pass_session
def test(session: Session, webhook_id: str) -> None:
    """Let a worker send a test, an event of type webhook.tested, whatever the webhook wants otherwise."""
    session.run(_test(session, webhook_id))


async def _test(session: Session, webhook_id: str) -> None:
    async with session.api() as api:
        tell_webhook(session.out, await api.test_webhook(webhook_id))
    session.out.note("A worker sends it in a moment. `ade webhooks deliveries ID` shows what came of it.")


@webhooks.command("enable")
@click.argument("webhook_id", metavar="ID")
@as_option
@pass_session
def enable(session: Session, webhook_id: str) -> None:
    """Tell a disabled webhook again of what happens from now on."""
    session.run(_change(session, webhook_id, is_active=True))


@webhooks.command("disable")
@click.argument("webhook_id", metavar="ID")
@click.option("--reason", default="somebody disabled it", show_default=True, help="Why; shown with the webhook.")
@as_option
@pass_session
def disable(session: Session, webhook_id: str, reason: str) -> None:
    """Send a webhook nothing more, not even what is on its way."""
    session.run(_change(session, webhook_id, is_active=False, reason=reason))


@webhooks.command("deliveries")
@click.argument("webhook_id", metavar="ID")
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Show at most so many.")
@pass_session
def deliveries(session: Session, webhook_id: str, state: str | None, limit: int) -> None:
    """List what was sent to a webhook and how it was answered, newest first."""
    session.look(_deliveries(session, webhook_id, None if state is None else State(state), limit))


async def _deliveries(session: Session, webhook_id: str, state: State | None, limit: int) -> None:
    async with session.api() as api:
        found = await first_of(api.list_deliveries, webhook_id, limit=limit, largest=_LARGEST_PAGE, state=state)
    show_deliveries(session.out, found, now=now_ms())


@webhooks.command("delivery")
@click.argument("webhook_id", metavar="ID")
@click.argument("delivery_id", metavar="DELIVERY")
@pass_session
def delivery(session: Session, webhook_id: str, delivery_id: str) -> None:
    """Show one delivery: its body, and every attempt to send it."""
    session.look(_delivery(session, webhook_id, delivery_id))


async def _delivery(session: Session, webhook_id: str, delivery_id: str) -> None:
    async with session.api() as api:
        found = await api.get_delivery(webhook_id, delivery_id)
    show_delivery(session.out, found, now=now_ms())


@webhooks.command("replay")
@click.argument("webhook_id", metavar="ID")
@click.argument("delivery_id", metavar="DELIVERY")
@as_option
@pass_session
def replay(session: Session, webhook_id: str, delivery_id: str) -> None:
    """Send a message once more, under its old id."""
    session.run(_replay(session, webhook_id, delivery_id))


async def _replay(session: Session, webhook_id: str, delivery_id: str) -> None:
    async with session.api() as api:
        task = await api.replay_delivery(webhook_id, delivery_id)
    if session.out.as_json:
        session.out.document({"delivery": delivery_id, "task": task.id})
    else:
        session.out.line(f"{delivery_id}: is sent once more by task {task.id}")

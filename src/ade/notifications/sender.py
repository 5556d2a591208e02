"""Sends notifications: one attempt of a `notifications:deliver` task, and the senders for email and HTTP channels."""

import asyncio
import email.utils
import random
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw, structs

from ade import VERSION
from ade.agents.protocols.base import secrets_in, without_secrets
from ade.approvals.repository import load_people
from ade.approvals.review_requests import review_of
from ade.common.text import HIDDEN
from ade.errors import InvalidWebhook, StaleWrite, UnknownChannel
from ade.notifications.messages import Message, compose, html_of, http_body, ntfy_address, plain, text_of
from ade.notifications.model import (
    ASKS_FOR_VOTE,
    Channel,
    ChannelKind,
    Notification,
    NotificationDelivery,
    NotificationKind,
    breaks_through,
    is_quiet,
    quiet_end,
)
from ade.notifications.service import deliveries_of, disable_channel, get_preferences, tasks_of
from ade.settings.sections import SmtpSettings
from ade.stores.ports import Stores
from ade.stores.repository import StoredRecord
from ade.tasks.model import Task
from ade.tasks.read_access import MaskRules, PayloadMask, has_secrets
from ade.webhooks.deliveries import (
    DeliveryDecision,
    DeliveryResponse,
    DeliveryState,
    DeliveryStep,
    attempted,
    cleaned,
    decide_delivery,
    ended,
)
from ade.webhooks.destinations import NetworkPolicy, check_url, secrets_in_url
from ade.webhooks.dispatch import WebhookMessage, WebhookSender, note_health, settle
from ade.webhooks.sender import HttpSender
from ade.webhooks.service import quiet, reach_of
from ade.webhooks.signatures import SECRET_PREFIX, signed_headers

if TYPE_CHECKING:
    from ade.app.ade import Ade


# Delivery: one attempt of a `notifications:deliver` task, and the log.


_LONGEST_ARGUMENTS = 800


class ChannelSender(Protocol):
    """Sends a message to a channel once. Everything the receiver does is a response, not an error."""

    async def send(self, channel: Channel, message: Message, delivery: NotificationDelivery) -> DeliveryResponse: ...


async def deliver(
    stores: Stores,
    sender: ChannelSender,
    account: str,
    delivery_id: str,
    *,
    randomness: float,
    public_url: str = "",
    shows_arguments: bool = False,
) -> DeliveryDecision:
    """Send a message once and store the outcome. Requests that were decided in the meantime are left out.

    If the process crashes between sending and storing, the message is sent twice with the same ID.
    """
    stored = await deliveries_of(account).get(stores, delivery_id)
    if stored is None:
        return DeliveryDecision(step=DeliveryStep.DROP, reason="the delivery is no longer in the log")
    if stored.record.state is DeliveryState.DELIVERED:
        return DeliveryDecision(step=DeliveryStep.DELIVERED, reason="it was already delivered")
    preferences = await get_preferences(stores, account)
    now = stores.clock.now()
    known = (*preferences.active, *preferences.former(now))
    channel = next((each for each in known if each.id == stored.record.channel), None)
    record = stored.record if channel is None or channel.removed_at is None else _changes_only(stored.record)
    if channel is None or not record.notifications:
        return await _dropped(stores, stored, "the channel was removed or disabled")
    tasks = await tasks_of(stores, (each.task_id for each in record.notifications))
    current = await _current(stores, account, record.notifications, tasks)
    if not current:
        return await _dropped(stores, stored, "it was decided in the meantime")
    must_wait = not (record.is_test or all(breaks_through(preferences, each) for each in current))
    if must_wait and is_quiet(preferences, now):
        return await _postponed(stores, stored, quiet_end(preferences, now) - now)
    arguments = await _arguments(stores, tasks) if shows_arguments else {}
    message = compose(current, preferences, more=record.more, public_url=public_url, arguments=arguments)
    delivery = structs.replace(record, notifications=tuple(current), body=text_of(message))
    response = cleaned(await _sent(sender, channel, message, delivery), _hidden(channel))
    health = await note_health(stores, channel.id, response)
    number, now = len(delivery.attempts) + 1, stores.clock.now()
    decision = decide_delivery(response, health, attempt=number, now=now, randomness=randomness)
    if delivery.is_test and decision.step is DeliveryStep.RETRY:
        decision = DeliveryDecision(step=DeliveryStep.GIVE_UP, reason=decision.reason)
    await _keep(stores, attempted(delivery, response, decision, number=number, now=now), stored.version)
    if decision.step is DeliveryStep.DISABLE:
        with suppress(UnknownChannel):  # removed in the meantime
            await disable_channel(stores, account, channel.id, decision.reason)
    if delivery.is_test and decision.step is not DeliveryStep.DELIVERED:
        return DeliveryDecision(step=DeliveryStep.DROP, reason=decision.reason)  # no dead letter: someone is watching
    return decision


async def _arguments(stores: Stores, tasks: Mapping[str, Task]) -> dict[str, str]:
    """Return the arguments of tasks on one line each, without those that their schemas declare as secret."""
    schemas = {each.name: each.schema for each in await stores.workers.definitions()}
    masks = {name: PayloadMask(MaskRules(), schema) for name, schema in schemas.items() if has_secrets(schema)}
    return {
        each: arguments_line(masks[task.name].raw_arguments(task.args) if task.name in masks else task.args)
        for each, task in tasks.items()
    }


def arguments_line(args: Raw | None) -> str:
    """Return the arguments on one line, with values of secret names masked; empty if there are none to show."""
    if args is None:
        return ""
    try:
        values: Any = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return ""
    shown = msgspec.json.encode(_masked(values), order="deterministic").decode()
    return plain(shown, _LONGEST_ARGUMENTS) if values else ""


def _masked(value: Any) -> Any:
    """Mask the fields with secret names, and the passwords in URLs."""
    if isinstance(value, dict):
        return {name: HIDDEN if secrets_in({name: "x"}) else _masked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return without_secrets(value, secrets_in({"": value})) if isinstance(value, str) else value


def _changes_only(delivery: NotificationDelivery) -> NotificationDelivery:
    """Leave out what a removed channel no longer receives: all but changes of the account."""
    changes = tuple(each for each in delivery.notifications if each.kind is NotificationKind.ACCOUNT)
    return structs.replace(delivery, notifications=changes, more=0)


async def _sent(
    sender: ChannelSender, channel: Channel, message: Message, delivery: NotificationDelivery
) -> DeliveryResponse:
    try:
        return await sender.send(channel, message, delivery)
    except Exception as broken:  # a bug in ADE must not use up all attempts within minutes
        return DeliveryResponse(error=f"it could not be sent ({type(broken).__name__})")


async def _current(
    stores: Stores, account: str, notifications: Sequence[Notification], tasks: Mapping[str, Task]
) -> list[Notification]:
    """Leave out requests on which the person can no longer vote: decided, superseded, or voted already."""
    if not any(each.kind in ASKS_FOR_VOTE for each in notifications):
        return list(notifications)
    people, now = await load_people(stores), stores.clock.now()
    person = people.directory.who(account)

    def is_current(each: Notification) -> bool:
        task = tasks.get(each.task_id)
        gates = () if task is None else review_of(task).gates
        gate = next((gate for gate in gates if gate.id == each.approval and gate.is_undecided), None)
        if gate is None:
            return False
        return person in {people.directory.who(voter) for voter in people.standing(gate, now).may_vote}

    return [each for each in notifications if each.kind not in ASKS_FOR_VOTE or is_current(each)]


async def _dropped(stores: Stores, stored: StoredRecord[NotificationDelivery], reason: str) -> DeliveryDecision:
    decision = DeliveryDecision(step=DeliveryStep.DROP, reason=reason)
    await _keep(stores, ended(stored.record, decision, now=stores.clock.now()), stored.version)
    return decision


async def _postponed(stores: Stores, stored: StoredRecord[NotificationDelivery], delay_ms: int) -> DeliveryDecision:
    decision = DeliveryDecision(
        step=DeliveryStep.RETRY, reason="it waits for the end of quiet hours", delay_ms=delay_ms
    )
    await _keep(stores, ended(stored.record, decision, now=stores.clock.now()), stored.version)
    return decision


async def _keep(stores: Stores, delivery: NotificationDelivery, seen: int) -> None:
    put = deliveries_of(delivery.account).put(delivery.id, delivery, seen=seen)
    with suppress(StaleWrite):  # the message was sent twice; only one attempt is stored
        await stores.documents.write([quiet(put)])


def _hidden(channel: Channel) -> list[str]:
    """Return the values to redact, in case the receiver echoes them."""
    secrets = [] if channel.secret is None else [channel.secret, channel.secret.removeprefix(SECRET_PREFIX)]
    return secrets if channel.kind is ChannelKind.EMAIL else [*secrets, *secrets_in_url(channel.target)]


# Senders.


_HEADERS = {"content-type": "application/json", "user-agent": f"ade-notifications/{VERSION}"}


class NetworkSender:
    """Sends to every kind of channel: email by SMTP, and all others by HTTP under the network policy of webhooks."""

    def __init__(self, http: WebhookSender, smtp: SmtpSettings, reach: NetworkPolicy, now: Callable[[], int]) -> None:
        self._http = http
        self._smtp = smtp
        self._reach = reach
        self._now = now

    async def send(self, channel: Channel, message: Message, delivery: NotificationDelivery) -> DeliveryResponse:
        if channel.kind is ChannelKind.EMAIL:
            return await send_mail(self._smtp, mail_of(channel, message, delivery, self._smtp))
        url = ntfy_address(channel.target) if channel.kind is ChannelKind.NTFY else channel.target
        try:
            target = check_url(url, self._reach)
        except InvalidWebhook as refused:  # the network policy has changed since the channel was added
            return DeliveryResponse(error=refused.detail)
        body = http_body(channel, message, delivery)
        headers = {**_HEADERS, **_authentication(channel, delivery, body, now=self._now())}
        return await self._http.send(WebhookMessage(target=target, headers=headers, body=body), self._reach)


def _authentication(channel: Channel, delivery: NotificationDelivery, body: bytes, *, now: int) -> dict[str, str]:
    if channel.secret is None:
        return {}
    if channel.kind is ChannelKind.NTFY:
        return {"authorization": f"Bearer {channel.secret}"}
    return signed_headers(delivery.id, now // 1000, body, [channel.secret])


def mail_of(channel: Channel, message: Message, delivery: NotificationDelivery, smtp: SmtpSettings) -> EmailMessage:
    """Return the email. EmailMessage rejects line breaks in headers, and all texts are on one line."""
    mail = EmailMessage(policy=SMTP)
    user, _, domain = smtp.sender.rpartition("@")
    mail["From"] = Address("ADE", user, domain)
    mail["To"] = channel.target
    mail["Subject"] = f"[ADE] {message.title}"
    mail["Date"] = email.utils.formatdate(delivery.created_at / 1000, usegmt=True)
    mail["Message-ID"] = f"<{delivery.id}@{domain}>"  # the same in every attempt
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(text_of(message))
    mail.add_alternative(html_of(message), subtype="html")
    return mail


async def send_mail(smtp: SmtpSettings, mail: EmailMessage) -> DeliveryResponse:
    """Send an email in a thread. A response of the server is a response with its SMTP status, and not an error."""
    if not smtp.host or not smtp.sender:
        return DeliveryResponse(error="email is not configured: set smtp.host and smtp.sender")
    started = time.monotonic()
    try:
        response = await asyncio.to_thread(_exchange, smtp, mail)
    except smtplib.SMTPRecipientsRefused as refused:
        [(status, text)] = refused.recipients.values()
        response = DeliveryResponse(status=status, excerpt=text)
    except smtplib.SMTPResponseException as refused:
        text = refused.smtp_error if isinstance(refused.smtp_error, bytes) else refused.smtp_error.encode()
        response = DeliveryResponse(status=refused.smtp_code, excerpt=text)
    except (OSError, smtplib.SMTPException, UnicodeError) as failed:
        response = DeliveryResponse(error=f"no email was accepted by {smtp.host}:{smtp.port} ({failed})")
    return structs.replace(response, duration_ms=round((time.monotonic() - started) * 1000))


def _exchange(smtp: SmtpSettings, mail: EmailMessage) -> DeliveryResponse:
    with _connected(smtp) as server:
        if smtp.tls == "starttls":
            server.starttls(context=_tls(smtp))  # raises if the server does not offer it: never sent in plaintext
        if smtp.user:
            password = Path(smtp.password_file).read_text().strip() if smtp.password_file else ""
            server.login(smtp.user, password)
        server.send_message(mail)
        return DeliveryResponse(status=250)


def _connected(smtp: SmtpSettings) -> smtplib.SMTP:
    if smtp.tls == "ssl":
        return smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=smtp.timeout_s, context=_tls(smtp))
    return smtplib.SMTP(smtp.host, smtp.port, timeout=smtp.timeout_s)


def _tls(smtp: SmtpSettings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=smtp.ca_file or None)


class Notifier:
    """Handles delivery tasks of notifications, with one HTTP sender per open store."""

    def __init__(self, app: "Ade") -> None:
        self._app = app
        self._made: tuple[Stores, WebhookSender] | None = None

    async def deliver(self, account: str, delivery: str) -> str:
        """Send one message. Raises Retry or Unrecoverable if it was not accepted."""
        stores, settings = (await self._app.open()).stores, self._app.settings
        if self._made is None or self._made[0] is not stores:
            self._made = stores, HttpSender()
        decision = await deliver(
            stores,
            NetworkSender(self._made[1], settings.smtp, reach_of(settings.webhooks), stores.clock.now),
            account,
            delivery,
            randomness=random.random(),
            public_url=settings.public_url,
            shows_arguments=settings.notifications.include_arguments,
        )
        return settle(decision)

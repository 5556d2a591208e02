"""Records and rules of notifications: channels, preferences, quiet hours, digests, and the outbox of a person."""

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum, auto
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Raw, Struct, structs

from ade.accounts.model import SYSTEM
from ade.approvals.risk import RiskLevel
from ade.errors import InvalidNotification
from ade.failures import Backoff
from ade.tasks.identifiers import NOTIFY_PERSON, QUEUE
from ade.tasks.model import Task
from ade.webhooks.deliveries import ATTEMPTS, DeliveryRecord, DeliveryState, WebhookHealth, own_task_id
from ade.webhooks.destinations import PUBLIC, NetworkPolicy, check_url
from ade.webhooks.signatures import key_of

CHANNEL_ADDED, CHANNEL_REMOVED = "notification.channel_added", "notification.channel_removed"
CHANNEL_DISABLED, PREFERENCES_CHANGED = "notification.channel_disabled", "notification.preferences_changed"

MOST_CHANNELS, MOST_WITH_REMOVED = 10, 20  # per person; the second limits to how many addresses mail goes in a week
REMOVED_KEPT_MS = 7 * 86_400_000  # how long a removed channel still receives changes of the account
_LONGEST_LABEL, _LONGEST_TOKEN, _LONGEST_ADDRESS = 100, 200, 254
# An address as people write it. Quoted local parts and comments are rejected: they could hide a second recipient.
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+")
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOKEN = re.compile(r"[!-~]{1,200}")


class ChannelKind(StrEnum):
    """How a channel reaches a person."""

    EMAIL = auto()
    SLACK = auto()
    TEAMS = auto()
    DISCORD = auto()
    NTFY = auto()
    WEBHOOK = auto()  # signed JSON, for a program of your own


class Channel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address at which a person receives notifications. URLs of chat services are secrets."""

    id: str
    kind: ChannelKind
    target: str  # an email address or a URL
    secret: str | None = None  # WEBHOOK: signs messages; NTFY: access token
    label: str = ""
    is_active: bool = True
    disabled_at: int | None = None
    disabled_why: str | None = None
    created_by: str | None = None
    created_at: int = 0
    removed_at: int | None = None

    def __repr__(self) -> str:
        return f"Channel({self.id!r})"  # keep the target out of logs


def check_channel(channel: Channel, reach: NetworkPolicy = PUBLIC) -> None:
    """Raise InvalidNotification or InvalidWebhook. The message contains neither the URL path nor the secret."""
    if len(channel.label) > _LONGEST_LABEL or not channel.label.isprintable():
        raise InvalidNotification(f"a label has at most {_LONGEST_LABEL} printable characters")
    if channel.kind is ChannelKind.EMAIL:
        if len(channel.target) > _LONGEST_ADDRESS or not _EMAIL.fullmatch(channel.target):
            raise InvalidNotification(
                f"{channel.target[:60]!r} is not an email address: write it like name@example.org, without a name"
            )
    else:
        check_url(channel.target, reach)
    if channel.kind is ChannelKind.NTFY and topic_of(channel.target) is None:
        raise InvalidNotification("an ntfy URL ends with its topic, such as https://ntfy.example.org/my-topic")
    if channel.kind is ChannelKind.WEBHOOK:
        key_of(channel.secret or "")
    elif channel.secret is not None and channel.kind is not ChannelKind.NTFY:
        raise InvalidNotification(f"a channel of kind {channel.kind} has no secret; leave it out")
    elif channel.secret is not None and not _TOKEN.fullmatch(channel.secret):
        raise InvalidNotification(f"an access token has 1 to {_LONGEST_TOKEN} visible ASCII characters")


def topic_of(url: str) -> str | None:
    """Return the topic of an ntfy URL: its last path segment; None if there is none."""
    path = url.partition("://")[2].partition("?")[0]
    _, slash, topic = path.rpartition("/")
    return topic if slash and _TOPIC.fullmatch(topic) else None


class BreakThrough(StrEnum):
    """Which notifications ignore quiet hours and digests. Changes of the account always do."""

    NEVER = auto()
    CRITICAL = auto()  # critical risk and urgent priority
    HIGH = auto()  # the same, and high risk


class Preferences(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The channels of a person, and when they may be used. Times of day are in `time_zone`."""

    account: str
    channels: tuple[Channel, ...] = ()
    removed: tuple[Channel, ...] = ()  # still receive changes of the account, so that no one removes them unnoticed
    since: int = 0  # seq: only later events are sent
    time_zone: str = "UTC"
    quiet_from: str = ""  # such as 22:00; empty: no quiet hours
    quiet_to: str = ""
    break_through: BreakThrough = BreakThrough.CRITICAL
    digest_every_s: int = 0  # 0: no digest
    digest_at: tuple[str, ...] = ()  # times of day; instead of `digest_every_s`
    updated_at: int = 0

    @property
    def active(self) -> list[Channel]:
        return [channel for channel in self.channels if channel.is_active]

    def former(self, now: int) -> list[Channel]:
        """Return the removed channels that still receive changes of the account."""
        return [each for each in self.removed if each.is_active and now - (each.removed_at or 0) < REMOVED_KEPT_MS]

    @property
    def has_digest(self) -> bool:
        return bool(self.digest_every_s or self.digest_at)


_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_SHORTEST_DIGEST_S, _LONGEST_DIGEST_S, _MOST_TIMES = 60, 7 * 86_400, 24


def check_preferences(preferences: Preferences) -> None:
    """Raise InvalidNotification for preferences that cannot be followed."""
    _zone(preferences.time_zone)
    if bool(preferences.quiet_from) != bool(preferences.quiet_to):
        raise InvalidNotification("quiet hours need a start and an end, such as 22:00-07:00")
    if preferences.quiet_from and minutes_of(preferences.quiet_from) == minutes_of(preferences.quiet_to):
        raise InvalidNotification("quiet hours must not last the whole day: nothing would ever be sent")
    every = preferences.digest_every_s
    if every and not _SHORTEST_DIGEST_S <= every <= _LONGEST_DIGEST_S:
        raise InvalidNotification("a digest is sent every 1 minute to every 7 days")
    if every and preferences.digest_at:
        raise InvalidNotification("a digest has an interval or times of day, not both")
    if len(preferences.digest_at) > _MOST_TIMES:
        raise InvalidNotification(f"a digest has at most {_MOST_TIMES} times of day")
    for text in preferences.digest_at:
        minutes_of(text)


def minutes_of(time_of_day: str) -> int:
    """Return the minute of the day of a time such as 22:00. Raises InvalidNotification."""
    found = _TIME.fullmatch(time_of_day)
    if found is None:
        raise InvalidNotification(f"{time_of_day[:20]!r} is not a time of day: write it like 07:30 or 22:00")
    return int(found[1]) * 60 + int(found[2])


@lru_cache(maxsize=100)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidNotification(
            f"{name[:60]!r} is not a time zone: use a name such as Europe/Berlin, America/New_York, or UTC"
        ) from None


def local_time(preferences: Preferences, at: int) -> datetime:
    """Return a moment on the person's clock."""
    return datetime.fromtimestamp(at / 1000, _zone(preferences.time_zone))


_MINUTE_MS = 60_000


def is_quiet(preferences: Preferences, at: int) -> bool:
    """Whether this moment is within the quiet hours, which include their start and not their end."""
    if not preferences.quiet_from:
        return False
    local = local_time(preferences, at)
    minute = local.hour * 60 + local.minute
    start, end = minutes_of(preferences.quiet_from), minutes_of(preferences.quiet_to)
    return start <= minute < end if start < end else minute >= start or minute < end


def quiet_end(preferences: Preferences, at: int) -> int:
    """Return the first moment from `at` on that is not quiet.

    It looks minute by minute, because the clock can be set forward or back in between.
    """
    while is_quiet(preferences, at):
        at = (at // _MINUTE_MS + 1) * _MINUTE_MS
    return at


def next_digest(preferences: Preferences, after: int) -> int:
    """Return when the digest is sent that contains a notification of this moment."""
    every = preferences.digest_every_s * 1000
    if every:
        return (after // every + 1) * every
    local = local_time(preferences, after)
    days = [(local + timedelta(days=day)).replace(second=0, microsecond=0, fold=0) for day in (0, 1, 2)]
    times = [divmod(minutes_of(text), 60) for text in preferences.digest_at]
    slots = [round(day.replace(hour=hour, minute=minute).timestamp() * 1000) for day in days for hour, minute in times]
    return min(slot for slot in slots if slot > after)


class NotificationKind(StrEnum):
    """What a notification is about."""

    REVIEW = auto()  # your vote is needed
    ESCALATION = auto()  # no one decided in time, so your vote is needed
    DECISION = auto()  # your task was approved, rejected, or sent back
    ACCOUNT = auto()  # your account or your channels were changed
    TEST = auto()


ASKS_FOR_VOTE = frozenset({NotificationKind.REVIEW, NotificationKind.ESCALATION})


class Notification(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One notification of a person. Texts come from authors and reviewers, and are escaped for each channel."""

    kind: NotificationKind
    at: int
    seq: int = 0  # of its event
    task_id: str = ""
    approval: str = ""  # the id of the gate
    outcome: str = ""  # of a decision or an account change
    about: str = ""  # the account that has changed; of several changes, all of them
    is_owned: bool = False  # it is a service account of the person
    count: int = 1  # changes of an account that this stands for
    name: str = ""  # of the task
    description: str = ""
    author: str = ""
    author_name: str = ""
    actor: str = ""
    reason: str = ""
    level: RiskLevel | None = None
    due_at: int | None = None
    is_urgent: bool = False

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.approval}:{self.seq}"


def breaks_through(preferences: Preferences, notification: Notification) -> bool:
    """Whether it is sent immediately, whatever the quiet hours and the digest. Changes of an account always are, so
    that an attacker who takes it over cannot delay the notification."""
    if notification.kind is NotificationKind.ACCOUNT:
        return True
    if preferences.break_through is BreakThrough.NEVER:
        return False
    least = RiskLevel.HIGH if preferences.break_through is BreakThrough.HIGH else RiskLevel.CRITICAL
    level = notification.level
    return notification.is_urgent or (level is not None and level.rank >= least.rank)


def is_due(preferences: Preferences, notification: Notification, now: int) -> bool:
    """Whether it can be sent now. A request that would expire before the next digest does not wait for it."""
    if breaks_through(preferences, notification):
        return True
    if is_quiet(preferences, now):
        return False
    if not preferences.has_digest:
        return True
    slot = next_digest(preferences, notification.at)
    return now >= slot or (notification.due_at is not None and notification.due_at <= slot)


def merged(changes: Sequence[Notification]) -> list[Notification]:
    """Return changes of an account with repeated ones counted, so that no flood hides a different one. Of too many
    different ones, those of the same kind are counted together, and the newest details are listed first."""
    same = _counted(changes, lambda each: (each.outcome, each.about, each.actor, each.reason))
    return same if len(same) <= _MOST_CHANGES else _counted(same, lambda each: (each.outcome, each.is_owned))


def _counted(changes: Sequence[Notification], key: Callable[[Notification], object]) -> list[Notification]:
    found: dict[object, Notification] = {}
    for each in changes:
        before = found.get(key(each))
        if before is not None:
            lists = {name: _listed(getattr(each, name), getattr(before, name)) for name in ("about", "actor", "reason")}
            each = structs.replace(each, count=before.count + each.count, **lists)
        found[key(each)] = each
    return list(found.values())


def _listed(new: str, before: str) -> str:
    texts = dict.fromkeys(text for text in (*new.split("; "), *before.split("; ")) if text)
    return "; ".join(texts)[:_LONGEST_LIST]


MOST_PENDING = 500  # per person; older ones are only counted, but no change of the account is dropped
_MOST_SEPARATE = 5  # more than this at once become one message
_MOST_CHANGES, _CHANGES_PER_MESSAGE = 25, 4  # different changes of an account; four fit every kind of channel
_LONGEST_LIST = 600  # characters


class SendOrder(Struct, frozen=True):
    """A stored delivery whose task might not be enqueued yet."""

    delivery: str
    channel: str
    at: int
    is_test: bool = False


class Outbox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person has not been sent yet. `seq` is the last event that it took in, so that none is taken in twice."""

    account: str
    seq: int = 0
    pending: tuple[Notification, ...] = ()
    more: int = 0  # older ones that were dropped because there were too many
    sending: tuple[SendOrder, ...] = ()

    def with_pending(self, new: Sequence[Notification]) -> "Outbox":
        """Return the outbox with new notifications."""
        pending = [*self.pending, *new]
        beyond = 0
        if len(pending) > MOST_PENDING:
            changes, others = _by_subject(pending)
            changes = merged(changes)
            beyond = max(len(changes) + len(others) - MOST_PENDING, 0)
            pending = [*changes, *others[beyond:]]
        seq = max((self.seq, *(each.seq for each in new)))
        return structs.replace(self, seq=seq, pending=tuple(pending), more=self.more + beyond)


def _by_subject(found: Sequence[Notification]) -> tuple[list[Notification], list[Notification]]:
    """Return the changes of the account, and the others."""
    changes = [each for each in found if each.kind is NotificationKind.ACCOUNT]
    return changes, [each for each in found if each.kind is not NotificationKind.ACCOUNT]


class NotificationDelivery(DeliveryRecord, frozen=True, kw_only=True, omit_defaults=True):
    """One message to one channel of a person, with its attempts."""

    account: str
    channel: str
    kind: ChannelKind
    notifications: tuple[Notification, ...]
    more: int = 0
    is_test: bool = False

    @property
    def must_arrive(self) -> bool:
        """Whether it waits with changes of the account, so that it stays in the log however many others follow."""
        return self.state is DeliveryState.WAITING and bool(_by_subject(self.notifications)[0])


def delivery_to(
    account: str, channel: Channel, batch: Sequence[Notification], *, more: int, now: int
) -> NotificationDelivery:
    """Return the record of a message that was not sent yet. Its ID follows from its content."""
    keys = "\n".join((account, channel.id, *(each.key for each in batch)))
    return NotificationDelivery(
        id=f"msg_{hashlib.sha256(keys.encode()).hexdigest()[:32]}",
        account=account,
        channel=channel.id,
        kind=channel.kind,
        notifications=tuple(batch),
        more=more,
        body="",
        created_at=now,
        updated_at=now,
        is_test=all(each.kind is NotificationKind.TEST for each in batch),
    )


def dispatched(
    outbox: Outbox, preferences: Preferences, *, now: int
) -> tuple[Outbox, list[NotificationDelivery]] | None:
    """Move due notifications from the outbox to deliveries, one per message and channel; None if nothing is due.
    Removed channels receive only changes of the account."""
    due = [each for each in outbox.pending if is_due(preferences, each, now)]
    if not due:
        return None
    rest = tuple(each for each in outbox.pending if not is_due(preferences, each, now))
    changes, others = _by_subject(due)
    deliveries = [
        delivery_to(outbox.account, channel, batch, more=0, now=now)
        for batch in _change_batches(changes)
        for channel in (*preferences.active, *preferences.former(now))
    ]
    deliveries += [
        delivery_to(outbox.account, channel, batch, more=outbox.more if number == 0 else 0, now=now)
        for number, batch in enumerate(_batches(preferences, others))
        for channel in preferences.active
    ]
    orders = tuple(SendOrder(each.id, each.channel, each.created_at) for each in deliveries)
    more = 0 if others else outbox.more
    after = structs.replace(outbox, pending=rest, more=more, sending=(*outbox.sending, *orders))
    return after, deliveries


def _change_batches(changes: Sequence[Notification]) -> list[list[Notification]]:
    """Return the messages about the account: with nothing else, and so short that every channel shows all of it."""
    found = merged(changes)
    size = _CHANGES_PER_MESSAGE if len(found) > _MOST_SEPARATE else 1
    return [found[start : start + size] for start in range(0, len(found), size)]


def _batches(preferences: Preferences, due: Sequence[Notification]) -> list[list[Notification]]:
    """Return the other messages. What breaks through is never in one message with what must respect quiet hours."""
    urgent = [each for each in due if breaks_through(preferences, each)]
    others = [each for each in due if not breaks_through(preferences, each)]
    together = len(others) > _MOST_SEPARATE or preferences.has_digest
    return [*_split(urgent, len(urgent) > _MOST_SEPARATE), *_split(others, together)]


def _split(found: list[Notification], together: bool) -> list[list[Notification]]:
    return [found] if together and found else [[each] for each in found]


class NotifiedGate(Struct, frozen=True, kw_only=True):
    """The accounts that were notified of a gate: each once, by whichever step made it eligible."""

    accounts: frozenset[str]
    until: int


# The delivery task. Its arguments name the delivery, so that no caller can have another text sent.

TIMEOUT_MS = 120_000  # of an attempt; the senders time out earlier
_RESULT_KEPT_MS = 86_400_000
_QUIET_WAITS = 20  # runs that only find out that quiet hours have begun
_BACKOFF = Backoff(base_ms=5_000, multiplier=8.0, cap_ms=86_400_000)


class SendArguments(Struct, frozen=True):
    """Arguments of a delivery task."""

    account: str
    delivery: str


def send_task(account: str, order: SendOrder) -> Task:
    """Return the task that sends a delivery. Deterministic, so that a repetition is deduplicated."""
    key = f"notification:{order.delivery}:{order.at}"
    return Task(
        id=own_task_id(order.at, key),
        name=NOTIFY_PERSON,
        queue=QUEUE,
        args=Raw(msgspec.json.encode(SendArguments(account, order.delivery))),
        description=f"notification of {account}",
        tags=(f"channel:{order.channel}",),
        idempotency_key=key,
        concurrency_key=order.channel,
        source=SYSTEM,
        timeout_ms=TIMEOUT_MS,
        max_attempts=1 if order.is_test else ATTEMPTS + _QUIET_WAITS,
        backoff=_BACKOFF,
        result_ttl_ms=_RESULT_KEPT_MS,
    )


# What callers see: no URL paths, no secrets.


class ChannelView(Struct, frozen=True, kw_only=True):
    """A channel of a person. Of a URL only the origin is shown, because the rest is a secret."""

    id: str
    account: str
    kind: ChannelKind
    target: str
    label: str = ""
    is_active: bool = True
    disabled_at: int | None = None
    disabled_why: str | None = None
    created_by: str | None = None
    created_at: int = 0
    health: WebhookHealth = WebhookHealth()


class ChannelWithSecret(ChannelView, frozen=True, kw_only=True):
    """A new channel. `secret` signs its messages and is shown only once; other kinds than webhook have none."""

    secret: str | None = None

    def __repr__(self) -> str:
        return f"ChannelWithSecret({self.id!r})"  # keep the secret out of logs


class PreferencesView(Struct, frozen=True, kw_only=True):
    """When a person is notified. Times of day are in `time_zone`."""

    account: str
    time_zone: str
    quiet_hours: str  # such as 22:00-07:00; empty: none
    break_through: BreakThrough
    digest_every_s: int
    digest_at: Sequence[str]
    channels: int
    pending: int = 0  # notifications that wait for the end of quiet hours or for the next digest

"""Notifications in the store: preferences and channels, the event log follower, outboxes, and the delivery log.

The follower puts notifications into the outbox of each recipient. `dispatch` turns those that are due into deliveries
and enqueues a task for each. Both run in a maintenance job, so that no command waits for them. A crash between two
steps repeats the later one: an outbox records the last event that it took in, and the deliveries whose task might be
missing.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec import Struct, structs

from ade.accounts.model import SYSTEM, TooManyRequests, User
from ade.accounts.users import get_user, list_users
from ade.approvals.model import Gate
from ade.approvals.repository import load_people
from ade.approvals.review_requests import ReviewerDirectory
from ade.errors import InvalidNotification, StaleWrite, UnknownChannel
from ade.events.model import Event
from ade.notifications.messages import (
    DECISIONS,
    REQUESTS,
    account_change_of,
    decision_of,
    gate_of,
    is_relevant,
    request_of,
)
from ade.notifications.model import (
    CHANNEL_ADDED,
    CHANNEL_DISABLED,
    CHANNEL_REMOVED,
    MOST_CHANNELS,
    MOST_WITH_REMOVED,
    PREFERENCES_CHANGED,
    BreakThrough,
    Channel,
    ChannelKind,
    Notification,
    NotificationDelivery,
    NotificationKind,
    NotifiedGate,
    Outbox,
    Preferences,
    SendOrder,
    check_channel,
    check_preferences,
    delivery_to,
    dispatched,
    send_task,
)
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.enqueue import enqueue
from ade.tasks.identifiers import NOTIFICATION_CURSOR, PREFERENCES_KIND
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads
from ade.webhooks.deliveries import DeliveryState, Place, oldest_beyond
from ade.webhooks.destinations import PUBLIC, NetworkPolicy
from ade.webhooks.service import HEALTH, quiet
from ade.webhooks.signatures import SECRET_BYTES, secret_of

PREFERENCES = Repository(PREFERENCES_KIND, Preferences)
OUTBOX = Repository("notification_outbox", Outbox)
NOTIFIED = Repository("notification_gate", NotifiedGate, lambda gate: gate.until)
_TESTS_PER_MINUTE = 10  # messages
_CHANGES_PER_HOUR = 60  # of one person, who is notified of each


def deliveries_of(account: str) -> Repository[NotificationDelivery]:
    """Return the delivery log of one person: separate, so that listing one does not read all."""
    kind = hashlib.sha256(account.encode()).hexdigest()[:24]  # an account name can contain any character
    return Repository(f"notification_delivery.{kind}", NotificationDelivery, lambda delivery: delivery.kept_until)


# Preferences and channels. The caller has checked that the actor may change them.


class PreferenceChanges(Struct, frozen=True, kw_only=True):
    """The fields to change; None leaves a field unchanged."""

    time_zone: str | None = None
    quiet_hours: str | None = None  # such as 22:00-07:00; empty: none
    break_through: BreakThrough | None = None
    digest_every_s: int | None = None
    digest_at: tuple[str, ...] | None = None


async def get_preferences(stores: Stores, account: str) -> Preferences:
    """Return the preferences of a person, or the defaults."""
    stored = await PREFERENCES.get(stores, account)
    return Preferences(account=account) if stored is None else stored.record


async def change_preferences(
    stores: Stores, account: str, changes: PreferenceChanges, *, actor: str | None
) -> Preferences:
    """Change when a person is notified. Raises UnknownAccount and InvalidNotification."""
    await _person(stores, account)
    fields: dict[str, object] = {
        name: value for name, value in structs.asdict(changes).items() if value is not None and name != "quiet_hours"
    }
    if changes.digest_every_s and changes.digest_at is None:
        fields["digest_at"] = ()
    if changes.digest_at and changes.digest_every_s is None:
        fields["digest_every_s"] = 0
    if changes.quiet_hours is not None:
        fields["quiet_from"], _, fields["quiet_to"] = changes.quiet_hours.partition("-")

    def decide(before: Preferences, now: int) -> tuple[Preferences, Event | None]:
        after = structs.replace(before, **fields)
        check_preferences(after)
        names = sorted(name for name in fields if getattr(before, name) != getattr(after, name))
        payload: dict[str, object] = {"account": account, "fields": names}
        event = Event(type=PREFERENCES_CHANGED, at=now, actor=actor, payload=payload)
        return structs.replace(after, updated_at=now), event if names else None

    return await _rewritten(stores, account, decide)


async def add_channel(
    stores: Stores,
    account: str,
    kind: ChannelKind,
    target: str,
    *,
    actor: str | None,
    label: str = "",
    secret: str | None = None,
    reach: NetworkPolicy = PUBLIC,
) -> Channel:
    """Add a channel, which receives what happens from now on. Raises UnknownAccount, InvalidNotification, and
    InvalidWebhook."""
    await _person(stores, account)
    if kind is ChannelKind.WEBHOOK and secret is None:
        secret = secret_of(os.urandom(SECRET_BYTES))
    channel = Channel(
        id=f"ch_{os.urandom(8).hex()}",
        kind=kind,
        target=target,
        secret=secret,
        label=label,
        created_by=actor,
        created_at=stores.clock.now(),
    )
    check_channel(channel, reach)
    last = await stores.events.last_seq()

    def decide(before: Preferences, now: int) -> tuple[Preferences, Event | None]:
        if len(before.channels) >= MOST_CHANNELS:
            raise InvalidNotification(f"a person has at most {MOST_CHANNELS} channels; remove one first")
        if any((each.kind, each.target) == (kind, target) for each in before.channels):
            raise InvalidNotification(f"{account} has this {kind} channel already")
        former = before.former(now)
        known = [each for each in former if (each.kind, each.target, each.secret) == (kind, target, secret)]
        if not known and len(before.channels) + len(former) >= MOST_WITH_REMOVED:
            raise InvalidNotification(
                f"{account} has removed {len(former)} channels within a week, and these still receive changes of the"
                " account; add more when that week is over"
            )
        new = structs.replace(channel, id=known[0].id) if known else channel
        after = structs.replace(
            before,
            channels=(*before.channels, new),
            removed=tuple(each for each in before.removed if each not in known),
            since=before.since if before.active or former else last,
            updated_at=now,
        )
        return after, _channel_event(CHANNEL_ADDED, account, new, actor, now)

    return (await _rewritten(stores, account, decide)).channels[-1]


async def remove_channel(stores: Stores, channel_id: str, *, account: str, actor: str | None) -> None:
    """Remove a channel. For a week it still receives changes of the account, beginning with this one, so that an
    attacker who takes over the account cannot hide that. Raises UnknownChannel and TooManyRequests."""

    def decide(before: Preferences, now: int) -> tuple[Preferences, Event | None]:
        channel = channel_in(before, channel_id)
        rest = tuple(each for each in before.channels if each.id != channel_id)
        removed = (*before.removed, structs.replace(channel, removed_at=now))
        after = structs.replace(before, channels=rest, removed=removed, updated_at=now)
        return after, _channel_event(CHANNEL_REMOVED, account, channel, actor, now)

    await _rewritten(stores, account, decide)


async def _forget_removed(stores: Stores, stored: StoredRecord[Preferences]) -> None:
    """Delete the removed channels that no longer receive anything."""
    before, rest = stored.record, tuple(stored.record.former(stores.clock.now()))
    if rest != before.removed:
        put = PREFERENCES.put(before.account, structs.replace(before, removed=rest), seen=stored.version)
        health = [HEALTH.remove(each.id) for each in before.removed if each not in rest]
        with suppress(StaleWrite):  # changed in the meantime: the next round does it
            await stores.documents.write([quiet(write) for write in (put, *health)])


async def disable_channel(stores: Stores, account: str, channel_id: str, why: str) -> None:
    """Stop sending to a channel that accepts nothing. Raises UnknownChannel."""

    def decide(before: Preferences, now: int) -> tuple[Preferences, Event | None]:
        channel = channel_in(before, channel_id)
        if not channel.is_active:
            return before, None
        off = structs.replace(channel, is_active=False, disabled_at=now, disabled_why=why)
        channels = tuple(off if each.id == channel_id else each for each in before.channels)
        event = _channel_event(CHANNEL_DISABLED, account, channel, SYSTEM, now, reason=why)
        return structs.replace(before, channels=channels, updated_at=now), event

    await _rewritten(stores, account, decide)


def channel_in(preferences: Preferences, channel_id: str) -> Channel:
    """Return a channel. Raises UnknownChannel."""
    found = next((each for each in preferences.channels if each.id == channel_id), None)
    if found is None:
        raise unknown_channel(channel_id)
    return found


def unknown_channel(channel_id: str) -> UnknownChannel:
    """Return the error for a channel that does not exist, or that belongs to another account."""
    return UnknownChannel(f"no channel {channel_id[:60]!r} exists", advice=UnknownChannel.usual_advice)


async def owner_of(stores: Stores, channel_id: str) -> str:
    """Return the account of a channel. Raises UnknownChannel."""
    for account, stored in (await PREFERENCES.all(stores)).items():
        if any(channel.id == channel_id for channel in stored.record.channels):
            return account
    raise unknown_channel(channel_id)


def _channel_event(kind: str, account: str, channel: Channel, actor: str | None, now: int, **more: object) -> Event:
    payload: dict[str, object] = {"account": account, "channel": channel.id, "kind": str(channel.kind), **more}
    return Event(type=kind, at=now, actor=actor, payload=payload)


async def _person(stores: Stores, account: str) -> User:
    user = await get_user(stores, account)
    if not user.is_human:
        raise InvalidNotification(f"{account} is a service account; its owner {user.owner} is notified instead")
    return user


class _Decide(Protocol):
    def __call__(self, before: Preferences, now: int) -> tuple[Preferences, Event | None]: ...


async def _rewritten(stores: Stores, account: str, decide: _Decide) -> Preferences:
    async def step() -> Preferences:
        stored = await PREFERENCES.get(stores, account)
        before = Preferences(account=account) if stored is None else stored.record
        after, event = decide(before, stores.clock.now())
        if event is not None:
            if event.actor != SYSTEM:
                await _take(stores, f"notification_change:{account}", _CHANGES_PER_HOUR, 3_600_000)
            put = PREFERENCES.put(account, after, seen=0 if stored is None else stored.version)
            await stores.documents.write([quiet(put)], [event])
        return after

    return await decided(step)


async def _take(stores: Stores, key: str, count: int, period_ms: int, times: int = 1) -> None:
    wait_ms = await stores.documents.take_rate(key, count, period_ms, times=times)
    if wait_ms:
        raise TooManyRequests(
            f"this is limited to {count} per {period_ms // 60_000} min; try again in {wait_ms / 1000:.1f} s",
            retry_after=wait_ms / 1000,
        )


# The follower: which events concern whom.

PAGE = 200  # events per batch
_GATE_KEPT_MS = 86_400_000  # after the gate has expired


class _Directory(NamedTuple):
    """Who can be reached: all accounts, and the preferences of those that have channels."""

    users: Mapping[str, User]
    people: ReviewerDirectory
    preferences: Mapping[str, Preferences]

    def reachable(self, account: str, seq: int) -> str | None:
        """Return an account with channels of the person behind this account; for a program, of its owner."""
        return next((each.account for each in self._preferences_of(account, seq) if each.active), None)

    def recipients(self, account: str, event: Event, now: int) -> Iterable[str]:
        """Return who is notified of a decision or a change of an account. A change reaches all accounts of the person
        with channels, also with removed ones, and those of the person and the owner that it had before."""
        if event.type in DECISIONS:
            return {each for each in [self.reachable(account, event.seq)] if each is not None}
        names = {account, *(str(event.payload.get(name) or "") for name in ("person_before", "owner_before"))} - {""}
        found = [each for name in names for each in self._preferences_of(name, event.seq)]
        return {each.account for each in found if each.active or each.former(now)}

    def _preferences_of(self, account: str, seq: int) -> list[Preferences]:
        """Return the preferences of a person, those of the account first."""
        user = self.users.get(account)
        for _ in range(5):  # owners of owners
            if user is None or user.is_human:
                break
            user = self.users.get(user.owner)
        name, who = account if user is None else user.id, self.people.directory.who
        same = sorted(each for each in self.users if who(each) == who(name) and each != name)
        found = (self.preferences.get(each) for each in (name, *same))
        return [each for each in found if each is not None and each.since < seq]


async def follow(stores: Stores, *, limit: int = PAGE) -> int:
    """Put notifications about the next events into outboxes. Returns the event count; a crash loses none."""
    end = await stores.events.last_seq()
    reached = (await stores.events.cursors()).get(NOTIFICATION_CURSOR, 0)
    known, now = await PREFERENCES.all(stores), stores.clock.now()
    for stored in known.values():
        await _forget_removed(stores, stored)
    preferences = {account: stored.record for account, stored in known.items()}
    receiving = [each for each in preferences.values() if each.active or each.former(now)]
    if not receiving:
        if reached < end:  # without channels the cursor must not block trimming
            await stores.events.advance(NOTIFICATION_CURSOR, end)
        return 0
    events = await stores.events.read(max(reached, min(each.since for each in receiving)), limit)
    if not events:
        return 0
    await decided(lambda: _take_in(stores, [event for event in events if is_relevant(event)], preferences))
    await stores.events.advance(NOTIFICATION_CURSOR, events[-1].seq)
    return len(events)


async def _take_in(stores: Stores, events: Sequence[Event], preferences: Mapping[str, Preferences]) -> None:
    if not events:
        return
    people, now = await load_people(stores), stores.clock.now()
    users = {user.id: user for user in await list_users(stores)}
    directory = _Directory(users, people, preferences)
    tasks = await tasks_of(stores, (event.task_id for event in events))
    gates = [str(event.payload.get("approval", "")) for event in events if event.type in REQUESTS]
    notified = dict(zip(gates, await NOTIFIED.each(stores, gates), strict=True)) if gates else {}
    found: dict[str, list[Notification]] = {}
    updates: dict[str, NotifiedGate] = {}
    for event in events:
        task = tasks.get(event.task_id or "")
        if event.type in REQUESTS:
            gate = gate_of(task, event)
            if task is None or gate is None or not gate.is_undecided:
                continue  # decided or superseded in the meantime: there is nothing to ask for
            stored = notified[gate.id]
            before = updates.get(gate.id) or (
                NotifiedGate(accounts=frozenset(), until=0) if stored is None else stored.record
            )
            new = _voters(directory, gate, event, before.accounts, now=now)
            for account in new:
                found.setdefault(account, []).append(request_of(task, gate, event, users))
            until = gate.expires_at + _GATE_KEPT_MS
            updates[gate.id] = NotifiedGate(accounts=before.accounts | new, until=until)
        else:
            item = decision_of(task, event, users) if event.type in DECISIONS else account_change_of(event, users)
            if item is not None:
                for recipient in directory.recipients(item[0], event, now):
                    found.setdefault(recipient, []).append(item[1])
    writes = await _outbox_writes(stores, found)
    for gate_id, after in updates.items():
        stored = notified[gate_id]
        if stored is None or stored.record != after:
            writes.append(NOTIFIED.put(gate_id, after, seen=0 if stored is None else stored.version))
    await stores.documents.write([quiet(write) for write in writes])


async def _outbox_writes(stores: Stores, found: Mapping[str, Sequence[Notification]]) -> list[DocumentWrite]:
    writes = []
    for (account, new), stored in zip(found.items(), await OUTBOX.each(stores, list(found)), strict=True):
        outbox = Outbox(account=account) if stored is None else stored.record
        fresh = [each for each in new if each.seq > outbox.seq]
        if fresh:
            after = outbox.with_pending(fresh)
            writes.append(OUTBOX.put(account, after, seen=0 if stored is None else stored.version))
    return writes


async def tasks_of(stores: Stores, task_ids: Iterable[str | None]) -> dict[str, Task]:
    """Return the tasks that still exist, by ID."""
    ids = list(dict.fromkeys(each for each in task_ids if each))
    found = await stores.tasks.get(ids) if ids else []
    return {task.id: task for task in found if task is not None}


def _voters(directory: _Directory, gate: Gate, event: Event, notified: frozenset[str], *, now: int) -> frozenset[str]:
    """Return one account for each person who can vote now and was not notified of this gate before."""
    who = directory.people.directory.who
    recipients: dict[str, str] = {}  # by person
    for account in directory.people.standing(gate, now).may_vote:
        recipient = directory.reachable(account, event.seq)
        if recipient is not None:
            recipients.setdefault(who(account), recipient)
    before = {who(account) for account in notified}
    return frozenset(account for person, account in recipients.items() if person not in before)


# Dispatch: from outboxes to the queue.


async def dispatch(stores: Stores, payloads: Payloads) -> int:
    """Enqueue a task for each message that is due. Returns how many."""
    boxes = {account: stored for account, stored in (await OUTBOX.all(stores)).items() if _has_work(stored.record)}
    sent = 0
    for account, stored in boxes.items():
        with suppress(StaleWrite):  # another process is dispatching this outbox, or will at the next round
            sent += await _dispatch_one(stores, payloads, account, stored)
    return sent


def _has_work(outbox: Outbox) -> bool:
    return bool(outbox.pending or outbox.sending)


async def _dispatch_one(stores: Stores, payloads: Payloads, account: str, stored: StoredRecord[Outbox]) -> int:
    preferences, outbox, version = await get_preferences(stores, account), stored.record, stored.version
    now = stores.clock.now()
    if outbox.pending and not preferences.active:
        changes = (each for each in outbox.pending if each.kind is NotificationKind.ACCOUNT)
        outbox = structs.replace(outbox, pending=tuple(changes if preferences.former(now) else ()), more=0)
    moved = dispatched(outbox, preferences, now=now)
    if moved is not None:
        outbox, deliveries = moved
        puts = [deliveries_of(account).put(each.id, each, seen=0) for each in deliveries]
        writes = [OUTBOX.put(account, outbox, seen=version), *puts]
        await stores.documents.write([quiet(write) for write in writes])
        if any(each.clears for each in deliveries):
            await _clear_old(stores, account)
        [current] = await OUTBOX.each(stores, [account])
        if current is None or current.record != outbox:
            return 0  # more has come in: the next round continues
        version = current.version
    if outbox.sending:
        await enqueue(stores, payloads, [send_task(account, order) for order in outbox.sending])
    if outbox.sending or outbox != stored.record:
        done = structs.replace(outbox, sending=())
        await stores.documents.write([quiet(OUTBOX.put(account, done, seen=version))])
    return len(outbox.sending)


async def _clear_old(stores: Stores, account: str) -> None:
    deliveries = deliveries_of(account)
    stored = [each.record for each in (await deliveries.all(stores)).values()]
    gone = oldest_beyond(each for each in stored if not each.must_arrive)
    await stores.documents.write([quiet(deliveries.remove(delivery.id)) for delivery in gone])


async def send_test(
    stores: Stores, payloads: Payloads, account: str, *, channel_id: str | None, actor: str | None
) -> list[tuple[NotificationDelivery, Task]]:
    """Enqueue a test message to one channel or to all active ones. Raises UnknownChannel, InvalidNotification, and
    TooManyRequests."""
    preferences = await get_preferences(stores, account)
    channels = preferences.active if channel_id is None else [channel_in(preferences, channel_id)]
    if not channels:
        raise InvalidNotification(f"{account} has no active channel; `ade notify channels add` adds one")
    if any(not channel.is_active for channel in channels):
        raise InvalidNotification("the channel is disabled; remove it and add it again")
    await _take(stores, f"notification_test:{actor}", _TESTS_PER_MINUTE, 60_000, times=len(channels))
    now = stores.clock.now()
    item = Notification(kind=NotificationKind.TEST, at=now, approval=os.urandom(8).hex(), actor=actor or "")
    deliveries = [delivery_to(account, channel, [item], more=0, now=now) for channel in channels]
    puts = [deliveries_of(account).put(each.id, each, seen=0) for each in deliveries]
    await stores.documents.write([quiet(put) for put in puts])
    orders = [SendOrder(each.id, each.channel, now, True) for each in deliveries]
    tasks = await enqueue(stores, payloads, [send_task(account, order) for order in orders])
    return list(zip(deliveries, tasks, strict=True))


# The delivery log.


async def list_deliveries(
    stores: Stores, account: str, *, state: DeliveryState | None = None, before: Place | None = None, limit: int = 50
) -> list[NotificationDelivery]:
    """Return the deliveries of a person, newest first, optionally in one state or `before` a place."""
    stored = [each.record for each in (await deliveries_of(account).all(stores)).values()]
    matching = [
        each for each in stored if (state is None or each.state is state) and (before is None or each.place < before)
    ]
    return sorted(matching, key=lambda each: each.place, reverse=True)[:limit]


async def find_delivery(stores: Stores, account: str, delivery_id: str) -> NotificationDelivery:
    """Return one delivery. Raises UnknownChannel."""
    stored = await deliveries_of(account).get(stores, delivery_id)
    if stored is None:
        raise UnknownChannel(f"no delivery {delivery_id[:60]!r} is stored", advice=UnknownChannel.usual_advice)
    return stored.record

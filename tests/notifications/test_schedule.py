"""Quiet hours and digests: nothing is lost, and nothing is sent in quiet hours unless it breaks through."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ade.errors import InvalidNotification
from tests.notifications.domain import (
    BreakThrough,
    Channel,
    ChannelKind,
    Notification,
    NotificationKind,
    Outbox,
    Preferences,
    RiskLevel,
    breaks_through,
    check_preferences,
    dispatched,
    is_quiet,
    local_time,
    next_digest,
    quiet_end,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
CHANNELS = tuple(
    Channel(id=f"ch_{number:016x}", kind=ChannelKind.EMAIL, target=f"{number}@example.org") for number in range(2)
)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"]
)
TIMES = st.builds(lambda minute: f"{minute // 60:02}:{minute % 60:02}", st.integers(0, 1_439))
# Days around which clocks are set forward or back somewhere, and a date line was crossed (Apia, 2011).
TURNS = [
    datetime(2026, 3, 8),
    datetime(2026, 3, 29),
    datetime(2026, 10, 25),
    datetime(2026, 11, 1),
    datetime(2011, 12, 30),
]
MOMENTS = st.builds(
    lambda day, minutes: round((day.replace(tzinfo=UTC) + timedelta(minutes=minutes)).timestamp() * 1000),
    st.sampled_from(TURNS),
    st.integers(-2_880, 2_880),
)


@st.composite
def preferences(draw: st.DrawFn) -> Preferences:
    start, end = draw(TIMES), draw(TIMES)
    is_quiet_at_all = start != end and draw(st.booleans())
    mode = draw(st.sampled_from(["none", "every", "at"]))
    found = Preferences(
        account="rita",
        channels=CHANNELS,
        time_zone=draw(ZONES),
        quiet_from=start if is_quiet_at_all else "",
        quiet_to=end if is_quiet_at_all else "",
        break_through=draw(st.sampled_from(BreakThrough)),
        digest_every_s=draw(st.sampled_from([60, 900, 14_400, 86_400])) if mode == "every" else 0,
        digest_at=tuple(draw(st.lists(TIMES, min_size=1, max_size=3))) if mode == "at" else (),
    )
    check_preferences(found)
    return found


@st.composite
def notifications(draw: st.DrawFn) -> Notification:
    at = draw(MOMENTS)
    return Notification(
        kind=NotificationKind.REVIEW,
        at=at,
        seq=draw(st.integers(1, 10_000)),
        approval="task.1",
        level=draw(st.sampled_from(RiskLevel)),
        due_at=at + draw(st.sampled_from([HOUR, DAY, 7 * DAY])),
        is_urgent=draw(st.booleans()),
    )


@given(preferences(), st.lists(notifications(), min_size=1, max_size=12, unique_by=lambda each: each.key), st.data())
def test_nothing_is_lost_or_sent_twice_and_quiet_hours_are_quiet(
    wishes: Preferences, items: list[Notification], data: st.DataObject
) -> None:
    arrivals = sorted(items, key=lambda each: each.at)
    outbox, now = Outbox(account="rita"), arrivals[0].at
    sent: dict[str, list[str]] = {channel.id: [] for channel in CHANNELS}
    last = arrivals[-1].at
    while now <= last + 3 * DAY:
        new = [each for each in arrivals if each.at <= now]
        arrivals = arrivals[len(new) :]
        outbox = outbox.with_pending(new) if new else outbox
        moved = dispatched(outbox, wishes, now=now)
        if moved is not None:
            outbox, deliveries = moved
            for delivery in deliveries:
                if is_quiet(wishes, now):
                    assert all(breaks_through(wishes, each) for each in delivery.notifications)
                sent[delivery.channel] += [each.key for each in delivery.notifications]
        pause = data.draw(st.sampled_from([7 * MINUTE, 2 * HOUR, 26 * HOUR])) if arrivals or outbox.pending else 4 * DAY
        now += pause
    while outbox.pending:  # the worker was away at every good moment so far: it comes back at the next one
        now = max(quiet_end(wishes, now), now)
        moved = dispatched(outbox, wishes, now=now)
        if moved is not None:
            outbox, deliveries = moved
            for delivery in deliveries:
                sent[delivery.channel] += [each.key for each in delivery.notifications]
        now += HOUR
        assert now < last + 60 * DAY, "a notification was never sent"
    for keys in sent.values():
        assert sorted(keys) == sorted(each.key for each in items)


@given(preferences(), MOMENTS)
def test_quiet_hours_end_at_the_first_moment_that_is_not_quiet(wishes: Preferences, at: int) -> None:
    end = quiet_end(wishes, at)
    assert not is_quiet(wishes, end)
    assert at <= end <= at + 26 * HOUR  # a day has 25 hours when clocks are set back, and 48 at the date line
    for moment in range(at, end, 13 * MINUTE):
        assert is_quiet(wishes, moment)


@given(preferences(), MOMENTS)
def test_the_next_digest_is_later_and_at_a_time_of_the_digest(wishes: Preferences, at: int) -> None:
    if not wishes.has_digest:
        return
    slot = next_digest(wishes, at)
    assert at < slot <= at + max(wishes.digest_every_s * 1000, 50 * HOUR)
    if wishes.digest_every_s:
        assert slot % (wishes.digest_every_s * 1000) == 0


def moment(text: str, wishes: Preferences) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=local_time(wishes, 0).tzinfo)
    return round(local.timestamp() * 1000)


@pytest.mark.parametrize(
    ("at", "hours"),
    [
        ("2026-01-10T23:00", 8),
        ("2026-03-28T23:00", 7),  # clocks are set forward that night
        ("2026-10-24T23:00", 9),  # and back
    ],
)
def test_a_night_has_7_to_9_hours_in_berlin(at: str, hours: int) -> None:
    wishes = Preferences(account="rita", time_zone="Europe/Berlin", quiet_from="22:00", quiet_to="07:00")
    now = moment(at, wishes)
    assert quiet_end(wishes, now) == now + hours * HOUR


def test_quiet_hours_include_their_start_and_not_their_end() -> None:
    wishes = Preferences(account="rita", quiet_from="12:00", quiet_to="13:00")
    assert [
        is_quiet(wishes, moment(f"2026-01-10T{text}", wishes)) for text in ("11:59", "12:00", "12:59", "13:00")
    ] == [
        False,
        True,
        True,
        False,
    ]


def test_a_request_that_would_expire_before_the_digest_does_not_wait_for_it() -> None:
    wishes = Preferences(account="rita", channels=CHANNELS, digest_at=("09:00",))
    now = moment("2026-01-10T10:00", wishes)
    item = Notification(kind=NotificationKind.REVIEW, at=now, seq=1, due_at=now + HOUR)
    patient = structs.replace(item, seq=2, due_at=now + 2 * DAY)
    moved = dispatched(Outbox(account="rita", pending=(item, patient)), wishes, now=now)
    assert moved is not None
    assert {each.key for delivery in moved[1] for each in delivery.notifications} == {item.key}
    assert moved[0].pending == (patient,)


@pytest.mark.parametrize(
    ("level", "is_urgent", "setting", "breaks"),
    [
        (RiskLevel.CRITICAL, False, BreakThrough.CRITICAL, True),
        (RiskLevel.HIGH, False, BreakThrough.CRITICAL, False),
        (RiskLevel.HIGH, False, BreakThrough.HIGH, True),
        (RiskLevel.LOW, True, BreakThrough.CRITICAL, True),
        (RiskLevel.CRITICAL, True, BreakThrough.NEVER, False),
    ],
)
def test_what_breaks_through_is_chosen_by_the_person(
    level: RiskLevel, is_urgent: bool, setting: BreakThrough, breaks: bool
) -> None:
    item = Notification(kind=NotificationKind.REVIEW, at=0, level=level, is_urgent=is_urgent)
    assert breaks_through(Preferences(account="rita", break_through=setting), item) is breaks


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../../etc/passwd"},
        {"quiet_from": "22:00"},
        {"quiet_from": "22:00", "quiet_to": "22:00"},
        {"quiet_from": "25:00", "quiet_to": "07:00"},
        {"quiet_from": "9:00", "quiet_to": "10:00"},
        {"digest_every_s": 10},
        {"digest_every_s": 3_600, "digest_at": ("09:00",)},
        {"digest_at": ("noon",)},
        {"digest_at": ("09:00",) * 25},
    ],
)
def test_preferences_that_cannot_be_followed_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidNotification):
        check_preferences(structs.replace(Preferences(account="rita"), **wrong))

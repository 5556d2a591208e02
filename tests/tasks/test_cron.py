"""Cron lines in time zones: the hour that is missing in spring, the hour that comes twice in autumn, and the rest."""

from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.errors import AdeError, InvalidSchedule
from ade.tasks.cron import fired, firing_key, next_fire_ms, plan
from tests.domain import Schedule
from tests.tasks.factories import NOW, TASK_ID

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = "UTC") -> int:
    """A moment written as wall time in a zone; a trailing * is the second pass of the double hour."""
    moment = datetime.fromisoformat(text.rstrip("*")).replace(tzinfo=ZoneInfo(zone), fold=int(text.endswith("*")))
    return int(moment.timestamp() * 1000)


def firings(cron: str, zone: str, after: str, number: int) -> list[str]:
    """The next firings in UTC, as people read them."""
    moment, found = ms(after, zone), []
    for _ in range(number):
        moment = next_fire_ms(cron, zone, moment)
        found.append(datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M"))
    return found


def nightly(**fields: object) -> Schedule:
    known: dict[str, object] = {"name": "nightly", "cron": "0 3 * * *", "task_name": "clean_up"}
    return Schedule(**(known | fields))  # type: ignore[arg-type]  # any field of a schedule, by its name


# --- daylight saving time in Berlin: 02:00 to 03:00 is missing on 29 March 2026 and comes twice on 25 October ---


def test_a_daily_time_that_is_missing_in_spring_fires_once_when_the_gap_ends() -> None:
    assert firings("30 2 * * *", BERLIN, "2026-03-28 02:00", 3) == [
        "2026-03-28 01:30",
        "2026-03-29 01:00",  # 03:00 summer time, right after the gap
        "2026-03-30 00:30",
    ]


def test_a_daily_time_that_comes_twice_in_autumn_fires_once() -> None:
    assert firings("30 2 * * *", BERLIN, "2026-10-24 02:00", 3) == [
        "2026-10-24 00:30",
        "2026-10-25 00:30",  # the first pass
        "2026-10-26 01:30",
    ]


def test_a_line_that_fires_all_the_time_keeps_its_pace_through_spring_and_autumn() -> None:
    half_hours = "*/30 * * * *"

    assert firings(half_hours, BERLIN, "2026-03-29 01:15", 3) == [
        "2026-03-29 00:30",
        "2026-03-29 01:00",
        "2026-03-29 01:30",
    ]
    assert firings(half_hours, BERLIN, "2026-10-25 02:15", 4) == [
        "2026-10-25 00:30",
        "2026-10-25 01:00",
        "2026-10-25 01:30",
        "2026-10-25 02:00",
    ]


def test_during_the_second_pass_nothing_of_the_first_is_fired_again() -> None:
    """A moment in the past would be due at once, again and again until the hour is over."""
    assert firings("0,30 2 * * *", BERLIN, "2026-10-25 02:10*", 1) == ["2026-10-26 01:00"]


# --- the calendar ---


def test_leap_day_waits_for_a_leap_year_and_skips_2100() -> None:
    assert firings("0 12 29 2 *", "UTC", "2025-01-01 00:00", 2) == ["2028-02-29 12:00", "2032-02-29 12:00"]
    assert firings("0 12 29 2 *", "UTC", "2096-03-01 00:00", 1) == ["2104-02-29 12:00"]


def test_the_31st_skips_short_months_and_the_last_day_does_not() -> None:
    assert firings("0 0 31 * *", "UTC", "2026-01-01 00:00", 3) == [
        "2026-01-31 00:00",
        "2026-03-31 00:00",
        "2026-05-31 00:00",
    ]
    assert firings("0 0 L * *", "UTC", "2028-01-01 00:00", 3) == [
        "2028-01-31 00:00",
        "2028-02-29 00:00",
        "2028-03-31 00:00",
    ]


def test_a_firing_comes_strictly_after_the_moment_asked_about() -> None:
    assert firings("0 12 * * *", "UTC", "2026-05-01 12:00", 1) == ["2026-05-02 12:00"]
    assert next_fire_ms("0 12 * * *", "UTC", ms("2026-05-01 12:00") - 1) == ms("2026-05-01 12:00")


@pytest.mark.parametrize(
    ("zone", "fires_at"),
    [
        ("UTC", "2026-07-01 09:00"),
        ("Asia/Tokyo", "2026-07-01 00:00"),
        ("Asia/Kathmandu", "2026-07-01 03:15"),
        ("America/New_York", "2026-07-01 13:00"),
        (BERLIN, "2026-07-01 07:00"),
    ],
)
def test_nine_in_the_morning_is_nine_where_the_schedule_lives(zone: str, fires_at: str) -> None:
    assert firings("0 9 * * *", zone, "2026-07-01 00:00", 1) == [fires_at]


# --- what is refused ---


@pytest.mark.parametrize("cron", ["* * 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */30 2 1#5"])
def test_a_line_that_never_fires_is_refused(cron: str) -> None:
    with pytest.raises(InvalidSchedule, match="never fires"):
        next_fire_ms(cron, "UTC", NOW)


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "a * * * *"],
)
def test_a_line_that_is_not_cron_is_refused_with_the_form_it_should_have(cron: str) -> None:
    with pytest.raises(InvalidSchedule, match="use five fields: minute hour day month weekday"):
        next_fire_ms(cron, "UTC", NOW)


@pytest.mark.parametrize("zone", ["", "Berlin", "Europe", "../etc/passwd", "/etc/localtime", "x" * 5000, "a\x00b"])
def test_an_unknown_time_zone_is_refused_with_an_example(zone: str) -> None:
    with pytest.raises(InvalidSchedule, match="use an IANA name such as Europe/Berlin"):
        next_fire_ms("* * * * *", zone, NOW)


def test_no_input_is_so_long_that_it_is_not_refused_shortly() -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        next_fire_ms("9" * 100_000 + " * * * *", "UTC", NOW)

    assert len(refusal.value.detail) < 500


@pytest.mark.parametrize(
    "fields",
    [{"task_name": "1st"}, {"queue": "no spaces"}, {"priority": 11}, {"name": ""}, {"name": "n" * 201},
     {"name": "a\nb"}, {"cron": "never"}, {"timezone": "Mars"}],
)  # fmt: skip
def test_a_schedule_is_checked_before_it_is_stored(fields: dict[str, object]) -> None:
    with pytest.raises(AdeError) as refusal:
        plan(nightly(**fields), now=NOW)

    assert refusal.value.code in {"invalid_task", "invalid_schedule"}


# --- planning and firing ---


def test_a_planned_schedule_knows_its_next_firing() -> None:
    planned = plan(nightly(timezone=BERLIN), now=ms("2026-07-01 12:00"))

    assert (planned.next_at, planned.updated_at) == (ms("2026-07-02 01:00"), ms("2026-07-01 12:00"))


def test_a_firing_on_time_leads_to_the_next_one() -> None:
    due = nightly(next_at=ms("2026-07-01 03:00"))

    after = fired(due, TASK_ID, now=ms("2026-07-01 03:00") + 40)

    assert (after.last_at, after.next_at) == (due.next_at, ms("2026-07-02 03:00"))
    assert (after.last_task_id, after.updated_at) == (TASK_ID, ms("2026-07-01 03:00") + 40)


def test_what_was_missed_is_made_up_for_once() -> None:
    """Four nights without a process: one firing, then the next night."""
    due = nightly(next_at=ms("2026-07-01 03:00"))

    after = fired(due, TASK_ID, now=ms("2026-07-05 08:00"))

    assert (after.last_at, after.next_at) == (ms("2026-07-01 03:00"), ms("2026-07-06 03:00"))


def test_a_clock_that_went_back_does_not_fire_the_same_moment_again() -> None:
    due = nightly(next_at=ms("2026-07-01 03:00"))

    assert fired(due, TASK_ID, now=ms("2026-06-30 22:00")).next_at == ms("2026-07-02 03:00")


def test_each_firing_has_one_key_however_many_processes_see_it_due() -> None:
    first = nightly(next_at=ms("2026-07-01 03:00"))
    second = fired(first, TASK_ID, now=first.next_at)

    assert firing_key(first) == firing_key(nightly(next_at=first.next_at, paused=True))
    assert len({firing_key(first), firing_key(second), firing_key(nightly(name="other", next_at=first.next_at))}) == 3


# --- any line, any zone, any moment ---


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.lists(number, min_size=2, max_size=3).map(lambda items: ",".join(map(str, items))),
        st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
    )


lines = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join)
zones = st.sampled_from(
    ["UTC", BERLIN, "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"]
)
near_a_shift = st.builds(
    lambda shift, minutes: shift + minutes * 60_000,
    st.sampled_from([ms("2026-03-29 01:00"), ms("2026-10-25 01:00"), ms("2026-11-01 05:00"), ms("2011-12-30 10:00")]),
    st.integers(-180, 180),
)
moments = st.one_of(st.integers(ms("2000-01-01"), ms("2090-01-01")), near_a_shift)


@given(cron=lines, zone=zones, after=moments, share=st.floats(0, 1, exclude_max=True))
def test_the_next_firing_lies_ahead_on_a_full_minute_and_is_the_first(
    cron: str, zone: str, after: int, share: float
) -> None:
    try:
        found = next_fire_ms(cron, zone, after)
    except InvalidSchedule:
        return

    assert found > after
    assert found % 60_000 == 0
    between = after + int((found - after) * share)
    assert next_fire_ms(cron, zone, between) == found


@given(cron=st.text(alphabet="0123456789*/,-#L MONJAN@\u00b2", max_size=30), zone=st.text(max_size=12))
def test_any_text_is_a_schedule_or_refused_as_one(cron: str, zone: str) -> None:
    for where in ("UTC", zone):
        with suppress(InvalidSchedule):
            assert next_fire_ms(cron, where, NOW) > NOW

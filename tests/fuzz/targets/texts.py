"""Texts with a form of their own, as people write them: times, rates, schedules, names, URLs."""

import math
import unicodedata
from urllib.parse import urlsplit

from ade.accounts.model import InvalidAccount, normal_id, normal_roles
from ade.cli.parameters import moment_ms, seconds_of
from ade.common.gcra import read_rate
from ade.common.http.pool import origin_of
from ade.common.text import read_duration, without_password, written_duration
from ade.common.trace_context import check_trace
from ade.errors import (
    InvalidArguments,
    InvalidFilter,
    InvalidInbox,
    InvalidLock,
    InvalidSchedule,
    InvalidTask,
    InvalidUrl,
)
from ade.events.filters import compile_filter, parse_filter
from ade.events.sse import parse_seq, start_after
from ade.locks.model import lock_name
from ade.server.rate_limits import read_rates
from ade.server.wire_format import read_time, write_time
from ade.tasks.admission import LAST_MOMENT, check_name, check_queue_name
from ade.tasks.commands.options import parse_pairs
from ade.tasks.cron import next_fire_ms
from ade.tasks.identifiers import check_inbox_id, is_task_id
from ade.tasks.model import are_met, as_text, capabilities_of
from ade.tasks.option_values import parse_rate
from tests.domain import Event, parse_url
from tests.fuzz.table import let, parts_of, passes, target, text_of

NOW = 1_790_000_000_000
TASK_ID = "0190a6c4-7c1e-7d9b-8f2a-0123456789ab"


@target(
    "server.wire_format",
    "common.text",
    "common.gcra",
    "server.rate_limits",
    "tasks.option_values",
    "cli.parameters",
    seeds=["2026-01-31T12:00:00Z", "2026-01-31t13:00:00.250+01:00", "1h30m", "90s", "100/m", "5 / 30 s", "2d", "1.5h"],
    words=["2026-", "T", "Z", "+23:59", "0001-01-01", "9999-12-31", "ms", "h", "d", "w", "/", "e308", "inf"],
)
def times_and_rates(data: bytes) -> None:
    text = text_of(data)
    at = let(lambda: read_time(text), ValueError)
    if at is not None:
        assert 0 <= at <= LAST_MOMENT + 999
        assert read_time(write_time(at)) == at
    span = read_duration(text)
    assert span is None or read_duration(written_duration(span)) == span or span == 0
    rate = read_rate(text)
    assert rate == let(lambda: parse_rate(text), InvalidTask)
    assert rate is None or (text.isascii() and rate[0] > 0 and rate[1] > 0)
    let(lambda: read_rates({"read": text}), ValueError)
    seconds = seconds_of(text)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)
    ago = let(lambda: moment_ms(text, now=NOW), InvalidFilter)
    assert ago is None or (ago >= 0 if seconds is None else 0 <= ago <= NOW)


@target(
    "tasks.cron",
    seeds=["*/5 9-17 * * 1-5\nEurope/Berlin", "0 0 31 2 *\nUTC", "0 0 L * *\nAsia/Tokyo", "0 0 29 2 MON#5\n../UTC"],
    words=["*", "*/", "L", "W", "#", "-", ",", "MON", "JAN", "Europe/", "UTC", "America/New_York", "0 0 * * *"],
)
def schedules(data: bytes) -> None:
    cron, zone = map(text_of, parts_of(data, 2))
    for timezone in dict.fromkeys((zone, "Europe/Berlin")):
        first = let(lambda: next_fire_ms(cron, timezone, NOW), InvalidSchedule)  # noqa: B023
        if first is not None:
            assert first > NOW
            assert next_fire_ms(cron, timezone, first - 1) == first


@target(
    "events.filters",
    "events.sse",
    seeds=["type=task.*,lock.granted\nqueue=mail\n12", f"task={TASK_ID}\ninbox=conv-1\n0", "type=*\nname=a b\n-1"],
    words=["type=", "task=", "queue=", "name=", "inbox=", ".*", ",", TASK_ID],
)
def event_filters(data: bytes) -> None:
    *lines, seq = text_of(data).split("\n")
    fields = [(name, value) for name, _, value in (line.partition("=") for line in lines)]
    found = let(lambda: parse_filter(fields), InvalidFilter)
    if found is not None:
        event = Event(type="task.failed", at=0, task_id=TASK_ID, actor=None, payload={"queue": "mail"}, seq=1)
        compile_filter(found)(event)
    place = let(lambda: parse_seq(seq, "after"), InvalidFilter)
    assert place is None or 0 <= place < 1 << 63
    let(lambda: start_after(seq, None), InvalidFilter)


@target(
    "accounts.model",
    "locks.model",
    "tasks.identifiers",
    seeds=["ann", "Ännchen", "db:orders", TASK_ID, "mail.fast", "gpu", "ﬁx", "conv-1", "ade:deliver"],
    words=[":", "{", "}", "/", "..", "\u200b", "İ", "ß", "ǰ", "\u0345"],
)
def names(data: bytes) -> None:
    """What is accepted stays as it is, and can be part of a key, a line and an address."""
    text = text_of(data)
    account = let(lambda: normal_id(text), InvalidAccount)
    if account is not None:
        assert normal_id(account) == account
        assert account.isprintable()
        assert not set(account) & set("{}:/ ")
        assert unicodedata.is_normalized("NFKC", account)
    roles = let(lambda: normal_roles(text.split(",")), InvalidAccount)
    assert roles is None or normal_roles(roles) == roles
    can = let(lambda: capabilities_of(text.split(","), "needs", InvalidTask), InvalidTask)
    assert can is None or are_met(as_text(can), can)
    taken = [
        let(lambda: lock_name("resource", text), InvalidLock) is not None,
        passes(lambda: check_inbox_id(text), InvalidInbox),
        passes(lambda: check_queue_name(text), InvalidTask),
        passes(lambda: check_name(text), InvalidTask),
        let(lambda: check_trace(text), InvalidTask) is not None,
    ]
    assert not any(taken) or (text.isprintable() and text.encode())
    assert not is_task_id(text) or len(text) == 36


@target(
    "stores.redis.client.options",
    "common.http.pool",
    "common.text",
    seeds=[
        "redis://user:secret99@host:6379/0",
        "rediss://:secret99@[::1]/1?ca=/a.pem",
        "redis+sentinel://h1,h2:26379/service/0?sentinel_password=secret99",
        "redis+cluster://h1:1,h2:2?tls=1&insecure=1",
        "https://ade.example.org/prefix",
        "http://user:secret99@host:80/",
    ],
    words=[
        "redis://",
        "redis+sentinel://",
        "redis+cluster://",
        "https://",
        "@",
        ":",
        "[",
        "]",
        "/",
        "?tls=1",
        "#",
        "%",
    ],
)
def addresses_of_servers(data: bytes) -> None:
    """Nothing that is told of a URL has a password in it."""
    text = text_of(data)
    place = let(lambda: parse_url(text), InvalidUrl)
    if place is not None:
        assert all(host and 0 < port < 65_536 for host, port in place.addresses)
        password = place.login.password
        assert not password or len(password) < 8 or password not in str(place) + repr(place)
    let(lambda: origin_of(text), InvalidUrl)
    password = let(lambda: urlsplit(text).password, ValueError)
    if password and len(password) >= 8 and text.count(password) == 1 and text.isprintable():
        assert password not in without_password(text)


@target(
    "tasks.commands.options",
    seeds=["width=400", 'tags:=["a", 1.5, null]', "zip=00501", "a:=1e400", "=x"],
    words=["=", ":=", "{", "[", '"', "\\ud800", "true", "1e999", "width", "zip"],
)
def command_arguments(data: bytes) -> None:
    schema = {"properties": {"zip": {"type": "string"}, "width": {"type": "integer"}}}
    found = let(lambda: parse_pairs(text_of(data).split("\n"), schema), InvalidArguments)
    assert found is None or all(isinstance(name, str) for name in found)

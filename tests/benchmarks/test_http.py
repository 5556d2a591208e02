"""How HTTP is measured: what is said about speed and about lost events must be right before any figure can be."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import http_processes
from benchmarks.bars import bars_of
from benchmarks.contestants import ENTRIES, Role, Store, Subject, load, load_http
from benchmarks.contract import Options, Site
from benchmarks.cores import other_cores, server_cores
from benchmarks.http_connections import Connection, Load
from benchmarks.http_measures import HTTP_MEASURES
from benchmarks.http_requests import BadAnswer, answer_size, body_of, create, get, list_page, status_of
from benchmarks.http_streams import Account, account
from benchmarks.http_subscribers import Subscriber
from benchmarks.judging import judge
from benchmarks.machine import Speed
from benchmarks.outcomes import Outcome, Outcomes
from benchmarks.plan import FULL, QUICK, Plan, interleaved
from benchmarks.report import FIGURE_TITLES, SIZE_TITLES, Part, Run, write
from benchmarks.server import serving

STEADY = Speed(cpu_ms=20.0, sync_ms=0.2)
SITE = Site(8411, "secret", ["a", "b"])


def test_every_body_is_another_one_of_the_same_length() -> None:
    requests = [create(SITE, 200)(number) for number in (0, 7, 99_999_999)]

    assert len({len(request) for request in requests}) == 1
    assert len(set(requests)) == 3
    for request in requests:
        assert answer_size(request) == len(request), "it says its own length"
        assert b"\r\nauthorization: Bearer secret\r\n" in request
    told = json.loads(body_of(requests[1]))
    assert told == {"name": "noop", "args": {"payload": "00000007".ljust(200, "x")}}


def test_tasks_are_asked_for_in_turn_and_pages_always_alike() -> None:
    asked = [get(SITE, 200)(number).split(b" ")[1] for number in range(3)]

    assert asked == [b"/api/v1/tasks/a", b"/api/v1/tasks/b", b"/api/v1/tasks/a"]
    assert list_page(SITE, 200)(5).startswith(b"GET /api/v1/tasks?limit=50 HTTP/1.1\r\n")


def test_an_answer_is_whole_when_its_length_says_so() -> None:
    answer = b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\nx: y\r\n\r\nhello"

    assert answer_size(answer[:30]) is None
    assert answer_size(answer[:-2]) == len(answer)
    assert (status_of(answer), body_of(answer)) == (201, b"hello")
    with pytest.raises(BadAnswer, match="without a length"):
        answer_size(b"HTTP/1.1 200 OK\r\n\r\n")


@contextmanager
def small_server(*statuses: int) -> Iterator[Site]:
    """Answers one connection, request by request, with these statuses in turn; the last one again and again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            left = list(statuses)
            connection, _ = listening.accept()
            with connection:
                while connection.recv(65_536):
                    status = left.pop(0) if len(left) > 1 else left[0]
                    connection.sendall(b"HTTP/1.1 %d Told\r\ncontent-length: 2\r\n\r\n{}" % status)

        thread = threading.Thread(target=answer)
        thread.start()
        yield Site(listening.getsockname()[1], "", ["a"])
        thread.join(10)


@contextmanager
def load_on(site: Site, expected: int) -> Iterator[Load]:
    connection = Connection(site)
    try:
        yield Load([connection], get(site, 200), expected)
    finally:
        connection.close()


def test_a_wait_counts_from_the_planned_moment_though_the_connection_was_busy() -> None:
    with small_server(200) as site, load_on(site, 200) as load:
        began = time.perf_counter()
        waits = load.pace([0.0] * 20)
        took_s = time.perf_counter() - began

    assert len(waits) == load.sent == 20
    assert waits == sorted(waits), "all were due at once, and each waited for those before"
    assert sum(waits) > 3 * took_s, "counted from when it was sent, all waits together would be what it took"


def test_who_is_answered_asks_again_until_the_time_is_over() -> None:
    with small_server(200) as site, load_on(site, 200) as load:
        rate = load.saturate(0.05)

    assert load.sent == pytest.approx(rate * 0.05 + 1, abs=0.5), "all but the last were answered in time"


def test_an_answer_that_refuses_is_no_answer() -> None:
    with small_server(201, 201, 429) as site, load_on(site, 201) as load, pytest.raises(BadAnswer, match="429"):
        load.saturate(5)


def test_a_load_that_cannot_connect_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with (
        http_processes.requests("create", Site(port), Options(folder="")) as load,
        pytest.raises(RuntimeError, match="refused"),
    ):
        load.hear()


def stream_of(seqs: Sequence[int]) -> bytes:
    """As the server sends it: a head, chunks with lengths between them, heartbeats among the events."""
    blocks = [
        b'id: %d\nevent: task.created\ndata: {"seq":%d,"type":"task.created","at":"2026-11-16T10:00:00.250Z"}\n\n'
        % (seq, seq)
        for seq in seqs
    ]
    chunks = [b"retry: 2000\n\n", b": heartbeat\n\nid: 3\n\n", b"".join(blocks[:2]), *blocks[2:], b": \n\n"]
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)


SEQS = [4, 5, 9, 10, 11, 40]
STREAM = stream_of(SEQS)


@given(st.lists(st.integers(min_value=12, max_value=len(STREAM) - 1), max_size=12))
def test_however_a_stream_is_cut_every_event_is_counted_once(cuts: list[int]) -> None:
    near, far = socket.socketpair()
    with near, far:
        subscriber = Subscriber(near, bytearray(1 << 16), looks=True)
        edges = sorted({0, *cuts, len(STREAM)})
        for begin, end in pairwise(edges):
            far.sendall(STREAM[begin:end])
            subscriber.receive()

    places = {seq: place for place, seq in enumerate(SEQS)}
    assert account(subscriber.received.numbers, places, 40) == Account(len(SEQS), 0, 0)
    assert [moment for moment, _ in subscriber.delays] == [1_794_823_200.25] * len(SEQS)


def test_a_stream_that_is_refused_or_ends_is_noticed() -> None:
    near, far = socket.socketpair()
    with near, far:
        subscriber = Subscriber(near, bytearray(4096), looks=False)
        far.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        with pytest.raises(BadAnswer, match="503"):
            subscriber.receive()
        far.close()
        with pytest.raises(BadAnswer, match="ended a stream"):
            subscriber.receive()


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(10, 12, 3), (20, 21, 2)], Account(5, 0, 0)),
        ([(10, 12, 2), (20, 21, 2)], Account(4, 1, 0)),  # one is missing inside
        ([(10, 11, 2), (20, 21, 2)], Account(4, 1, 0)),  # or between
        ([(11, 12, 2), (20, 21, 2)], Account(4, 1, 0)),  # or at the beginning
        ([(10, 12, 3)], Account(3, 2, 0)),  # or at the end
        ([(10, 12, 3), (12, 21, 3)], Account(6, 0, 1)),  # one came twice
        ([(10, 12, 4), (20, 21, 2)], Account(6, 0, 1)),
        ([], Account(0, 5, 0)),
    ],
)
def test_what_was_given_is_compared_with_the_log(parts: list[tuple[int, int, int]], expected: Account) -> None:
    places = {seq: place for place, seq in enumerate((10, 11, 12, 20, 21, 30))}

    assert account([number for part in parts for number in part], places, until=21) == expected


def test_the_server_has_a_core_to_itself_where_there_are_two() -> None:
    assert len(server_cores()) == 1
    if len(server_cores() | other_cores()) > 1:
        assert server_cores().isdisjoint(other_cores())


@pytest.mark.parametrize("plan", [*FULL, *QUICK], ids=lambda plan: f"{plan.store}-{plan.rounds}")
def test_http_is_measured_on_servers_and_events_on_ade_alone(plan: Plan) -> None:
    takers: dict[str, set[str]] = {}
    for job in interleaved(plan):
        assert job.step.name.startswith("http_") == (ENTRIES[job.contestant].subject is Subject.HTTP)
        takers.setdefault(job.step.name, set()).add(job.contestant)

    own = {name for name in plan.contestants if name.endswith("_http")}
    assert takers["http_events"] == own
    assert all(ENTRIES[name].role is Role.OWN for name in own)
    for step in ("http_create", "http_get", "http_list"):
        assert own <= takers[step]


def test_a_queue_is_not_taken_for_a_server() -> None:
    with pytest.raises(ValueError, match="about tasks"):
        load_http("ade")
    with pytest.raises(ValueError, match="about http"):
        load("bare")


@pytest.mark.parametrize("name", ["ade_http", "bare", "bare_storing"])
def test_a_server_tells_what_it_is(name: str, tmp_path: Path) -> None:
    told = load_http(name).describe(Options(folder=str(tmp_path)).place)

    assert "uvicorn" in told["version"]
    assert told["stored"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in ("ade_http", "ade_redis_http", "bare") for kind in ("create", "get", "list")),
        *((name, "create") for name in ("bare_storing", "bare_redis_storing")),
    ],
)
def test_a_server_is_asked_as_fast_as_it_answers_and_at_half_that_rate(name: str, kind: str, tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        server = url if ENTRIES[name].store is Store.REDIS else ""
        options = Options(folder=str(tmp_path), server=server, seconds=0.3, stock=60)
        figures = HTTP_MEASURES[f"http_{kind}"](name, options)

    assert set(figures) <= {*FIGURE_TITLES, *SIZE_TITLES}
    assert figures["requests"] > 16
    assert 0 < figures["half_p50_ms"] <= figures["half_p99_ms"]
    assert ("store_us" in figures) == bool(server)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ade_http", "ade_redis_http"])
def test_all_subscribers_get_all_events(name: str, tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        server = url if ENTRIES[name].store is Store.REDIS else ""
        options = Options(folder=str(tmp_path), server=server, seconds=0.3, rate=200, subscribers=12, settle=0.0)
        figures = HTTP_MEASURES["http_events"](name, options)

    assert set(figures) <= {*FIGURE_TITLES, *SIZE_TITLES}
    assert (figures["lost"], figures["duplicates"], figures["subscribers"]) == (0, 0, 12)
    assert figures["deliveries_per_second"] > 0
    assert figures["delay_p99_ms"] > 0


def outcome(name: str, step: str, **figures: float) -> Outcome:
    return Outcome(round=0, step=step, contestant=name, before=STEADY, after=STEADY, figures=figures)


def test_the_page_judges_http_and_keeps_its_configuration_apart(tmp_path: Path) -> None:
    [plan] = (plan for plan in FULL if plan.store is Store.SQLITE)
    outcomes = Outcomes(
        [
            outcome("ade_http", "http_create", requests_per_second=1600, half_p99_ms=30.0, load_percent=20.0),
            outcome("bare", "http_create", requests_per_second=6400),
            outcome("bare_storing", "http_create", requests_per_second=2000),
            outcome("fastapi", "http_create", requests_per_second=3000),
            outcome("ade_http", "http_events", lost=0, duplicates=1, subscribers=1000),
        ]
    )
    told = {name: {"version": f"{name} 1.0"} for name in plan.contestants}
    page = write(Run([Part(plan, outcomes, told)], machine={}, date="2026-11-16", seconds=1), tmp_path).read_text()

    verdicts = {verdict.title: verdict for verdict in (judge(bar, outcomes) for bar in bars_of(plan))}
    assert verdicts["HTTP create, requests on one core"].met == "met"
    bare = verdicts["HTTP create, against the bare server that does nothing"]
    assert (bare.measured.split()[0], bare.bar, bare.met) == ("0.25x", "≥ 0.5x", "not met")
    assert verdicts["HTTP create, against the bare server that stores by ADE's queue"].measured.startswith("0.80x")
    assert verdicts["HTTP create, against FastAPI that does nothing"].measured.startswith("0.53x")
    assert verdicts["HTTP create, p99 at half load"].met == "not met"
    assert [verdicts[f"HTTP events, {what}"].met for what in ("lost", "duplicates")] == ["met", "not met"]
    others, servers = page.split("### SQLite: configuration of the HTTP servers")
    assert "fastapi 1.0" not in others
    assert "huey 1.0" not in servers
    assert "sqlite-http_create-requests_per_second.svg" in page
    assert "sqlite-http_create-load_percent" not in page

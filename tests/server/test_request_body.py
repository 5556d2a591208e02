"""Requests that are too much, or that two readers could read in two ways."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.server.request_body import (
    RequestLimits,
    check_headers,
    check_length,
    check_media_type,
    check_parameters,
    check_size,
    check_target,
    choose_media_type,
    depth,
    read_json,
)
from tests.depth import examples
from tests.domain import RequestRefused
from tests.fuzz.table import passes
from tests.server.refusals import refused

SMALL = RequestLimits(body_bytes=100, json_depth=5, target_chars=50, parameters=3, parameter_chars=10, headers=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('a"[\\{é'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"]', max_size=3), inner, max_size=3),
    max_leaves=8,
)


def nested(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(nested, value), default=0)
        case dict():
            return 1 + max(map(nested, value.values()), default=0)
    return 0


@settings(max_examples=examples(60))
@given(values)
def test_every_plain_value_is_read_as_it_is(value: object) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()

    assert read_json(body) == value
    assert depth(body) == nested(value)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{} {}", b"nope", b"\xff", b"\xef\xbb\xbf{}", b'{"a":1,"a":2}', b"NaN", b"[Infinity]", b"-Infinity",
        b"1e400", b"[-1e999]", b'"\\ud800"', b'{"\\udfff":1}', b'["\\u0000"]', b'"\x00"', b'"a\nb"', b"9" * 401,
        b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 70 + b"1" + b"}" * 70, b"[" * 100_000, b"[1,]", b"{'a':1}", b"01",
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_json(body)

    assert caught.value.problem.status == 400
    assert caught.value.problem.code == "invalid_json"


def test_brackets_in_texts_and_whole_pairs_are_no_harm() -> None:
    assert read_json(b'"' + b"[" * 1_000 + b'"') == "[" * 1_000
    assert read_json(b'["\\"[[[[[[[[", "\\ud83d\\ude00", "\\u00e9"]', SMALL) == ['"[[[[[[[[', "\U0001f600", "é"]
    assert read_json(b"[[[[[1]]]]]", SMALL) == [[[[[1]]]]]


@settings(max_examples=examples(100))
@given(st.binary(max_size=60) | st.text('{}[]"\\:,19eE.-NaInf u0d8', max_size=60).map(str.encode))
def test_no_body_is_worse_than_refused(body: bytes) -> None:
    assert refused(lambda: read_json(body)) in (None, 400)


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (None, None),
        ("0", None),
        ("100", None),
        ("101", 413),
        ("9" * 18, 413),
        ("-1", 400),
        ("1,1", 400),
        ("", 400),
        ("9" * 19, 400),
        ("٣", 400),
    ],
)
def test_a_body_that_says_its_length(length: str | None, status: int | None) -> None:
    assert refused(lambda: check_length(length, SMALL)) == status


def test_a_body_that_does_not_say_its_length_is_counted() -> None:
    check_size(100, SMALL)

    with pytest.raises(RequestRefused) as caught:
        check_size(101, SMALL)
    assert (caught.value.problem.code, caught.value.problem.more) == ("payload_too_large", {"limit": 100})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "x"), ("Accept", "a"), ("Accept", "b")], None),
        ([("X-Tab", "a\tb")], None),
        ([("A", "1")] * 5, 431),
        ([("A", "x" * 20_000)], 431),
        ([("Host", "x"), ("host", "y")], 400),
        ([("Content-Length", "1"), ("Content-Length", "1")], 400),
        ([("Content-Length", "1"), ("Transfer-Encoding", "chunked")], 400),
        ([("A", "b\r\nC: d")], 400),
        ([("A", "b\x00")], 400),
        ([("A b", "c")], 400),
        ([("", "c")], 400),
    ],
)
def test_headers_are_few_and_beyond_doubt(headers: list[tuple[str, str]], status: int | None) -> None:
    assert refused(lambda: check_headers(headers, SMALL)) == status


@pytest.mark.parametrize(
    "query",
    [
        [("a", "1")] * 4,
        [("a", "x" * 11)],
        [("x" * 11, "a")],
        [("a", "\x00")],
        [("a\n", "b")],
        [("a", "\udcff")],
        [("token", "ade_x")],
        [("Access_Token", "ade_x")],
    ],
)
def test_parameters_are_few_and_no_secrets(query: list[tuple[str, str]]) -> None:
    check_parameters([("a", "1"), ("a", "2"), ("b", "é")], SMALL)

    with pytest.raises(RequestRefused) as caught:
        check_parameters(query, SMALL)
    assert caught.value.problem.status == 400
    assert "ade_x" not in caught.value.problem.detail


@pytest.mark.parametrize(("target", "status"), [("/" + "a" * 50, 414), ("a", 400), ("", 400), ("/a\nb", 400)])
def test_addresses_are_short_and_plain(target: str, status: int) -> None:
    check_target("/api/v1/tasks?x=%00", SMALL)

    assert refused(lambda: check_target(target, SMALL)) == status


@pytest.mark.parametrize(
    "media", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_is_taken(media: str) -> None:
    assert passes(lambda: check_media_type(media), RequestRefused)


@pytest.mark.parametrize("media", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                                   "application/json-patch+json", "application/json; charset=latin-1"])  # fmt: skip
def test_what_a_form_could_send_is_not_taken(media: str | None) -> None:
    assert refused(lambda: check_media_type(media)) == 415


OFFERED = ("application/json", "text/event-stream")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, OFFERED[0]),
        ("*/*", OFFERED[0]),
        ("text/event-stream", OFFERED[1]),
        ("text/*;q=0.9, application/json;q=0.8", OFFERED[1]),
        ("application/json;q=0, */*", OFFERED[1]),
        ("text/html, application/json", OFFERED[0]),
        ("image/png", None),
        ("application/json;q=x", None),
        ("*/*;q=0", None),
    ],
)
def test_the_format_that_is_liked_best_is_chosen(accept: str | None, chosen: str | None) -> None:
    if chosen is None:
        assert refused(lambda: choose_media_type(accept, OFFERED)) == 406
    else:
        assert choose_media_type(accept, OFFERED) == chosen

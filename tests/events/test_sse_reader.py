"""An event stream read back: however it is cut into pieces, and whatever is in it."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.events.sse import SseBlock, SseParser, block, comment
from tests.depth import examples

BLOCKS = st.lists(st.tuples(st.text(), st.text(), st.none() | st.integers(0, 10**9)), max_size=5)
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=30)


def pieces(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        for size in sizes:
            yield data[at : at + size]
            at += size


def read(data: bytes, sizes: Sequence[int] = (10**6,)) -> tuple[list[SseBlock], str, int | None]:
    reader = SseParser()
    blocks = [block for piece in pieces(data, sizes) for block in reader.feed(piece)]
    return blocks, reader.last_id, reader.retry_ms


@settings(max_examples=examples(60), deadline=None)
@given(BLOCKS, CUTS)
def test_what_was_written_is_read_in_whatever_pieces_it_comes(
    told: list[tuple[str, str, int | None]], sizes: list[int]
) -> None:
    data = b"".join(block(data=data, event=event, seq=seq) + comment("x") for data, event, seq in told)
    blocks, last_id, _ = read(data, sizes)

    def lines(text: str) -> str:
        return text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()

    def line(text: str) -> str:
        return lines(text.replace("\r", " ").replace("\n", " ").replace("\x00", " "))

    # One space after the colon belongs to the form, so that the name keeps its own.
    assert blocks == [SseBlock(lines(data), line(event) or "message") for data, event, _ in told]
    ids = [str(seq) for _, _, seq in told if seq is not None]
    assert last_id == (ids[-1] if ids else "")


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from([b"data", b"id", b"event", b"retry", b":", b" ", b"\r", b"\n", b"\xff", b"7"])), CUTS)
def test_where_it_is_cut_makes_no_difference(parts: list[bytes], sizes: list[int]) -> None:
    data = b"".join(parts)
    assert read(data, sizes) == read(data)


def test_all_ends_of_lines_count_and_a_mark_at_the_beginning_does_not() -> None:
    data = b"\xef\xbb\xbfdata: one\r\n\r\ndata: two\r\rdata: three\ndata\n\n"
    for sizes in ((1,), (2,), (3, 1), (100,)):
        assert read(data, sizes)[0] == [SseBlock("one"), SseBlock("two"), SseBlock("three\n")]


def test_a_block_without_data_moves_the_place_and_shows_nothing() -> None:
    blocks, last_id, retry_ms = read(b": hello\nid: 12\nretry: 2000\n\n")
    assert (blocks, last_id, retry_ms) == ([], "12", 2000)


def test_an_unfinished_block_was_never_there() -> None:
    assert read(b"id: 1\ndata: a\n\nid: 2\ndata: b\n") == ([SseBlock("a")], "1", None)


def test_strange_ids_and_times_are_left_aside() -> None:
    assert read(b"id: 1\nid: 2\x003\nretry: soon\nretry: -1\ndata: a\n\n") == ([SseBlock("a")], "1", None)


@pytest.mark.parametrize("endless", [b"data: " + b"a" * 100, b"data: a\n" * 20, b":" * 100, b"x: y\n" * 30])
def test_a_block_without_an_end_is_refused(endless: bytes) -> None:
    reader = SseParser(longest=64)
    with pytest.raises(ValueError, match="more than 64 bytes"):
        list(map(reader.feed, pieces(endless, [5])))

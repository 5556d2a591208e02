"""What is tried with made-up input: one target for each parser of what strangers send and people write.

A target is a function that takes bytes. It lets pass the errors that the parser declares, and raises for everything
else: another error, a round trip that does not hold, a reading that differs from another one of the same thing. How
long it took is looked at by whoever calls it (`tried`).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
LONGEST_CPU_S = 5.0  # for one input; most take less than a millisecond, so that only a trap takes so long


class Target(NamedTuple):
    name: str
    run: Callable[[bytes], None]
    modules: tuple[str, ...]  # whose parsers it tries, below `ade.`
    seeds: Callable[[], Iterable[bytes]]  # what is well-formed, or nearly so: where the search begins
    words: tuple[bytes, ...]  # that mean something to the parser


class TooSlow(Exception):
    """An input that keeps a parser busy for too long."""


TARGETS: dict[str, Target] = {}


def target(
    *modules: str, seeds: Sequence[bytes | str] | Callable[[], Iterable[bytes]], words: Sequence[bytes | str] = ()
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Put a function into the table, under its own name."""

    def put(run: Callable[[bytes], None]) -> Callable[[bytes], None]:
        name = run.__name__
        assert name not in TARGETS, name
        begin = seeds if callable(seeds) else lambda: [_bytes(each) for each in seeds]
        TARGETS[name] = Target(name, run, modules, begin, tuple(map(_bytes, words)))
        return run

    return put


def tried(one: Target, data: bytes, longest_s: float = LONGEST_CPU_S) -> None:
    """Run a target. Raises what it raises, and TooSlow; time is that of the processor, whatever else it has to do."""
    begun = time.process_time()
    one.run(data)
    taken = time.process_time() - begun
    if taken > longest_s:
        raise TooSlow(f"{one.name} took {taken:.1f} s for {len(data):,} bytes that begin with {data[:60]!r}")


def let(call: Callable[[], T], *refusals: type[Exception]) -> T | None:
    """What a parser answers; None where it refuses with one of the errors that it declares."""
    try:
        return call()
    except refusals:
        return None


def passes(check: Callable[[], None], *refusals: type[Exception]) -> bool:
    """Whether a check lets something through; it refuses with one of these errors."""
    try:
        check()
    except refusals:
        return False
    return True


def text_of(data: bytes) -> str:
    """As a command line gives it: bytes that are no UTF-8 become halves of surrogate pairs."""
    return data.decode("utf-8", "surrogateescape")


def header_of(data: bytes) -> str:
    """As a server gives the value of a header."""
    return data.decode("latin-1")


def headers_of(data: bytes) -> list[tuple[str, str]]:
    """Lines of `name: value`."""
    lines = (line.partition(":") for line in header_of(data).split("\n"))
    return [(name.strip().lower(), value.strip()) for name, _, value in lines if name]


def parts_of(data: bytes, count: int) -> list[bytes]:
    """Several inputs of one target, with line ends between them; those that are missing are empty."""
    return [*data.split(b"\n", count - 1), *[b""] * count][:count]


def pieces_of(data: bytes, seed: int) -> list[bytes]:
    """The same bytes as a network might bring them: the pieces follow from the number alone."""
    sizes, at = (1, 2, 3, 5, 8, 21, 100), 0
    pieces: list[bytes] = []
    while at < len(data):
        size = sizes[(seed + len(pieces) * 3) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces


def _bytes(value: bytes | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value

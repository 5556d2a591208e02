"""Inputs made from seeds by chance that is the same in every run: what is tried where there is no fuzzer."""

import random
from collections.abc import Iterator

from tests.fuzz.table import Target

_LONGEST = 4_096


def inputs(one: Target, count: int) -> Iterator[bytes]:
    """The seeds, and then as many others as are asked for."""
    randomness = random.Random(one.name)  # a text is a seed that does not change from run to run
    known = [*one.seeds()]
    yield b""
    yield from known
    for _ in range(count):
        data = randomness.choice(known)
        for _ in range(randomness.randint(1, 4)):
            data = _changed(data, one, known, randomness)
        yield data[:_LONGEST]


def _changed(data: bytes, one: Target, known: list[bytes], randomness: random.Random) -> bytes:
    begin = randomness.randint(0, len(data))
    end = min(len(data), begin + randomness.randint(0, 8))
    match randomness.randint(0, 6):
        case 0:
            new = randomness.randbytes(randomness.randint(0, 4))
        case 1 | 2 if one.words:
            new = randomness.choice(one.words)
        case 3:
            other = randomness.choice(known)
            at = randomness.randint(0, len(other))
            new = other[at : at + randomness.randint(0, 20)]
        case 4:
            new = data[begin:end] * randomness.randint(2, 9)
        case _:
            new = bytes(each ^ (1 << randomness.randint(0, 7)) for each in data[begin:end][:1])
    return data[:begin] + new + data[end:]


def stretched(one: Target, length: int) -> Iterator[bytes]:
    """What is long and the same all over: where a parser takes more than its share of time, it is with these."""
    seeds = [*one.seeds()][:1]
    words = {*one.words, b" ", b"a", b"1", b"\n", b"[", b'{"a":'}
    for piece in sorted({word + end for word in words for end in (b"", b"a")}):
        for begin in (seeds[0][:1], *seeds):
            yield begin + piece * (length // len(piece))

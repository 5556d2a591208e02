"""Fresh ids. Randomness is drawn in bulk: a system call for each task would cost more than all the rest."""

import os

from ade.core.ids import uuid7

_EACH, _DRAWN = 10, 400
_pieces: list[bytes] = []  # `pop` gives no piece to two threads

# A child process must not go on with the bytes of its parent.
os.register_at_fork(after_in_child=_pieces.clear)


def fresh_id(now_ms: int) -> str:
    """A new task id."""
    try:
        piece = _pieces.pop()
    except IndexError:
        piece = _draw()
    return uuid7(now_ms, piece)


def _draw() -> bytes:
    drawn = os.urandom(_EACH * _DRAWN)
    _pieces.extend(drawn[start : start + _EACH] for start in range(_EACH, len(drawn), _EACH))
    return drawn[:_EACH]

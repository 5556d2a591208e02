"""How far a reader of the event log is behind."""

from ade.ports import EventLog

_PAGE = 1_000


async def events_after(log: EventLog, seq: int, at_most: int) -> int:
    """How many events come after this seq, counted no further than `at_most`. Seqs have gaps: they cannot tell."""
    count = 0
    while count < at_most and (events := await log.read(seq, min(_PAGE, at_most - count))):
        count += len(events)
        seq = events[-1].seq
    return count

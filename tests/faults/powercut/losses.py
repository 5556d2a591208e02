"""What may become of changes that were not synced when the power went."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from tests.faults.powercut.recording import Change, Truncate, Write

SECTOR = 512  # the least a disk writes whole

Loss = Callable[[Sequence[Change], Random], list[Change]]


def all_lost(unsafe: Sequence[Change], randomness: Random) -> list[Change]:
    return []


def all_kept(unsafe: Sequence[Change], randomness: Random) -> list[Change]:
    """The disk was faster than it had to be."""
    return list(unsafe)


def some_kept(unsafe: Sequence[Change], randomness: Random) -> list[Change]:
    """Some changes got through and others did not, whole or by the sector, whatever their order was."""
    share = randomness.choice((0.1, 0.5, 0.9))
    by_sector = randomness.random() < 0.5
    pieces = (piece for change in unsafe for piece in (_sectors(change) if by_sector else (change,)))
    kept = [piece for piece in pieces if randomness.random() < share]
    if randomness.random() < 0.5:
        kept += _sizes_without_content(unsafe)
    return kept


def last_torn(unsafe: Sequence[Change], randomness: Random) -> list[Change]:
    """Everything got through, but the last write only up to some sector."""
    kept = list(unsafe)
    for position in reversed(range(len(kept))):
        change = kept[position]
        if isinstance(change, Write):
            sectors = list(_sectors(change))
            kept[position : position + 1] = sectors[: randomness.randrange(len(sectors))]
            break
    return kept


LOSSES: Mapping[str, Loss] = {
    "all lost": all_lost,
    "all kept": all_kept,
    "some kept": some_kept,
    "last torn": last_torn,
}


def _sectors(change: Change) -> Iterator[Change]:
    """A write in the parts a disk would make of it; other changes happen at once."""
    if not isinstance(change, Write) or not change.content:
        yield change
        return
    start, end = change.offset, change.offset + len(change.content)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield Write(change.node, start, change.content[start - change.offset : stop - change.offset])
        start = stop


def _sizes_without_content(unsafe: Sequence[Change]) -> list[Change]:
    """A file system may know that a file has grown and not what with: such parts read as zeros."""
    truncated = {change.node for change in unsafe if isinstance(change, Truncate)}
    ends: dict[int, int] = {}
    for change in unsafe:
        if isinstance(change, Write) and change.node not in truncated:
            ends[change.node] = max(ends.get(change.node, 0), change.offset + len(change.content))
    return [Write(node, end, b"") for node, end in ends.items()]  # writes nothing, but makes room up to there

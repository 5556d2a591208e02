"""Reading whole records by id."""

from collections.abc import Sequence

from ade.core.records import Task
from ade.stores.redis.codec import Record, task_of
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions

FIELDS = ("state", "detail", "outcome", "progress")
_PORTION = 500


def pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """A map or a list with scores, which the server tells as one row of words."""
    return list(zip(flat[::2], flat[1::2], strict=True))


async def raw_records(link: Link, partition: int, task_ids: Sequence[str]) -> list[Record]:
    """The records of one partition, those that exist, in the order asked."""
    prefix = link.names[partition].prefix
    found: list[Record] = []
    for first in range(0, len(task_ids), _PORTION):
        portion = task_ids[first : first + _PORTION]
        rows = await link.ask(partition, *(("HMGET", f"{prefix}task:{task_id}", *FIELDS) for task_id in portion))
        found += [(task_id.encode(), *row) for task_id, row in zip(portion, rows, strict=True) if row[0] is not None]
    return found


async def read_records(link: Link, places: Partitions, task_ids: Sequence[str]) -> dict[str, Task]:
    """Tasks by their ids, wherever they are; those that do not exist are missing."""
    tasks = await _read_where_known(link, places, task_ids)
    missing = [task_id for task_id in task_ids if task_id not in tasks]
    if missing and places.forget(missing):  # an edited draft may have gone to another partition
        tasks.update(await _read_where_known(link, places, missing))
    places.remember(tasks.values())
    return tasks


async def _read_where_known(link: Link, places: Partitions, task_ids: Sequence[str]) -> dict[str, Task]:
    known = await places.of_all(list(dict.fromkeys(task_ids)))
    by_partition: dict[int, list[str]] = {}
    for task_id, partition in known.items():
        by_partition.setdefault(partition, []).append(task_id)
    tasks: dict[str, Task] = {}
    for partition, ids in by_partition.items():
        tasks.update({task.id: task for task in map(task_of, await raw_records(link, partition, ids))})
    return tasks

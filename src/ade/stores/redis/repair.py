"""Repair of lost keys from the task records: streams, groups, lanes, leases, indexes, and counters.

The records are the source of truth. The repair works in small portions while workers and producers continue. It never
invents data, and it reports tasks whose record is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ade.events.model import ALERT, FINAL_EVENTS, Event
from ade.logs import Log
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.codec import packed_event, raw_records, read_events, task_of
from ade.stores.redis.invariants import SIDE_NOTES
from ade.stores.redis.keys import LABELED
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.scan import PartitionScan, ScanFindings, edges_afar
from ade.stores.redis.workers import RedisWorkers, limits_of

_RECENT = 1000  # last log entries that are searched for lost tasks
_PORTION = 100
MOST_NAMED = 100
_log = Log("ade.store")


@dataclass(slots=True)
class RepairReport:
    """Repaired faults by invariant, and lost tasks."""

    mended: dict[str, int] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)  # IDs not reported before, up to MOST_NAMED
    gone_count: int = 0

    def add(self, findings: ScanFindings, gone: Sequence[str]) -> None:
        for invariant, count in findings.counts.items():
            self.mended[invariant] = self.mended.get(invariant, 0) + count
        self.sentences += findings.all_sentences()
        self.gone_count += len(gone)
        self.gone = [*self.gone, *gone][:MOST_NAMED]


async def health_check(link: RedisClient, places: Partitions) -> list[str]:
    """Check quickly whether something was lost; return a sentence for each total that does not match."""
    answers = await link.reach.each(
        places.all, lambda partition, patience_s: link.run("health_check", partition, {}, patience_s=patience_s)
    )
    return [sentence.decode(errors="replace") for answer in answers.values() for sentence in answer]


async def repair(link: RedisClient, places: Partitions) -> RepairReport:
    """Repair everything from the records. Safe at any time, also from several processes concurrently."""
    report = RepairReport()
    for partition in link.reach.near(places.all):
        survey = PartitionScan(link, partition, mend=True)
        await link.ask(partition, ("HDEL", f"{survey.names.prefix}meta", "lost"))  # losses recorded from now on are new
        await survey.everything()
        await _mend_edges(survey, places)
        survey.findings.gone.update(dict.fromkeys(await _unended(survey), partition))
        report.add(survey.findings, await _report_gone(survey))
        await link.ask(partition, ("HSET", f"{survey.names.prefix}meta", LABELED, 1))
    await _define_again(link, places)
    if report.mended:
        _log.warning("store_mended", mended=report.mended, examples=report.sentences[:10])
    if report.gone:
        _log.error(
            "tasks_lost",
            count=report.gone_count,
            task_ids=report.gone,
            hint="something names these tasks, but their records are gone: the server lost writes. Enqueue them again"
            " or restore a backup",
        )
    return report


async def _define_again(link: RedisClient, places: Partitions) -> None:
    """Restore the limits that claims respect from the registered definitions; write only differences."""
    definitions = await RedisWorkers(link, places).definitions()
    limits = [(definition.name, limits_of(definition)) for definition in definitions]
    for partition in link.reach.near(places.all) if limits else ():
        await link.run("define_names", partition, {"limits": limits})


async def _mend_edges(survey: PartitionScan, places: Partitions) -> None:
    """Repair dependencies on tasks of other partitions, whose partitions must be looked up first."""
    for sentence in await edges_afar(survey, mend=True):
        survey.findings.note("dependencies_can_complete", sentence)
    ids, survey.unresolved = survey.unresolved, []
    for task in map(task_of, await raw_records(survey.link, survey.partition, ids)):
        known = await places.of_all(task.depends_on)
        afar = {on: partition for on, partition in known.items() if partition != survey.partition}
        await survey.look_at([task.id], remote=afar)


async def _unended(survey: PartitionScan) -> list[str]:
    """Tasks with recent events but no final event. Each has a record, unless it was lost."""
    link, partition, prefix = survey.link, survey.partition, survey.names.prefix
    last: dict[str, str] = {}
    end = "+"
    for _ in range(0, _RECENT, _PORTION):
        [entries] = await link.ask(partition, ("XREVRANGE", f"{prefix}events", end, "-", "COUNT", _PORTION))
        for _, fields in entries:
            for event in reversed(read_events(fields[1], 0, 1)):
                if event.task_id is not None and event.type not in SIDE_NOTES:
                    last.setdefault(event.task_id, event.type)
        if len(entries) < _PORTION:
            break
        end = f"({entries[-1][0].decode()}"
    return [task_id for task_id, kind in last.items() if kind not in FINAL_EVENTS]


async def _missing(survey: PartitionScan, ids: Sequence[str]) -> list[str]:
    """The tasks without a record in any partition: an edited draft can move to another one."""
    there: set[str] = set()
    for partition, names in enumerate(survey.link.names):
        for first in range(0, len(ids), _PORTION):
            portion = ids[first : first + _PORTION]
            found = await survey.link.ask(partition, *(("EXISTS", f"{names.prefix}task:{each}") for each in portion))
            there.update(task_id for task_id, exists in zip(portion, found, strict=True) if exists)
    return [task_id for task_id in ids if task_id not in there]


async def _report_gone(survey: PartitionScan) -> list[str]:
    """Log an alert for each lost task, once. Return the tasks not reported before."""
    now = survey.link.clock.now()
    ids = await _missing(survey, list(survey.findings.gone))
    fresh: list[str] = []
    for first in range(0, len(ids), _PORTION):
        tasks = [
            (task_id, packed_event(Event(type=ALERT, at=now, task_id=task_id, payload={"what": "record_lost"})))
            for task_id in ids[first : first + _PORTION]
        ]
        reported = await survey.link.run("log_lost_tasks", survey.partition, {"tasks": tasks})
        fresh += [task_id.decode() for task_id in reported]
    return fresh

"""Whether the data is still what this process began with: a server that lost everything answers as if all were well."""

from collections.abc import Awaitable, Callable

from ade.core.events import ALERT, Event
from ade.logs import Log
from ade.stores.redis.codec import packed_event
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.timing import Timing
from ade.stores.redis.tokens import new_token

_log = Log("ade.store")

Remedy = Callable[[], Awaitable[None]]


class Epochs:
    """The life of each partition's data, by a random name that is lost with it."""

    def __init__(self, link: Link, places: Partitions, timing: Timing) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self._known: dict[int, bytes] = {}
        self._remedies: list[Remedy] = []

    def when_lost(self, remedy: Remedy) -> None:
        """Call this after a loss: what only this process knows is to be written again."""
        self._remedies.append(remedy)

    async def begin(self) -> None:
        """Learn the names, and give one to data that has none."""
        for partition in self._places.all:
            self._known[partition] = await self._current(partition, alert=None)

    async def check(self) -> list[int]:
        """Partitions whose data was lost since the last look. Each loss is reported once by every process."""
        if not self._known:
            await self.begin()
            return []
        lost = []
        for partition, known in list(self._known.items()):
            [epoch] = await self._link.ask(partition, ("HGET", f"{self._link.names[partition].prefix}meta", "epoch"))
            if epoch != known:
                await self._report(partition, known)
                lost.append(partition)
        if lost:
            for remedy in self._remedies:
                await remedy()
        return lost

    async def _report(self, partition: int, known: bytes) -> None:
        [left] = await self._link.ask(partition, ("ZCARD", f"{self._link.names[partition].prefix}task:all"))
        server = self._link.where(partition)
        facts: dict[str, object] = {"partition": partition, "server": str(server), "tasks_left": int(left)}
        now = self._timing().get("now") or self._link.clock.now()
        payload = {"what": "data_lost", "epoch": known.decode(), **facts}
        alert = Event(type=ALERT, at=now, payload=payload)
        self._known[partition] = await self._current(partition, alert=alert, earlier=known)
        _log.error(
            "store_lost_its_data",
            **facts,
            hint="the server was emptied or restarted without its data. What it had acknowledged before is gone unless"
            " a backup is restored; work goes on with what is left",
        )

    async def _current(self, partition: int, alert: Event | None, earlier: bytes = b"") -> bytes:
        """The epoch now. The first to find none begins a new one; the first who knew another tells of the loss."""
        request = {
            "fresh": new_token(),
            "alert": False if alert is None else packed_event(alert),
            "earlier": earlier.decode(),
        }
        return bytes(await self._link.run("epoch", partition, {**self._timing(), **request}))

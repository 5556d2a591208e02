"""The line to the servers: scripts and plain commands, addressed to a partition, tried again while servers are away."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import msgspec

from ade.core.errors import NotConfirmed, StoreCorrupt, StoreUnavailable
from ade.stores.redis.calls import Calls, Patience
from ade.stores.redis.clock import ServerClock
from ade.stores.redis.cluster import SlotMap
from ade.stores.redis.direct import Direct
from ade.stores.redis.failures import FAILURES, translated
from ade.stores.redis.keys import Names
from ade.stores.redis.loops import ConnectionsByLoop, LoopThread
from ade.stores.redis.nodes import Connector, Nodes
from ade.stores.redis.options import RedisOptions
from ade.stores.redis.scripts import Script, script
from ade.stores.redis.sentinel import WatchedServer
from ade.stores.redis.topologies import FixedServer, Topology
from ade.stores.redis.urls import Address, Kind, Place, parse_url
from ade.stores.redis.wire import Command, Line, ServerError
from ade.stores.redis.wrong_types import spoiled_keys

Answer = TypeVar("Answer")
BLOCKING_PATIENCE_S = 4.0  # less than a heartbeat: the caller tries again itself
_pack = msgspec.msgpack.Encoder().encode


class Link:
    """The servers of one store. Every answer is bytes, whole numbers, None and lists, as the server gave it.

    Whatever is sent may be sent again after a lost connection, a time-out or a failover: scripts recognise a request
    they have seen by its ids, and plain commands must be reads or harmless to repeat.
    """

    def __init__(self, place: Place, options: RedisOptions | None = None) -> None:
        self.place = place
        self.options = options or RedisOptions()
        self.clock = ServerClock()
        numbers = range(self.options.partitions) if place.kind is Kind.CLUSTER else [None]
        self.names: Sequence[Names] = [self.options.names(number) for number in numbers]
        self.partitions = len(self.names)
        self._topology = _topology(place, self.names)
        self._connector = Connector(place, self.options)
        self._connections = ConnectionsByLoop(lambda: Nodes(self._connector, self.clock))
        self._calls = Calls(self._topology, self._connections, self.options.command_timeout_s)
        self.aside = LoopThread("ade-redis")  # for callers without a loop, and for what goes on beside all loops
        self.direct = self._direct()

    @property
    def is_strong(self) -> bool:
        """Whether what callers are told was written must be known to replicas."""
        return self.options.durability == "strong"

    def _direct(self) -> Direct | None:
        """Where servers may change places, or replicas must confirm, only the usual way will do."""
        if self.place.kind is not Kind.SERVER or self.is_strong:
            return None
        return Direct(self._connector, self.place.addresses[0], self.clock, self._arguments)

    @classmethod
    def to(cls, url: str, options: RedisOptions | None = None) -> "Link":
        """A link to the place a URL names. Nothing is sent yet."""
        return cls(parse_url(url), options)

    def run(
        self,
        name: str,
        partition: int,
        request: dict[str, Any],
        *,
        confirm: bool = False,
        patience_s: float | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call a script of `lua/` on a partition.

        With `confirm`, raises NotConfirmed when too few replicas have what was written; it is written all the same.
        """
        return self.run_script(script(name), partition, request, confirm=confirm, patience_s=patience_s)

    async def run_script(
        self,
        known: Script,
        partition: int,
        request: dict[str, Any],
        *,
        confirm: bool = False,
        patience_s: float | None = None,
    ) -> Any:
        """The same with a script that is not of `lua/`."""
        arguments = self._arguments(partition, request)
        patience = Patience(patience_s or self.options.patience_s)
        after = self._confirming(partition, patience) if confirm else []
        commands = [("EVALSHA", known.sha, *arguments), *after]
        answers = await self._calls.converse(partition, commands, patience, together=True)
        if isinstance(answers[0], ServerError):
            if answers[0].code == "NOSCRIPT":  # a new or flushed server does not know it yet
                commands = [("EVAL", known.text, *arguments), *after]
                answers = await self._calls.converse(partition, commands, patience, together=True)
            await self._raise_first(answers[:1], partition)
        if confirm:
            self._check_confirmed(answers[0], answers[1:])
        return answers[0]

    def run_blocking(self, name: str, partition: int, request: dict[str, Any], *, confirm: bool = False) -> Any:
        """The same for a thread without an event loop, on connections of its own; gives up within a heartbeat."""
        self.check_process()
        return self.wait_for(self.run(name, partition, request, confirm=confirm, patience_s=BLOCKING_PATIENCE_S))

    def wait_for(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """What comes of work that needs an event loop, for a thread without one."""
        try:
            return self.aside.submit(work).result()
        except CancelledError:
            raise StoreUnavailable("the store was closed during the call; whether it was done is unknown") from None

    def run_blocking_each(self, name: str, requests: Mapping[int, dict[str, Any]]) -> dict[int, Any]:
        """The same for several partitions at once. All are asked before it is raised that one did not answer."""
        self.check_process()
        if not requests:
            return {}
        try:
            answers = self.aside.submit(self._run_each(name, requests)).result()
        except CancelledError:
            raise StoreUnavailable("the store was closed during the call; whether it was done is unknown") from None
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return dict(zip(requests, answers, strict=True))

    async def _run_each(self, name: str, requests: Mapping[int, dict[str, Any]]) -> list[Any]:
        asked = (self.run(name, place, request, patience_s=BLOCKING_PATIENCE_S) for place, request in requests.items())
        return await asyncio.gather(*asked, return_exceptions=True)

    async def ask(self, partition: int, *commands: Command, patience_s: float | None = None) -> list[Any]:
        """Plain commands in one round trip, not a transaction. Raises the first error among the answers."""
        patience = Patience(patience_s or self.options.patience_s)
        answers = await self._calls.converse(partition, commands, patience, together=False)
        await self._raise_first(answers, partition)
        return answers

    async def primaries(self) -> Sequence[Address]:
        """Every primary there is; the partitions are spread over them."""
        nodes = self._connections.of_this_loop()
        if not self._topology.primaries():
            await self.ask(0, ("PING",))
        if self.place.kind is Kind.CLUSTER:
            await self._calls.learn(nodes, None)
        return self._topology.primaries()

    async def ask_node(self, address: Address, *commands: Command) -> list[Any]:
        """Plain commands to one server, once. Errors of the server stand among the answers."""
        try:
            node = self._connections.of_this_loop().server(address)
            return await node.exchange(commands, self.options.command_timeout_s)
        except FAILURES as error:
            raise translated(error, address) from error

    def where(self, partition: int) -> Address | None:
        """The server that holds the partition, as far as known."""
        return self._topology.where(partition)

    async def connect(self) -> Line:
        """A connection that belongs to the caller alone, to the server of the first partition."""
        await self.ask(0, ("PING",))  # finds out where it is
        address = self._topology.where(0)
        assert address is not None  # somebody there has just answered
        try:
            async with asyncio.timeout(self.options.command_timeout_s):
                return await self._connector.to_server(address)
        except FAILURES as error:
            raise translated(error, address) from error

    def check_process(self) -> None:
        """Refuse to be used in a process that was forked off the one that made it."""
        self._connections.check_process()

    async def close(self) -> None:
        if self.direct is not None:
            self.direct.close()
        await self._connections.close()
        await asyncio.to_thread(self.aside.close)

    def _confirming(self, partition: int, patience: Patience) -> list[Command]:
        """Commands that wait until replicas have everything written so far.

        WAIT speaks of what its own connection has written, so something is: the script may find its request done
        already, over a connection that is gone.
        """
        touched = f"{self.names[partition].prefix}confirms"
        wait_ms = min(self.options.confirm_timeout_ms, int(patience.whole_s * 250))  # ends before the try does
        return [("INCR", touched), ("WAIT", self.options.replicas, wait_ms)]

    def _check_confirmed(self, answer: Any, confirming: Sequence[Any]) -> None:
        touched, replicas = confirming
        confirmed = 0 if isinstance(touched, ServerError) or isinstance(replicas, ServerError) else int(replicas)
        if confirmed < self.options.replicas:
            raise NotConfirmed(
                f"the work is accepted, but only {confirmed} of {self.options.replicas} replicas have confirmed it"
                " in time. It is lost if the primary dies before they have it. Repeating the call is safe; to enqueue"
                " takes a key for that, or there are two tasks",
                answer=answer,
            )

    async def _raise_first(self, answers: Sequence[Any], partition: int) -> None:
        for answer in answers:
            if isinstance(answer, ServerError):
                error = translated(answer, self.where(partition))
                if isinstance(error, StoreCorrupt):
                    error = StoreCorrupt(f"{error.detail}. {await self._spoiled(partition)}")
                raise error from answer

    async def _spoiled(self, partition: int) -> str:
        """Which keys have a wrong type."""

        async def ask(commands: list[Command]) -> list[Any]:
            return await self._calls.converse(partition, commands, Patience(self.options.patience_s), together=False)

        found = await spoiled_keys(ask, self.names[partition])
        return "; ".join(found) or "Which key it is could not be found: it may be that of a single task"

    def _arguments(self, partition: int, request: dict[str, Any]) -> tuple[Any, ...]:
        """Two keys are declared: one that is always there and one that never is.

        While a slot moves, a server refuses calls for keys of which it has only some; so no script ever runs on half
        of its partition.
        """
        names = self.names[partition]
        return (
            2,
            f"{names.prefix}meta",
            f"{names.prefix}void",
            _pack(request),
            partition,
            self.partitions,
            names.tasks,
            names.group,
            names.results,
            names.dlq,
        )


def _topology(place: Place, names: Sequence[Names]) -> Topology:
    match place.kind:
        case Kind.SERVER:
            return FixedServer(place.addresses[0])
        case Kind.SENTINEL:
            return WatchedServer(place.addresses, place.service)
        case Kind.CLUSTER:
            return SlotMap(place.addresses, [each.prefix for each in names])

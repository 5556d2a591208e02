"""The client: runs scripts and commands on a partition, and retries while servers are unreachable."""

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from ade.errors import NotConfirmed, StoreCorrupt, StoreError, StoreUnavailable
from ade.settings.sections import RedisSettings
from ade.stores.ports import Clock
from ade.stores.redis.client.connections import ConnectionsByLoop, Connector, LoopThread, RedisConnection, ServerPools
from ade.stores.redis.client.errors import FAILURES, Command, ServerError, code_of, passes, translated, wrong_type_keys
from ade.stores.redis.client.options import RedisAddress, RedisLocation, TopologyKind, parse_url
from ade.stores.redis.client.sync_client import SyncClient
from ade.stores.redis.client.topology import (
    SHORT_PATIENCE_S,
    FixedServer,
    ReachablePartitions,
    SentinelServer,
    ServerNotFound,
    SlotMap,
    Topology,
)
from ade.stores.redis.clock import ServerClock, VerifiedClock
from ade.stores.redis.keys import KeyNames, names_of
from ade.stores.redis.scripts import LuaScript, script

# Calls to a partition: sent to the server that holds it now, and retried until the deadline of the caller.


_LEARNING_S = 4.0
_LEARN_AGAIN_S = 0.1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.4
_STAY = {"MOVED", "ASK", "TRYAGAIN", "BUSY", "UNKILLABLE", "NOREPLICAS"}  # no topology refresh after these
_NEVER = float("inf")
_OPEN: Any = object()  # marks a command without a response


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why an attempt did not return all responses."""

    address: RedisAddress | None
    error: StoreError
    elsewhere: bool = True  # whether another server might hold the partition now


class CallDeadline:
    """The deadline of a call, counted from now."""

    __slots__ = ("_deadline", "whole_s")

    def __init__(self, whole_s: float) -> None:
        self.whole_s = whole_s
        self._deadline = _time() + whole_s

    def left_s(self) -> float:
        return self._deadline - _time()

    def of_try(self, most_s: float) -> float:
        """The time limit of the next attempt."""
        return max(min(most_s, self.left_s()), 0.001)


@dataclass(slots=True)
class _PartitionCall:
    """Commands for one partition and their responses so far. With `together`, a retry sends all commands again."""

    partition: int
    commands: Sequence[Command]
    together: bool
    patience: CallDeadline
    try_s: float
    answers: list[Any]

    def open(self) -> list[int]:
        waiting = [number for number, answer in enumerate(self.answers) if answer is _OPEN]
        return list(range(len(self.commands))) if self.together and waiting else waiting

    def limit_s(self) -> float:
        """The time limit of the next exchange."""
        return self.patience.of_try(self.try_s)


class RetryingCalls:
    """The only place that retries. Every command sent through it must be safe to repeat."""

    def __init__(self, topology: Topology, connections: ConnectionsByLoop, command_timeout_s: float) -> None:
        self._topology = topology
        self._connections = connections
        self._command_timeout_s = command_timeout_s
        self._problem = "no server was found yet"

    async def converse(
        self, partition: int, commands: Sequence[Command], patience: CallDeadline, *, together: bool
    ) -> list[Any]:
        """Return all responses, including permanent server errors. Raises StoreUnavailable at the deadline."""
        try_s = min(self._command_timeout_s, patience.whole_s / 2)  # leaves time for a second attempt
        address = self._topology.where(partition)
        answers: list[Any] | Exception = ConnectionError("no server was asked yet")
        if address is not None:  # fast path: the first attempt nearly always succeeds
            try:
                answers = await self._nodes().server(address).exchange(commands, patience.of_try(try_s))
                if ServerError not in map(type, answers):
                    return answers
            except FAILURES as error:
                answers = error
        call = _PartitionCall(partition, commands, together, patience, try_s, [_OPEN] * len(commands))
        return await self._persist(call, await self._judge(call, address, call.open(), answers))

    async def _persist(self, call: _PartitionCall, trouble: CallFailure | None) -> list[Any]:
        """Retry until every command has a response."""
        pauses, patience = pauses_between_tries(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), call.patience
        while trouble is not None:
            pause = next(pauses)
            if pause >= patience.left_s():
                raise StoreUnavailable(f"{trouble.error.detail} (tried for {patience.whole_s:g} s)") from trouble.error
            if trouble.elsewhere:
                await self._learn_soon(self._nodes(), trouble.address, patience)
            await asyncio.sleep(pause)
            trouble = await self._attempt(call)
        return call.answers

    def _nodes(self) -> ServerPools:
        """The pools of this loop; refreshes the topology in the background if it is due."""
        nodes = self._connections.of_this_loop()
        if self._topology.recheck_s != _NEVER and _time() - nodes.learnt_at > self._topology.recheck_s:
            self._recheck(nodes)
        return nodes

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        """Refresh the topology; keep the current one if that fails."""
        try:
            async with asyncio.timeout(_LEARNING_S):
                await self._topology.learn(nodes, failed)
        except ServerNotFound as error:
            self._problem = str(error)
        except TimeoutError:
            self._problem = "the list of servers was not available in time"

    def _recheck(self, nodes: ServerPools) -> None:
        """Refresh the topology in the background."""
        if nodes.rechecking is None or nodes.rechecking.done():
            nodes.rechecking = asyncio.create_task(self._learn_aside(nodes))

    async def _learn_aside(self, nodes: ServerPools) -> None:
        with suppress(StoreError):  # a call that needs the topology refreshes it again and raises
            async with nodes.learning:
                await self.learn(nodes, None)
                nodes.learnt_at = _time()

    async def _learn_soon(self, nodes: ServerPools, failed: RedisAddress | None, patience: CallDeadline) -> None:
        """Refresh the topology once for all callers of this loop; the others wait for the result."""
        begun = _time()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.left_s()), nodes.learning:
                if nodes.learnt_at < begun - _LEARN_AGAIN_S:
                    await self.learn(nodes, failed)
                    nodes.learnt_at = _time()

    async def _attempt(self, call: _PartitionCall) -> CallFailure | None:
        """One round trip to the server that holds the partition."""
        address = self._topology.where(call.partition)
        numbers = call.open()
        answers: list[Any] | Exception = ConnectionError("no server was asked yet")
        if address is not None:
            try:
                commands = [call.commands[each] for each in numbers]
                answers = await self._nodes().server(address).exchange(commands, call.limit_s())
            except FAILURES as error:
                answers = error
        return await self._judge(call, address, numbers, answers)

    async def _judge(
        self, call: _PartitionCall, address: RedisAddress | None, numbers: list[int], answers: list[Any] | Exception
    ) -> CallFailure | None:
        """Process an attempt. Permanent errors are raised or stay among the responses."""
        if address is None:
            return CallFailure(None, StoreUnavailable(self._problem))
        try:
            if isinstance(answers, Exception):
                raise answers
            answers = await self._follow(self._nodes(), address, call, numbers, answers)
        except FAILURES as error:
            failure = translated(error, address)
            if passes(error):
                return CallFailure(address, failure)
            raise failure from error
        return self._take(call, address, numbers, answers)

    def _take(
        self, call: _PartitionCall, address: RedisAddress, numbers: list[int], answers: list[Any]
    ) -> CallFailure | None:
        trouble = None
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, ServerError) and passes(answer):
                if answer.code == "MOVED":
                    self._topology.moved(call.partition, _target(answer, address))
                trouble = CallFailure(address, translated(answer, address), elsewhere=code_of(answer) not in _STAY)
                call.answers[number] = _OPEN
            else:
                call.answers[number] = answer
        return trouble

    async def _follow(
        self, nodes: ServerPools, address: RedisAddress, call: _PartitionCall, numbers: list[int], answers: list[Any]
    ) -> list[Any]:
        """Follow ASK redirections: while a slot migrates, its old owner redirects for keys it no longer has."""
        asked = [place for place, answer in enumerate(answers) if _is_ask(answer)]
        if not asked:
            return answers
        target = nodes.server(_target(answers[asked[0]], address))
        places = list(range(len(numbers))) if call.together else asked
        commands = [word for place in places for word in (("ASKING",), call.commands[numbers[place]])]
        found = await target.exchange(commands, call.limit_s())
        replaced = dict(zip(places, found[1::2], strict=True))
        return [replaced.get(place, answer) for place, answer in enumerate(answers)]


def _is_ask(answer: Any) -> bool:
    return isinstance(answer, ServerError) and answer.code == "ASK"


def _target(error: ServerError, asked: RedisAddress) -> RedisAddress:
    """The target of a redirection (`MOVED slot host:port`); without a host, the server that responded."""
    host, _, port = str(error).split()[2].rpartition(":")
    return RedisAddress(host or asked.host, int(port))


def pauses_between_tries(first_s: float, longest_s: float) -> Iterator[float]:
    """Exponential backoff with jitter, so that many callers do not retry together."""
    pause = first_s
    while True:
        yield pause * (0.5 + random.random())
        pause = min(pause * 2, longest_s)


def _time() -> float:
    return asyncio.get_running_loop().time()


Answer = TypeVar("Answer")
BLOCKING_PATIENCE_S = 4.0  # less than a heartbeat: the caller retries
_pack = msgspec.msgpack.Encoder().encode


class RedisClient:
    """The client of one store. Every response consists of bytes, integers, None, and lists, as the server sent it.

    Every request can be repeated after a lost connection, a timeout, or a failover: scripts recognize a repeated
    request by its IDs, and plain commands must be reads or idempotent.
    """

    def __init__(self, place: RedisLocation, settings: RedisSettings | None = None, clock: Clock | None = None) -> None:
        """With `clock`, scripts use its time instead of the server time."""
        self.place = place
        self.settings = settings or RedisSettings()
        self.server_clock = ServerClock(lambda: self._topology.where(0))
        self.clock: Clock = clock or self.server_clock
        numbers = range(self.settings.partitions) if place.kind is TopologyKind.CLUSTER else [None]
        self.names: Sequence[KeyNames] = [names_of(self.settings, number) for number in numbers]
        self.partitions = len(self.names)
        self._topology = _topology(place, self.names)
        self._connector = Connector(place, self.settings)
        self._connections = ConnectionsByLoop(lambda: ServerPools(self._connector, self.server_clock))
        self._calls = RetryingCalls(self._topology, self._connections, self.settings.command_timeout_s)
        self.aside = LoopThread("ade-redis")  # for callers without a loop, and for background work
        self.direct = self._direct()
        self.reach = ReachablePartitions(self)
        self.wrong_types = False  # whether a call met a key of a wrong type, since that was checked

    @property
    def is_strong(self) -> bool:
        """Whether replicas must confirm a write before the call returns."""
        return self.settings.durability == "strong"

    def _direct(self) -> SyncClient | None:
        """The blocking client; None if failovers are possible or replicas must confirm."""
        if self.place.kind is not TopologyKind.SERVER or self.is_strong:
            return None
        return SyncClient(self._connector, self.place.addresses[0], self.server_clock, self._arguments)

    @classmethod
    def to(cls, url: str, settings: RedisSettings | None = None, clock: Clock | None = None) -> "RedisClient":
        """Create a client for a store URL. Nothing is sent yet."""
        return cls(parse_url(url), settings, clock)

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

        With `confirm`, raises NotConfirmed if too few replicas have the write; the write itself has succeeded.
        """
        return self.run_script(script(name), partition, request, confirm=confirm, patience_s=patience_s)

    async def run_script(
        self,
        known: LuaScript,
        partition: int,
        request: dict[str, Any],
        *,
        confirm: bool = False,
        patience_s: float | None = None,
    ) -> Any:
        """The same as `run`, with a script that is not in `lua/`."""
        arguments = self._arguments(partition, request)
        patience = CallDeadline(patience_s or self.settings.patience_s)
        after = self._confirming(partition, patience) if confirm else []
        commands = [("EVALSHA", known.sha, *arguments), *after]
        answers = await self._calls.converse(partition, commands, patience, together=True)
        if isinstance(answers[0], ServerError):
            if answers[0].code == "NOSCRIPT":  # a new or flushed server has not cached the script
                commands = [("EVAL", known.text, *arguments), *after]
                answers = await self._calls.converse(partition, commands, patience, together=True)
            await self._raise_first(answers[:1], partition)
        if confirm:
            self._check_confirmed(answers[0], answers[1:])
        return answers[0]

    def run_blocking(
        self, name: str, partition: int, request: dict[str, Any], *, patience_s: float = BLOCKING_PATIENCE_S
    ) -> Any:
        """The same as `run`, for a thread without an event loop; gives up within a heartbeat."""
        self.check_process()
        return self.wait_for(self.run(name, partition, request, patience_s=patience_s))

    def wait_for(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine on the loop of the client, and return its result to a thread without a loop."""
        try:
            return self.aside.submit(work).result()
        except CancelledError:
            raise StoreUnavailable("the store was closed during the call; whether it was done is unknown") from None

    def run_blocking_each(self, name: str, requests: Mapping[int, dict[str, Any]]) -> dict[int, Any]:
        """The same as `run_blocking`, for several partitions concurrently. The responses include StoreUnavailable."""
        self.check_process()
        answers = self.wait_for(self._run_each(name, requests)) if requests else []
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, StoreUnavailable):
                raise answer
        return dict(zip(requests, answers, strict=True))

    async def _run_each(self, name: str, requests: Mapping[int, dict[str, Any]]) -> list[Any]:
        patience_s = BLOCKING_PATIENCE_S if self.partitions == 1 else SHORT_PATIENCE_S
        asked = (self.run(name, place, request, patience_s=patience_s) for place, request in requests.items())
        return await asyncio.gather(*asked, return_exceptions=True)

    async def ask(self, partition: int, *commands: Command, patience_s: float | None = None) -> list[Any]:
        """Send plain commands in one round trip, not a transaction. Raises the first error among the responses."""
        patience = CallDeadline(patience_s or self.settings.patience_s)
        answers = await self._calls.converse(partition, commands, patience, together=False)
        await self._raise_first(answers, partition)
        return answers

    async def time(self, partition: int, *, patience_s: float | None = None) -> int:
        """Return the current time in ms, for commands that are not scripts."""
        [answer] = await self.ask(partition, ("TIME",), patience_s=patience_s)
        return self.time_in(answer)

    def time_in(self, answer: tuple[bytes, bytes]) -> int:
        """Return the current time in ms, given the answer to TIME."""
        if self.clock is not self.server_clock:
            return self.clock.now()
        return int(answer[0]) * 1000 + int(answer[1]) // 1000

    async def primaries(self) -> Sequence[RedisAddress]:
        """All primaries; the partitions are distributed over them."""
        if not self._topology.primaries():
            await self.ask(0, ("PING",))
        if self.place.kind is TopologyKind.CLUSTER:
            await self._calls.learn(self._connections.of_this_loop(), None)
        return self._topology.primaries()

    async def ask_node(self, address: RedisAddress, *commands: Command) -> list[Any]:
        """Send plain commands to one server, without retries. The responses include server errors."""
        try:
            node = self._connections.of_this_loop().server(address)
            return await node.exchange(commands, self.settings.command_timeout_s)
        except FAILURES as error:
            raise translated(error, address) from error

    def where(self, partition: int) -> RedisAddress | None:
        """The server that holds the partition, if known."""
        return self._topology.where(partition)

    def verified(self, partition: int) -> VerifiedClock | bool:
        """What this process knows of the clock of a partition: the field `clock` of requests that judge leases."""
        return self.server_clock.verified(partition, self._topology.where(partition))

    def measure_soon(self, partition: int) -> None:
        """Have the next exchange with the server of a partition measure its time."""
        self.server_clock.measure_soon(self._topology.where(partition))

    async def connect(self, partition: int, *, patience_s: float | None = None) -> RedisConnection:
        """Open a connection for the exclusive use of the caller, to the server of a partition."""
        await self.ask(partition, ("PING",), patience_s=patience_s)  # refreshes the topology if needed
        address = self._topology.where(partition)
        assert address is not None  # this server has just responded
        try:
            async with asyncio.timeout(self.settings.command_timeout_s):
                return await self._connector.to_server(address)
        except FAILURES as error:
            raise translated(error, address) from error

    def check_process(self) -> None:
        """Raise StoreUnsupported in a process that was forked from the one that created the client."""
        self._connections.check_process()

    async def close(self) -> None:
        if self.direct is not None:
            self.direct.close()
        await self._connections.close()
        await asyncio.to_thread(self.aside.close)

    def _confirming(self, partition: int, patience: CallDeadline) -> list[Command]:
        """Commands that wait until replicas have all writes so far.

        WAIT covers only writes of its own connection. INCR makes sure that there is one: the script might find that
        its request was already executed over a closed connection.
        """
        touched = f"{self.names[partition].prefix}confirms"
        wait_s = min(self.settings.confirm_timeout_s, patience.whole_s / 4)  # ends before the attempt times out
        return [("INCR", touched), ("WAIT", self.settings.replicas, max(1, int(wait_s * 1000)))]

    def _check_confirmed(self, answer: Any, confirming: Sequence[Any]) -> None:
        touched, replicas = confirming
        confirmed = 0 if isinstance(touched, ServerError) or isinstance(replicas, ServerError) else int(replicas)
        if confirmed < self.settings.replicas:
            raise NotConfirmed(
                f"the work is accepted, but only {confirmed} of {self.settings.replicas} replicas have confirmed it"
                " in time. It is lost if the primary dies before they have it. Repeating the call is safe; to enqueue"
                " needs a key, or there are two tasks",
                answer=answer,
            )

    async def _raise_first(self, answers: Sequence[Any], partition: int) -> None:
        for answer in answers:
            if isinstance(answer, ServerError):
                error = translated(answer, self.where(partition))
                if isinstance(error, StoreCorrupt):
                    self.wrong_types = True
                    error = StoreCorrupt(f"{error.detail}. {await self._spoiled(partition)}")
                raise error from answer

    async def _spoiled(self, partition: int) -> str:
        """Sentences that name the keys of a wrong type."""
        deadline, converse = CallDeadline(self.settings.patience_s), self._calls.converse
        ask = partial(converse, partition, patience=deadline, together=False)
        found = "; ".join(await wrong_type_keys(ask, self.names[partition]))
        return found or "Which key it is could not be found: it may be that of a single task"

    def _arguments(self, partition: int, request: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of EVALSHA. Two keys are declared: one that always exists and one that never does.

        While a slot migrates, a server rejects calls if it has only some of their keys. So no script ever runs on
        half of its partition.
        """
        names = self.names[partition]
        if self.clock is not self.server_clock:
            request = {"now": self.clock.now(), "steady": self.clock.steady(), **request}
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


def _topology(place: RedisLocation, names: Sequence[KeyNames]) -> Topology:
    match place.kind:
        case TopologyKind.SERVER:
            return FixedServer(place.addresses[0])
        case TopologyKind.SENTINEL:
            return SentinelServer(place.addresses, place.service)
        case TopologyKind.CLUSTER:
            return SlotMap(place.addresses, [each.prefix for each in names])

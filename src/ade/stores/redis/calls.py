"""Calls to a partition: sent to whoever holds it now, and again for as long as the caller is patient."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ade.core.errors import StoreError, StoreUnavailable
from ade.stores.redis.failures import FAILURES, code_of, passes, translated
from ade.stores.redis.loops import ConnectionsByLoop
from ade.stores.redis.nodes import Nodes
from ade.stores.redis.topologies import NotFound, Topology
from ade.stores.redis.urls import Address
from ade.stores.redis.wire import Command, ServerError

_LEARNING_S = 4.0
_LEARN_AGAIN_S = 0.1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.4
_STAY = {"MOVED", "ASK", "TRYAGAIN", "BUSY", "UNKILLABLE", "NOREPLICAS"}  # nothing more is to be learnt after these
_NEVER = float("inf")
_OPEN: Any = object()  # the answer to a command that has none yet


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a try did not give all answers."""

    address: Address | None
    error: StoreError
    elsewhere: bool = True  # whether another server may hold the partition by now


class Patience:
    """How long a caller is willing to wait, from now on."""

    __slots__ = ("_deadline", "whole_s")

    def __init__(self, whole_s: float) -> None:
        self.whole_s = whole_s
        self._deadline = _time() + whole_s

    def left_s(self) -> float:
        return self._deadline - _time()

    def of_try(self, most_s: float) -> float:
        return max(min(most_s, self.left_s()), 0.001)


@dataclass(slots=True)
class _Call:
    """Commands for one partition and the answers so far. Those that belong together are sent together again."""

    partition: int
    commands: Sequence[Command]
    together: bool
    patience: Patience
    try_s: float
    answers: list[Any]

    def open(self) -> list[int]:
        waiting = [number for number, answer in enumerate(self.answers) if answer is _OPEN]
        return list(range(len(self.commands))) if self.together and waiting else waiting

    def limit_s(self) -> float:
        """How long the next exchange may take."""
        return self.patience.of_try(self.try_s)


class Calls:
    """The one place that sends again. Everything sent through it must be safe to repeat."""

    def __init__(self, topology: Topology, connections: ConnectionsByLoop, command_timeout_s: float) -> None:
        self._topology = topology
        self._connections = connections
        self._command_timeout_s = command_timeout_s
        self._problem = "no server was found yet"

    async def converse(
        self, partition: int, commands: Sequence[Command], patience: Patience, *, together: bool
    ) -> list[Any]:
        """All answers, the lasting errors of the server among them. Raises StoreUnavailable when patience ends."""
        try_s = min(self._command_timeout_s, patience.whole_s / 2)  # a lost answer leaves time for another try
        address = self._topology.where(partition)
        answers: list[Any] | Exception = ConnectionError("no server was asked yet")
        if address is not None:  # the first try in as few steps as there are: it nearly always has all answers
            try:
                answers = await self._nodes().server(address).exchange(commands, patience.of_try(try_s))
                if ServerError not in map(type, answers):
                    return answers
            except FAILURES as error:
                answers = error
        call = _Call(partition, commands, together, patience, try_s, [_OPEN] * len(commands))
        return await self._persist(call, await self._judge(call, address, call.open(), answers))

    async def _persist(self, call: _Call, trouble: Trouble | None) -> list[Any]:
        """Try again until no command is without an answer."""
        pauses, patience = _pauses(), call.patience
        while trouble is not None:
            pause = next(pauses)
            if pause >= patience.left_s():
                raise StoreUnavailable(f"{trouble.error.detail} (tried for {patience.whole_s:g} s)") from trouble.error
            if trouble.elsewhere:
                await self._learn_soon(self._nodes(), trouble.address, patience)
            await asyncio.sleep(pause)
            trouble = await self._attempt(call)
        return call.answers

    def _nodes(self) -> Nodes:
        """Those of this loop, with an eye on whether they are still the right ones."""
        nodes = self._connections.of_this_loop()
        if self._topology.recheck_s != _NEVER and _time() - nodes.learnt_at > self._topology.recheck_s:
            self._recheck(nodes)
        return nodes

    async def learn(self, nodes: Nodes, failed: Address | None) -> None:
        """Find out anew who holds what; nothing changes if that is not possible now."""
        try:
            async with asyncio.timeout(_LEARNING_S):
                await self._topology.learn(nodes, failed)
        except NotFound as error:
            self._problem = str(error)
        except TimeoutError:
            self._problem = "nobody told in time which servers there are"

    def _recheck(self, nodes: Nodes) -> None:
        """Look again beside the traffic."""
        if nodes.rechecking is None or nodes.rechecking.done():
            nodes.rechecking = asyncio.create_task(self._learn_aside(nodes))

    async def _learn_aside(self, nodes: Nodes) -> None:
        with suppress(StoreError):  # whoever needs the answer will ask again and be told
            async with nodes.learning:
                await self.learn(nodes, None)
                nodes.learnt_at = _time()

    async def _learn_soon(self, nodes: Nodes, failed: Address | None, patience: Patience) -> None:
        """One of this loop's callers finds out, the others wait for it and use what it has learnt."""
        begun = _time()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.left_s()), nodes.learning:
                if nodes.learnt_at < begun - _LEARN_AGAIN_S:
                    await self.learn(nodes, failed)
                    nodes.learnt_at = _time()

    async def _attempt(self, call: _Call) -> Trouble | None:
        """One round trip to whoever holds the partition."""
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
        self, call: _Call, address: Address | None, numbers: list[int], answers: list[Any] | Exception
    ) -> Trouble | None:
        """What an attempt has brought. Errors that no waiting mends are raised or left as answers."""
        if address is None:
            return Trouble(None, StoreUnavailable(self._problem))
        try:
            if isinstance(answers, Exception):
                raise answers
            answers = await self._follow(self._nodes(), address, call, numbers, answers)
        except FAILURES as error:
            failure = translated(error, address)
            if passes(error):
                return Trouble(address, failure)
            raise failure from error
        return self._take(call, address, numbers, answers)

    def _take(self, call: _Call, address: Address, numbers: list[int], answers: list[Any]) -> Trouble | None:
        trouble = None
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, ServerError) and passes(answer):
                if answer.code == "MOVED":
                    self._topology.moved(call.partition, _target(answer, address))
                trouble = Trouble(address, translated(answer, address), elsewhere=code_of(answer) not in _STAY)
                call.answers[number] = _OPEN
            else:
                call.answers[number] = answer
        return trouble

    async def _follow(
        self, nodes: Nodes, address: Address, call: _Call, numbers: list[int], answers: list[Any]
    ) -> list[Any]:
        """While a slot is on its way, its old owner sends us to the new one for what it no longer has."""
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


def _target(error: ServerError, asked: Address) -> Address:
    """Where a redirection (`MOVED slot host:port`) leads; without a host it means the one that was asked."""
    host, _, port = str(error).split()[2].rpartition(":")
    return Address(host or asked.host, int(port))


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * (0.5 + random.random())
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _time() -> float:
    return asyncio.get_running_loop().time()

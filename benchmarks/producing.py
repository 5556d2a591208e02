"""Calls a contestant's producer in the ways that are measured, blocking or awaited; all times are in seconds."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from benchmarks.contract import AsyncClient, BlockingClient, Connection, NotOffered

NO_PRIORITIES = "no priorities"


class Producer(ABC):
    """The measured ways to call a producer; opening it is never timed."""

    @abstractmethod
    def one_by_one(self, texts: Sequence[str]) -> float:
        """Time for one caller that waits for each task to be durable before the next."""

    @abstractmethod
    def in_flight(self, texts: Sequence[str], callers: int) -> float:
        """Time when that many callers do the same at once in one process."""

    @abstractmethod
    def many(self, texts: Sequence[str], batch: int) -> float:
        """Time in batches, by the library's bulk call if it has one."""

    @abstractmethod
    def mixed(self, texts: Sequence[str], priorities: int) -> None:
        """All of them with that many priorities, not timed."""

    @abstractmethod
    def at(self, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        """Each text at its moment (seconds from now); answers the monotonic nanoseconds before each call."""


def producer_of(connection: Connection) -> Producer:
    if isinstance(connection, AbstractAsyncContextManager):
        return AsyncProducer(connection)
    return BlockingProducer(connection)


class BlockingProducer(Producer):
    def __init__(self, connection: AbstractContextManager[BlockingClient]) -> None:
        self._connection = connection

    def one_by_one(self, texts: Sequence[str]) -> float:
        with self._connection as client:
            return _time_puts(client, texts)

    def in_flight(self, texts: Sequence[str], callers: int) -> float:
        with self._connection as client:
            if client.not_for_threads:
                raise NotOffered(client.not_for_threads)
            with ThreadPoolExecutor(callers) as pool:
                began = time.perf_counter()
                list(pool.map(lambda share: _time_puts(client, share), _shares(texts, callers)))
                return time.perf_counter() - began

    def many(self, texts: Sequence[str], batch: int) -> float:
        with self._connection as client:
            if client.put_many is None:
                return _time_puts(client, texts)
            began = time.perf_counter()
            for part in _parts(texts, batch):
                client.put_many(part)
            return time.perf_counter() - began

    def mixed(self, texts: Sequence[str], priorities: int) -> None:
        with self._connection as client:
            if client.put_mixed is None:
                raise NotOffered(NO_PRIORITIES)
            client.put_mixed(texts, priorities)

    def at(self, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        calls: list[int] = []
        with self._connection as client:
            began = time.monotonic()
            for moment, text in zip(moments, texts, strict=True):
                time.sleep(max(0.0, began + moment - time.monotonic()))
                calls.append(time.monotonic_ns())
                client.put(text)
        return calls


class AsyncProducer(Producer):
    def __init__(self, connection: AbstractAsyncContextManager[AsyncClient]) -> None:
        self._connection = connection

    def one_by_one(self, texts: Sequence[str]) -> float:
        return self.in_flight(texts, callers=1)

    def in_flight(self, texts: Sequence[str], callers: int) -> float:
        async def enqueue() -> float:
            async with self._connection as client:
                began = time.perf_counter()
                await asyncio.gather(*(_await_puts(client, share) for share in _shares(texts, callers)))
                return time.perf_counter() - began

        return asyncio.run(enqueue())

    def many(self, texts: Sequence[str], batch: int) -> float:
        async def enqueue() -> float:
            async with self._connection as client:
                began = time.perf_counter()
                for part in _parts(texts, batch):
                    await (_await_puts(client, part) if client.put_many is None else client.put_many(part))
                return time.perf_counter() - began

        return asyncio.run(enqueue())

    def mixed(self, texts: Sequence[str], priorities: int) -> None:
        async def enqueue() -> None:
            async with self._connection as client:
                if client.put_mixed is None:
                    raise NotOffered(NO_PRIORITIES)
                for part in _parts(texts, 1000):
                    await client.put_mixed(part, priorities)

        asyncio.run(enqueue())

    def at(self, moments: Sequence[float], texts: Sequence[str]) -> list[int]:
        async def enqueue() -> list[int]:
            calls: list[int] = []
            async with self._connection as client:
                began = time.monotonic()
                for moment, text in zip(moments, texts, strict=True):
                    await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
                    calls.append(time.monotonic_ns())
                    await client.put(text)
            return calls

        return asyncio.run(enqueue())


def gathered(put: Callable[[str], Awaitable[object]], width: int) -> Callable[[Sequence[str]], Awaitable[None]]:
    """What a library without a bulk call leaves to its users: so many awaited calls at once."""

    async def put_many(texts: Sequence[str]) -> None:
        for part in _parts(texts, width):
            await asyncio.gather(*(put(text) for text in part))

    return put_many


def random_moments(rate: float, seconds: float, seed: int) -> list[float]:
    """About `rate` moments a second at random distances, so that no polling interval can fall in step."""
    randomness = random.Random(seed)
    moments: list[float] = []
    moment = 0.0
    while (moment := moment + randomness.uniform(0.2, 1.8) / rate) < seconds:
        moments.append(moment)
    return moments


def _time_puts(client: BlockingClient, texts: Sequence[str]) -> float:
    put = client.put
    began = time.perf_counter()
    for text in texts:
        put(text)
    return time.perf_counter() - began


async def _await_puts(client: AsyncClient, texts: Sequence[str]) -> None:
    put = client.put
    for text in texts:
        await put(text)


def _shares(texts: Sequence[str], callers: int) -> list[Sequence[str]]:
    return [texts[start::callers] for start in range(callers)]


def _parts(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]

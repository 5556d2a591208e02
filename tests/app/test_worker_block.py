"""A worker beside the program's own code."""

import asyncio
from pathlib import Path

import pytest

from ade import Ade, Status
from ade.errors import InvalidTask


async def test_a_worker_lives_as_long_as_its_block(tmp_path: Path) -> None:
    ade = Ade(f"sqlite:///{tmp_path / 'ade.db'}")

    @ade.task()
    async def double(number: int) -> int:
        return 2 * number

    async with ade:
        async with ade.worker():
            assert await (await double.enqueue(21)).result(timeout=30) == 42
        late = await double.enqueue(1)
        assert await late.status() is Status.PENDING
        assert await (await ade.open()).stores.workers.list_workers() == []


async def test_a_worker_that_fails_ends_its_block_and_says_why(tmp_path: Path) -> None:
    ade = Ade(f"sqlite:///{tmp_path / 'ade.db'}")

    @ade.task(cpu=True)
    def hidden() -> None: ...

    async with ade:
        with pytest.raises(InvalidTask, match="must be defined at the top"):
            async with ade.worker():
                await (await hidden.enqueue()).result()
        await asyncio.sleep(0)  # nothing of the cancellation is left


async def test_a_block_that_is_cancelled_from_outside_ends_as_cancelled(tmp_path: Path) -> None:
    ade, waiting = Ade(f"sqlite:///{tmp_path / 'ade.db'}"), asyncio.Event()

    @ade.task()
    async def later() -> None: ...

    async def block() -> None:
        async with ade, ade.worker():
            waiting.set()
            await asyncio.Event().wait()

    job = asyncio.create_task(block())
    await waiting.wait()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job

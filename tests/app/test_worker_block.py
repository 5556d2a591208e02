"""A worker beside the program's own code."""

from pathlib import Path

from ade import Ade, Status


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

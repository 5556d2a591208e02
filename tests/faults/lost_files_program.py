"""Enqueues until a write is refused, then keeps the store open: `python -m tests.faults.lost_files_program`.

It prints the ID of every task that was accepted, and the refusal.
"""

import asyncio
import signal

from ade import Ade
from ade.errors import StoreError

ade = Ade()


@ade.task
async def send(number: int) -> int:
    """Any work."""
    return number


async def main() -> None:
    """Enqueue, one task after the other."""
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
    async with ade:
        count = 0
        while not is_over.is_set():
            count += 1
            try:
                task = await send.enqueue(count)
            except StoreError as error:
                print("refused", error.code, str(error), flush=True)
                await is_over.wait()
            else:
                print("accepted", task.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main())

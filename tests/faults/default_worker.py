"""A worker with every setting at its default: `python -m tests.faults.default_worker`, with ADE_STORE__URL set."""

from pathlib import Path

from ade import Ade, Context
from tests.faults.worker_program import note
from tests.waiting import gate_opens

ade = Ade()


@ade.task
async def build(ctx: Context, journal: str, go_on: str) -> str:
    """The first run waits for a file to appear, a second one does not."""
    note(journal, f"began-{ctx.attempt}")
    if ctx.attempt == 1:
        await gate_opens(Path(go_on))
    note(journal, f"ended-{ctx.attempt}")
    return f"built by attempt {ctx.attempt}"


if __name__ == "__main__":
    ade.run_worker()

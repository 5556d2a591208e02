"""Something like a worker, to be killed: runs one unruly program and passes on what that says."""

import asyncio
import os
import sys
from pathlib import Path

from ade.agents.processes.process import ProcessSpec, run_process
from ade.agents.runs.spec import ProcessLimits


async def main() -> None:
    async def pass_on(_stream: str, data: bytes) -> None:
        os.write(1, data)

    unruly = str(Path(__file__).with_name("unruly.py"))
    spec = ProcessSpec(
        arguments=[sys.executable, unruly, *sys.argv[1:]],
        directory=Path.cwd(),
        environment=dict(os.environ),
        limits=ProcessLimits(grace_s=60.0),
    )
    await run_process(spec, on_bytes=pass_on)


if __name__ == "__main__":
    asyncio.run(main())

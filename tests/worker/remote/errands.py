"""An app for workers that are processes of their own; what it does is left in a file."""

import os
import time
from pathlib import Path

from ade import Ade, SyncContext
from tests import waiting

app = Ade()


def note(journal: str, *words: object) -> None:
    """One line, written whole."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{' '.join(map(str, words))} {os.getpid()}\n".encode())
    os.close(descriptor)


@app.task(max_attempts=5)
def errand(journal: str, number: int, until: str = "") -> int:
    """Waits for the file `until`, if there is one to wait for."""
    note(journal, "began", number)
    if until:
        waiting.until(Path(until).exists, "the gate", 600.0)
    note(journal, "ended", number)
    return number * number


@app.task
async def block(journal: str, number: int, seconds: float) -> int:
    """What no async function should do."""
    note(journal, "began", number)
    time.sleep(seconds)  # noqa: ASYNC251 # see above
    return number


@app.task(cpu=True)
def compute(journal: str, number: int, ctx: SyncContext) -> int:
    note(journal, "began", number)
    ctx.log("computed")
    return -number

"""A function for child processes: it must be found by import."""

import os

from ade import SyncContext


def told(ctx: SyncContext) -> list[str | None]:
    return [ctx.trace, os.environ.get("TRACEPARENT")]

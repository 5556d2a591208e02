"""A function for child processes: it must be found by import."""

import os

from ade import SyncContext


def compute(number: int, ctx: SyncContext) -> dict[str, int]:
    ctx.progress({"half": number // 2})
    ctx.log("computed", number=number)
    return {"square": number * number, "pid": os.getpid()}

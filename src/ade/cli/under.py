"""A command that runs under a lock: in a group of processes of its own, which ends when the lock is lost."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import click
import msgspec

from ade.worker.kinship import hear_of_parents_end

_GRACE_S = 5.0


class Held(Protocol):
    """A lock of this machine's store, or one that a server lends."""

    @property
    def id(self) -> str: ...

    @property
    def resources(self) -> tuple[str, ...]: ...

    def token(self, resource: str | None = None) -> int: ...


async def run_under(lock: AbstractAsyncContextManager[Held], command: Sequence[str]) -> int:
    """The exit code of the command. Raises LockLost when it had to be ended because of that."""
    async with lock as held:
        process = await _start(command, _environment(held))
        try:
            return _as_shells_do(await process.wait())
        finally:
            await _end(process)


async def _start(command: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    except FileNotFoundError:
        raise click.UsageError(f"there is no program {command[0]!r}; write the command behind `--`.") from None
    except OSError as error:
        raise click.UsageError(f"{command[0]!r} cannot be started: {error.strerror}.") from None


def _end_with_parent() -> None:
    """Should we be killed, nobody renews the lock: what it protects must not go on."""
    hear_of_parents_end(signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """The whole group: what the command has started holds nothing any more either."""
    _signal(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _environment(held: Held) -> dict[str, str]:
    tokens = {resource: held.token(resource) for resource in held.resources}
    known = {"ADE_LOCK_ID": held.id, "ADE_LOCK_TOKENS": msgspec.json.encode(tokens).decode()}
    if len(tokens) == 1:
        known["ADE_LOCK_TOKEN"] = str(next(iter(tokens.values())))
    return {**os.environ, **known}


def _as_shells_do(code: int) -> int:
    return code if code >= 0 else 128 - code

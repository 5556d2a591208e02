"""`ade wait`: until tasks are final."""

import click

from ade.cli.finishing import wait_for
from ade.cli.ids import find_ids
from ade.cli.parsing import DURATION
from ade.cli.session import Session
from ade.cli.shared import command, pass_session


@command("wait")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=DURATION, help="Give up after so long (90s, 5m); the tasks go on.")
@pass_session
def wait(session: Session, task_ids: tuple[str, ...], timeout: float | None) -> int:
    """Wait until tasks are final and print their results, each when it is there.

    Exit code 0 when all completed, 1 when one did not, 124 when the time was up.
    """
    return session.run(_wait(session, task_ids, timeout))


async def _wait(session: Session, texts: tuple[str, ...], timeout: float | None) -> int:
    async with session.api() as api:
        return await wait_for(session, api, await find_ids(api, texts), timeout)

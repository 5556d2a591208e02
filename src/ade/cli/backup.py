"""`ade backup`: a consistent copy while work goes on."""

from pathlib import Path

import click

from ade.cli.progress import progress
from ade.cli.session import Session
from ade.cli.shared import command, pass_session


@command("backup")
@click.argument("target", type=click.Path(dir_okay=False))
@pass_session
def backup(session: Session, target: str) -> None:
    """Copy the store to the new file TARGET while it is in use. The file appears when it is whole."""
    _check(target)
    session.run(_backup(session, target))
    size = Path(target).stat().st_size
    if session.out.as_json:
        session.out.document({"target": str(Path(target).absolute()), "bytes": size})
    else:
        session.out.line(f"{target}: {size:,} bytes. To use it, name it as the store: --store sqlite:///{target}")


def _check(target: str) -> None:
    """Whether this can be the name of a new file."""
    try:
        exists = Path(target).exists()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise click.UsageError(f"{target[:60]!r} cannot be a file: {reason}.") from None
    if exists:
        raise click.UsageError(f"{target} exists already; name a new file for the backup.")


async def _backup(session: Session, target: str) -> None:
    async with session.stores() as stores:
        with progress(session, "Copying pages") as bar:
            async for done, total in stores.upkeep.backup(target):
                bar.move(done, total)

"""A progress bar on stderr where people watch; elsewhere nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from ade.cli.session import Session


class Bar:
    """Told how far it is; draws nothing by itself."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0

    def advance(self, by: int = 1) -> None:
        self.move(self.done + by, self.total)

    def move(self, done: int, total: int) -> None:
        self.done, self.total = done, total


@contextmanager
def progress(session: Session, what: str, total: int = 0) -> Iterator[Bar]:
    """A bar for work of `total` steps; 0 when it is not known yet."""
    if not session.out.shows_progress:
        bar = Bar()
        bar.total = total
        yield bar
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class DrawnBar(Bar):
        def move(self, done: int, total: int) -> None:
            super().move(done, total)
            drawn.update(line, completed=done, total=total or None)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        line = drawn.add_task(what, total=total or None)
        bar = DrawnBar()
        bar.total = total
        yield bar

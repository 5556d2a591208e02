"""Lines that runs write, on their way to the server."""

import time
from collections.abc import Iterator, Sequence

from ade.app.remote_worker.reach import is_passing
from ade.client.client import Client
from ade.core.accounts.errors import NotAuthenticated
from ade.core.approvals.refusals import NotPermitted
from ade.core.errors import AdeError, NeedsStore, StaleLease, StoreUnavailable
from ade.core.records import OutputLine
from ade.core.web.forms.work import OutputText

_MOST, _MOST_TEXT = 1_000, 1 << 20  # lines and characters in one request
_LONGEST = 65_536  # of a line, as the server takes it


class LinesOverHttp:
    """Where the worker's OutputBuffer stores its lines."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sent: set[int] = set()  # lines of a call that failed half-way: the buffer brings them again

    async def append(self, lines: Sequence[OutputLine]) -> None:
        """Raises StoreUnavailable while the server is away."""
        by_run: dict[tuple[str, str], list[OutputLine]] = {}
        for line in lines:
            if id(line) not in self._sent:
                by_run.setdefault((line.run_id, line.task_id), []).append(line)
        for (run_id, task_id), own in by_run.items():
            for part in _parts(own):
                await self._send(run_id, task_id, part)
                self._sent.update(map(id, part))
        self._sent.difference_update(map(id, lines))

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        raise NeedsStore("a worker behind HTTP writes lines and reads none")

    async def _send(self, run_id: str, task_id: str, lines: Sequence[OutputLine]) -> None:
        texts = [OutputText(text=line.text[:_LONGEST], stream=line.stream) for line in lines]
        try:
            await self._client.append_output(run_id, task_id=task_id, lines=texts)
        except StaleLease:
            return  # nobody wants to read them under a run that is not its own any more
        except AdeError as error:
            # A token, too, may be good again later.
            if is_passing(error) or isinstance(error, NotAuthenticated | NotPermitted):
                raise StoreUnavailable(error.detail) from error
            raise


def _parts(lines: Sequence[OutputLine]) -> Iterator[list[OutputLine]]:
    part: list[OutputLine] = []
    size = 0
    for line in lines:
        length = min(len(line.text), _LONGEST)
        if part and (len(part) == _MOST or size + length > _MOST_TEXT):
            yield part
            part, size = [], 0
        part.append(line)
        size += length
    yield part


class MachineClock:
    """The server gives lines their time; this is for what is only kept here."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000

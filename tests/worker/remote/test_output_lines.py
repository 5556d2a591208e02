"""Lines on their way to a server that does not take them now."""

import json

import pytest

from ade.worker.output_buffer import _IN_PLACE as NOT_STORED
from ade.worker.output_buffer import OutputBuffer
from ade.worker.remote.connection import HttpOutputStore, LocalClock
from tests.client.scripted_server import TASK, Story, problem_answer, story
from tests.common.http.servers import answer

TAKEN = answer(b"", status="204 No Content")


@pytest.mark.parametrize(
    "refused", [(401, "not_authenticated"), (403, "not_permitted"), (503, "store_unavailable"), (502, "bad_gateway")]
)
async def test_lines_are_kept_for_a_server_or_a_token_that_comes_back(refused: tuple[int, str]) -> None:
    async with story(problem_answer(*refused), TAKEN) as told:
        outputs = OutputBuffer(HttpOutputStore(told.client), LocalClock())
        for text in ("one", "two"):
            await outputs.add(TASK.id, "run", 1, text)
        await outputs.flush()
        assert len(outputs) == 2
        await outputs.flush()
        assert (len(outputs), outputs.dropped, len(told.lines)) == (0, 0, 2)


async def test_what_was_taken_is_not_sent_again_because_of_what_was_not() -> None:
    no = problem_answer(422, "invalid_body")
    async with story(TAKEN, no, no, TAKEN) as told:
        outputs = OutputBuffer(HttpOutputStore(told.client), LocalClock())
        for run, text in (("good", "one"), ("good", "two"), ("bad", "what nobody takes")):
            await outputs.add(TASK.id, run, 1, text)
        await outputs.flush()
        assert outputs.dropped == 0
        assert sent(told) == [["one", "two"], ["what nobody takes"], ["what nobody takes"], [NOT_STORED]]


async def test_long_lines_are_cut_and_much_text_goes_in_several_requests() -> None:
    async with story(TAKEN, TAKEN) as told:
        outputs = OutputBuffer(HttpOutputStore(told.client), LocalClock())
        for _ in range(20):
            await outputs.add(TASK.id, "run", 1, "x" * 100_000)
        await outputs.flush()
        assert [[len(text) for text in texts] for texts in sent(told)] == [[65_536] * 16, [65_536] * 4]


def sent(told: Story) -> list[list[str]]:
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in told.server.asked]
    return [[line["text"] for line in body["lines"]] for body in bodies]

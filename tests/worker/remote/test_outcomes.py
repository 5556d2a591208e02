"""What a worker behind HTTP says about tasks means the same to the server as it does here."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ade import Ade, Backoff, Task, read
from ade.tasks.enqueue import make_plan
from ade.tasks.option_values import parse_rate
from ade.tasks.options import new_definition_of, new_task_of
from tests.depth import examples
from tests.domain import Definition

_UNITS_MS = (1_000, 60_000, 3_600_000, 86_400_000)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 999), st.sampled_from(_UNITS_MS))
def test_a_rate_is_read_as_it_was_meant(count: int, times: int, unit_ms: int) -> None:
    definition = Definition(name="x", rate_count=count, rate_period_ms=times * unit_ms)
    written = new_definition_of(definition).rate
    assert written is not None
    assert parse_rate(written) == (count, times * unit_ms)


async def test_a_child_is_the_same_wherever_it_is_enqueued() -> None:
    app, soon = Ade("memory://"), datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    @app.task(timeout=9, needs=["smtp"])
    async def send(to: str) -> None: ...

    chosen = send.with_options(
        queue="mail",
        priority=2,
        run_at=soon,
        deadline=soon + timedelta(hours=1),
        key="letter-7",
        tags=["a", "b"],
        description="a letter",
        max_attempts=4,
        backoff=Backoff(base_ms=5, cap_ms=50),
        result_ttl=60,
        concurrency_key="ada",
        locks=["smtp:main", read("db:people")],
        team="post",
        ticket="T-1",
        approval="two",
        resources=["db:people"],
        rollback="manual",
        start="by_hand",
        window=(soon, soon + timedelta(hours=2)),
    )
    made = chosen.make_task("ada")
    form = new_task_of(made)
    template = app.template_of(Definition(name="send"))
    theirs = make_plan(template, form.options()).template  # type: ignore[arg-type] # as the server reads them
    known = ("id", "args", "created_at", "updated_at", "status", "args_digest", "version", "run_after", "review")
    assert _without(theirs, known) == _without(made, known)
    assert (theirs.run_after, form.args) == (made.run_after, {"to": "ada"})
    assert theirs.review is not None
    assert made.review is not None
    for name in ("policies", "start", "not_before", "not_after"):
        assert getattr(theirs.review, name) == getattr(made.review, name)


def _without(task: Task, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in structs.asdict(task).items() if name not in names}

"""People look: lists page by page, counters, and why something waits."""

from typing import Any

import pytest
from msgspec import structs

from ade import Status, read, write
from ade.tasks.decisions import discard, edit
from tests.conformance.scene import Scene
from tests.domain import Queue, ReadScope, TaskQuery


async def found(scene: Scene, **conditions: object) -> list[str]:
    query = TaskQuery(**conditions)  # type: ignore[arg-type]  # any condition, by its name
    return [task.id for task in (await scene.stores.tasks.find(query)).tasks]


async def test_tasks_are_got_in_the_order_asked(scene: Scene) -> None:
    one, two = await scene.add_many(2)
    nobody = scene.task().id

    answers = await scene.stores.tasks.get([two.id, nobody, one.id, two.id])

    assert answers == [two, None, one, two]
    assert await scene.stores.tasks.get([]) == []


async def test_the_newest_tasks_are_listed_first(scene: Scene) -> None:
    tasks = [task.id for task in await scene.add_many(3)]

    assert await found(scene) == tasks[::-1]
    assert await found(scene, oldest_first=True) == tasks


@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize("statuses", [frozenset(), frozenset({Status.CANCELLED, Status.FAILED})])
async def test_pages_follow_each_other_without_gap_or_repetition(
    scene: Scene, oldest_first: bool, statuses: frozenset[Status]
) -> None:
    tasks = [task.id for task in await scene.add_many(7)]
    for task_id in tasks:
        await scene.cancel(task_id)
    seen: list[str] = []
    after = None
    while True:
        query = TaskQuery(limit=3, after=after, oldest_first=oldest_first, statuses=statuses)
        page = await scene.stores.tasks.find(query)
        seen += [task.id for task in page.tasks]
        if page.next is None:
            break
        after = page.next
        await scene.add()  # new tasks do not disturb who is paging

    assert [task_id for task_id in seen if task_id in tasks] == (tasks if oldest_first else tasks[::-1])


async def test_tasks_are_found_by_status(scene: Scene) -> None:
    await scene.add_many(3)
    running, _, failing = await scene.claim(3)
    await scene.fail_for_good(failing)
    pending, draft = await scene.add(), await scene.add(status=Status.DRAFT)

    assert await found(scene, statuses=frozenset({Status.PENDING})) == [pending.id]
    assert running.id in await found(scene, statuses=frozenset({Status.RUNNING}))
    assert len(await found(scene, statuses=frozenset({Status.RUNNING}))) == 2
    assert await found(scene, statuses=frozenset({Status.FAILED})) == [failing.id]
    assert await found(scene, statuses=frozenset({Status.FAILED, Status.DRAFT})) == [draft.id, failing.id]
    assert await found(scene, statuses=frozenset({Status.FAILED, Status.PENDING})) == [pending.id, failing.id]
    assert await found(scene, statuses=frozenset({Status.REJECTED})) == []


async def test_tasks_are_found_by_what_is_known_of_them(scene: Scene) -> None:
    parent = await scene.add("report")
    child = await scene.add("build", queue="q", tags=("x", "y"), parent_id=parent.id, author_id="ann")
    scene.clock.advance(1)
    late = await scene.add("send", description="100% done_", tags=("y",))

    assert await found(scene, queue="q") == [child.id]
    assert await found(scene, name="send") == [late.id]
    assert await found(scene, tag="x") == [child.id]
    assert await found(scene, tag="y") == [late.id, child.id]
    assert await found(scene, parent_id=parent.id) == [child.id]
    assert await found(scene, author_id="ann") == [child.id]
    assert await found(scene, created_from=late.created_at) == [late.id]
    assert await found(scene, created_before=late.created_at) == [child.id, parent.id]
    assert await found(scene, queue="q", name="send") == []


async def test_tasks_are_found_by_what_they_change_or_lock(scene: Scene) -> None:
    changes = await scene.add(resources=("db:main", "service:web"))
    locks = await scene.add(locks=(write("db:main"), read("repo:app")))
    await scene.add(tags=("db:main",))

    assert await found(scene, resource="db:main") == [locks.id, changes.id]
    assert await found(scene, resource="service:web") == [changes.id]
    assert await found(scene, resource="repo:app") == [locks.id]
    assert await found(scene, resource="db") == []


async def test_tasks_are_found_by_worker(scene: Scene) -> None:
    mine = await scene.start(worker="w1")
    await scene.start(worker="w2")

    assert await found(scene, worker_id="w1", statuses=frozenset({Status.RUNNING})) == [mine.id]


async def test_text_is_looked_for_as_it_is_written(scene: Scene) -> None:
    done = await scene.add(description="100% done_")
    await scene.add(description="100 or done!")
    failing = await scene.start("build", priority=0)
    await scene.fail_for_good(failing)

    assert await found(scene, text="100%") == [done.id]
    assert await found(scene, text="DONE_") == [done.id]
    assert await found(scene, text="no luck") == [failing.id]
    assert await found(scene, text="build") == [failing.id]
    assert await found(scene, text="\\") == []


async def test_dead_letters_can_be_told_from_discarded_ones(scene: Scene) -> None:
    kept, dropped = [await scene.start() for _ in range(2)]
    for task in (kept, dropped):
        await scene.fail_for_good(task)
    await scene.stores.tasks.commit(discard(await scene.get(dropped.id), "known", now=scene.clock.now()))
    failed = frozenset({Status.FAILED})

    assert await found(scene, statuses=failed, discarded=False) == [kept.id]
    assert await found(scene, statuses=failed, discarded=True) == [dropped.id]
    assert await found(scene, statuses=failed) == [dropped.id, kept.id]


async def test_counters_tell_queue_name_and_status(scene: Scene) -> None:
    await scene.add_many(2, queue="a")
    await scene.add("build", queue="b")
    await scene.run(1, queues=("a",))

    tallies = await scene.stores.queues.tallies()

    assert [(t.queue, t.name, t.status, t.count) for t in tallies] == [
        ("a", "send", Status.COMPLETED, 1),
        ("a", "send", Status.PENDING, 1),
        ("b", "build", Status.PENDING, 1),
    ]


async def test_every_queue_used_or_configured_is_listed(scene: Scene) -> None:
    await scene.add(queue="used")
    await scene.stores.queues.configure(Queue(name="set", paused=True, max_depth=5))
    await scene.stores.queues.configure(Queue(name="used", max_depth=7))

    assert await scene.stores.queues.list_queues() == [
        Queue(name="set", paused=True, max_depth=5),
        Queue(name="used", max_depth=7),
    ]


async def test_a_limit_can_be_taken_back(scene: Scene) -> None:
    await scene.stores.queues.configure(Queue(name="a", max_depth=0))
    await scene.stores.queues.configure(Queue(name="a"))

    assert (await scene.add(queue="a")).queue == "a"


async def test_the_oldest_ready_task_of_a_queue_tells_how_long_it_waits(scene: Scene) -> None:
    created = scene.clock.now()
    await scene.add(queue="a", priority=9)
    delayed = await scene.add(queue="b", run_after=created + 5_000)
    scene.clock.advance(1)
    await scene.add("build", queue="a", priority=0)
    assert await scene.stores.queues.oldest_ready() == {"a": created}

    scene.clock.advance(5)
    await scene.claim(0)
    await scene.run(1, queues=("a",))

    assert await scene.stores.queues.oldest_ready() == {"a": created, "b": delayed.run_after}


async def test_a_task_knows_how_many_come_before_it(scene: Scene) -> None:
    await scene.add_many(2, "build")
    await scene.add(queue="other")
    task = await scene.add()
    await scene.add(priority=9)
    await scene.add(priority=0)

    assert await scene.stores.queues.ahead_of(task.id) == 3
    assert await scene.stores.queues.ahead_of(scene.task().id) == 0


async def test_the_health_of_a_store_is_a_list_of_facts(scene: Scene) -> None:
    await scene.start()

    health = await scene.stores.maintenance.health()

    assert health.facts
    assert health.warnings == []
    await scene.stores.maintenance.checkpoint()


async def test_tasks_are_found_by_team_and_by_ticket(scene: Scene) -> None:
    payments = await scene.add(team="payments", ticket_ref="OPS-7", needs=("gpu",))
    other = await scene.add(team="payments", ticket_ref="OPS-8 (second try)")
    search = await scene.add(name="build", team="search", ticket_ref="OPS-7")
    lone = await scene.add(ticket_ref="OPS-9")
    await scene.add()
    await scene.cancel(other.id)

    assert await found(scene, team="payments") == [other.id, payments.id]
    assert await found(scene, team="payments", oldest_first=True) == [payments.id, other.id]
    assert await found(scene, ticket_ref="OPS-7") == [search.id, payments.id]
    assert await found(scene, ticket_ref="OPS-7", team="search") == [search.id]
    assert await found(scene, team="payments", statuses=frozenset({Status.CANCELLED})) == [other.id]
    assert await found(scene, team="payments", name="build") == []
    assert await found(scene, ticket_ref="OPS-9") == [lone.id]
    assert await found(scene, team="pay") == await found(scene, ticket_ref="OPS") == []
    assert await scene.stores.tasks.get([payments.id]) == [payments]


async def test_pages_of_a_team_follow_each_other(scene: Scene) -> None:
    tasks = [(await scene.add(team="t" if number % 2 else None)).id for number in range(9)][1::2]
    first = await scene.stores.tasks.find(TaskQuery(team="t", limit=3))
    second = await scene.stores.tasks.find(TaskQuery(team="t", limit=3, after=first.next))
    assert [task.id for page in (first, second) for task in page.tasks] == tasks[::-1]
    assert second.next is None


async def test_a_scope_finds_exactly_what_its_account_reads(scene: Scene) -> None:
    """The filter of each store is the rule of `ReadScope.allows`, with full pages."""
    ids: list[str] = []
    for author in (None, "bot", "botox"):
        for queue in ("mail", "other"):
            for name, worker in (("send", None), ("send", "http:bot:w1"), ("build", "http:botox:w1"), ("build", "bot")):
                task = await scene.add(name, author_id=author, queue=queue)
                if worker is not None:
                    [claimed] = await scene.claim(worker=worker, names=[name], queues=(queue,))
                    await scene.succeed(claimed)
                child = await scene.add("other", author_id="ann", queue="third", parent_id=task.id)
                ids += [task.id, child.id]
    tasks = [await scene.get(task_id) for task_id in ids]
    parents = {task.id: task for task in tasks}
    scopes = [
        ReadScope(account="bot"),
        ReadScope(account="bot", works=True),
        ReadScope(account="bot", queues=("mail",)),
        ReadScope(account="bot", works=True, queues=("mail", "third"), names=("build",)),
        ReadScope(account="nobody", works=True),
    ]
    for scope in scopes:
        expected = [task.id for task in tasks if scope.allows(task, parents.get(task.parent_id or ""))]
        assert await found(scene, scope=scope, oldest_first=True, limit=100) == expected
        assert await found(scene, scope=scope, limit=100) == expected[::-1]
        assert await found(scene, scope=scope, limit=100, name="build") == [
            task_id for task_id in expected[::-1] if parents[task_id].name == "build"
        ]
        seen: list[str] = []
        after, is_first = None, True
        while is_first or after is not None:
            page = await scene.stores.tasks.find(
                TaskQuery(scope=scope, limit=5, after=after, oldest_first=True, budget=20_000)
            )
            assert len(page.tasks) == 5 or page.next is None
            seen += [task.id for task in page.tasks]
            after, is_first = page.next, False
        assert seen == expected
    assert len(expected) == 0


async def test_a_pruned_task_is_found_no_more(scene: Scene) -> None:
    task = await scene.add(team="payments", ticket_ref="OPS-7")
    await scene.cancel(task.id)
    await scene.stores.sweeps.prune([task.id])
    assert await found(scene, team="payments") == await found(scene, ticket_ref="OPS-7") == []


LABELS: list[dict[str, object]] = [{"author_id": "ann"}, {"tag": "urgent"}, {"resource": "db:main"}]


@pytest.mark.parametrize("label", LABELS, ids=str)
async def test_tasks_are_found_by_labels_whatever_else_they_are(scene: Scene, label: dict[str, object]) -> None:
    labeled: dict[str, Any] = {"author_id": "ann", "tags": ("urgent", "x"), "resources": ("db:main",)}
    plain = await scene.add(**labeled)
    locked = await scene.add(**{**labeled, "resources": (), "locks": (write("db:main"), read("db:main:t"))})
    waiting = await scene.add(depends_on=(plain.id,), idempotency_key="once", team="t", **labeled)
    await scene.add(author_id="ann2", tags=("urgent2",), resources=("db:main2",))
    together = await scene.stores.tasks.add([scene.task(**labeled), scene.task(), scene.task(**labeled)])

    expected = [together[2].id, together[0].id, waiting.id, locked.id, plain.id]
    assert await found(scene, **label) == expected
    assert await found(scene, oldest_first=True, **label) == expected[::-1]
    assert await found(scene, team="t", **label) == [waiting.id]
    first = await scene.stores.tasks.find(TaskQuery(limit=2, **label))  # type: ignore[arg-type]  # by its name
    assert await found(scene, after=first.next, **label) == expected[2:]
    await scene.cancel(locked.id)
    assert await scene.stores.sweeps.prune([locked.id]) == 1
    assert await found(scene, **label) == [task_id for task_id in expected if task_id != locked.id]
    assert await scene.stores.maintenance.check_invariants() == []


async def test_an_edited_draft_is_found_by_its_new_labels_alone(scene: Scene) -> None:
    draft = await scene.add(status=Status.DRAFT, author_id="ann", tags=("old", "kept"), resources=("db:old",))
    change = edit(draft, now=scene.clock.now(), tags=("new", "kept"), resources=("db:new",))
    await scene.stores.tasks.commit(change)

    assert await found(scene, tag="old") == await found(scene, resource="db:old") == []
    for label in ({"tag": "new"}, {"tag": "kept"}, {"resource": "db:new"}, {"author_id": "ann"}):
        assert await found(scene, **label) == [draft.id], label
    assert await scene.stores.maintenance.check_invariants() == []


@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize("statuses", [frozenset(), frozenset({Status.DRAFT, Status.CANCELLED})], ids=["all", "rare"])
async def test_a_list_stops_when_its_budget_is_used_up_and_continues_there(
    scene: Scene, oldest_first: bool, statuses: frozenset[Status]
) -> None:
    batch = [
        scene.task(status=Status.DRAFT, tags=("t",), description="needle" if number in (7, 8, 1_100) else "hay")
        for number in range(1_400)
    ]
    stored = await scene.stores.tasks.add(batch)
    query = TaskQuery(text="NEEDLE", limit=2, budget=100, oldest_first=oldest_first, statuses=statuses)
    pages = [await scene.stores.tasks.find(query)]
    while pages[-1].next is not None:
        pages.append(await scene.stores.tasks.find(structs.replace(query, after=pages[-1].next)))

    expected = [stored[number].id for number in (7, 8, 1_100)]
    assert [task.id for page in pages for task in page.tasks] == (expected if oldest_first else expected[::-1])
    assert len(pages) > 3
    assert [page.is_partial for page in pages if page.next is None] == [False]
    assert all(page.is_partial for page in pages if len(page.tasks) < 2 and page.next is not None)
    unbounded = await scene.stores.tasks.find(structs.replace(query, budget=None))
    assert (len(unbounded.tasks), unbounded.is_partial) == (2, False)

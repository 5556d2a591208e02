"""Fresh ids are never given twice, whoever asks."""

from concurrent.futures import ThreadPoolExecutor

from tests.domain import fresh_id, is_task_id


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: fresh_id(1_760_000_000_000), range(20_000)))

    assert len(set(ids)) == len(ids)
    assert all(map(is_task_id, ids))


def test_a_later_id_sorts_behind_an_earlier_one() -> None:
    assert fresh_id(1_760_000_000_000) < fresh_id(1_760_000_000_001)

"""Files of runs: where they lie, who may read them, and when they are removed."""

import os
import stat
import time
from pathlib import Path

from ade import ItemKind, NewItem, Task
from ade.agents.runs.files import MOST_RAW_BYTES, RunFiles, safe_name
from ade.composition.agents import remove_old_files
from tests.domain import DurableInbox, admit, fresh_id, open_stores

_DAY_S = 86_400.0


def test_a_transcript_is_its_owners_alone(tmp_path: Path) -> None:
    transcript = RunFiles(tmp_path / "t", tmp_path / "w").transcript("task", 1, "run")
    transcript.start("a job", "coder")

    assert stat.S_IMODE(transcript.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(transcript.path.parent.stat().st_mode) == 0o700


def test_what_a_program_prints_is_kept_up_to_a_bound_with_a_mark(tmp_path: Path) -> None:
    transcript = RunFiles(tmp_path / "t", tmp_path / "w").transcript("task", 1, "run")
    for _ in range(20):
        transcript.raw(b"x" * 1024 * 1024)

    kept = transcript.path.with_suffix(".out").read_bytes()
    assert kept[:MOST_RAW_BYTES] == b"x" * MOST_RAW_BYTES
    assert kept[MOST_RAW_BYTES:] == b"\n[... cut here: there is no room for more ...]\n"


def test_trouble_with_a_file_is_not_the_runs(tmp_path: Path) -> None:
    (tmp_path / "t").touch()  # no folder can be made here
    transcript = RunFiles(tmp_path / "t", tmp_path / "w").transcript("task", 1, "run")

    transcript.start("a job", "coder")

    assert not transcript.path.exists()


def test_names_stay_where_they_belong_and_apart() -> None:
    names = ["a/b", "a_b", "../../etc", "..", ".hidden", "x" * 300, "a b", ""]
    safe = [safe_name(name) for name in names]

    assert len(set(safe)) == len(names)
    assert all("/" not in name and not name.startswith(".") and len(name) < 120 for name in safe)


def make_old(folder: Path) -> None:
    then = time.time() - 30 * _DAY_S
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            os.utime(Path(place, name), (then, then))
        os.utime(place, (then, then))


async def test_folders_go_when_all_who_used_them_are_gone_and_nothing_in_them_is_new(tmp_path: Path) -> None:
    stores = await open_stores("memory://")
    known, gone, in_use = (fresh_id(stores.clock.now()) for _ in range(3))
    talk = "0e5f8f9a-6d2c-4b1e-9a53-0c2f5d7e8b11"  # a conversation may be called like that
    await stores.tasks.add([admit(Task(id=known, name="agent:x"), now=stores.clock.now())])
    await DurableInbox(stores, talk).enqueue(NewItem(kind=ItemKind.MESSAGE, content="hi"))
    places = RunFiles(tmp_path / "t", tmp_path / "work")
    users = {known: known, gone: gone, in_use: gone, talk: gone, "handed-on": known, "left": gone}
    for name, user in users.items():
        folder, _ = places.workspace(name, user)
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").touch()
        make_old(folder)
    (tmp_path / "work" / "not-of-ade").mkdir()
    make_old(tmp_path / "work" / "not-of-ade")
    (tmp_path / "work" / in_use / "deep" / "er" / "file").touch()

    removed = await remove_old_files(stores, places, 7 * _DAY_S)
    await stores.close()

    left = {path.name for path in (tmp_path / "work").iterdir() if path.is_dir()}
    assert removed == 2
    assert left == {known, in_use, talk, "handed-on", "not-of-ade"}

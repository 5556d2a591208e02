"""Where a database may lie, and which library may open it. Only here, because only this store is a file."""

from pathlib import Path

import pytest

from ade.errors import InvalidUrl, StoreUnsupported
from ade.stores.sqlite.connection import check_library
from ade.stores.sqlite.files import file_system_of, place_of
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.fuzz.table import passes
from tests.stores.sqlite.conftest import OpenStore


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.50.7", "3.51.2", "2.99.99"])
def test_a_library_that_can_corrupt_the_file_is_refused(version: str) -> None:
    with pytest.raises(StoreUnsupported, match=version):
        check_library(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "3.54.1", "4.0.0"])
def test_a_library_that_is_safe_is_taken(version: str) -> None:
    assert passes(lambda: check_library(version), StoreUnsupported)


def test_the_library_in_use_is_safe() -> None:
    assert passes(check_library, StoreUnsupported)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///a.db?mode=ro", "sqlite:///a\0b", "redis://x", "a.db", ""]
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        place_of(url)


def test_a_url_names_a_file_here_or_anywhere() -> None:
    here, anywhere = place_of("sqlite:///sub/a.db"), place_of("sqlite:////var/a.db")

    assert here is not None
    assert anywhere is not None
    assert here.path == Path.cwd() / "sub" / "a.db"
    assert anywhere.path == Path("/var/a.db")
    assert place_of("memory://") is None


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:28 / /srv rw - nfs4 server:/srv rw
31 30 0:29 / /srv/local\\040disk rw shared:1 - xfs /dev/vdb rw
32 22 0:30 / /mnt/win rw - cifs //win/share rw
33 22 0:31 / /mnt/ssh rw - fuse.sshfs me@there: rw
34 22 0:32 / /mnt/täglich rw - nfs server:/t rw
35 22 0:33 / /over rw - ext4 /dev/vdc rw
36 22 0:34 / /over rw - nfs server:/over rw
not a line of this file
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/deep/er", "nfs4"),
        ("/srvx", "ext4"),
        ("/srv/local disk/ade", "xfs"),
        ("/mnt/win/x", "cifs"),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/mnt/täglich/ade", "nfs"),
        ("/over", "nfs"),
    ],
)
def test_the_file_system_of_a_folder_is_the_one_mounted_nearest(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_without_a_list_of_mounts_nothing_is_known() -> None:
    assert file_system_of(Path("/srv"), "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs"])
async def test_a_network_file_system_is_refused(
    open_store: OpenStore, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = path.with_name("mounts")
    mounts.write_text(f"1 0 0:1 / {path.parent} rw - {kind} server:/x rw\n")
    monkeypatch.setattr("ade.stores.sqlite.files._MOUNTS", mounts)

    with pytest.raises(StoreUnsupported, match=kind):
        await open_store()

    assert not path.exists()


async def test_who_insists_gets_a_journal_that_needs_no_shared_memory(
    open_store: OpenStore, path: Path, monkeypatch: pytest.MonkeyPatch, clock: TestClock
) -> None:
    mounts = path.with_name("mounts")
    mounts.write_text(f"1 0 0:1 / {path.parent} rw - nfs server:/x rw\n")
    monkeypatch.setattr("ade.stores.sqlite.files._MOUNTS", mounts)
    stores = await open_store(clock, allow_network_fs=True)
    scene = Scene(stores, clock)
    running = await scene.start()
    scene.renew(running)
    await scene.succeed(running)

    assert (await stores.maintenance.health()).facts["journal_mode"] == "delete"
    assert not path.with_name("ade.db-wal").exists()

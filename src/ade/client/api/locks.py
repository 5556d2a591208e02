"""Calls: `locks`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ade.common.calls import Call
    from ade.locks.model import LockSpec
    from ade.locks.views import (
        ForceReleased,
        LockGraph,
        LocksReleased,
        LocksRenewed,
        LocksWatched,
        LockView,
        RequestView,
    )
    from ade.server.pagination import Page


class LocksCalls(Section):
    """Methods of the client: `locks`."""

    def list_locks(
        self, *, namespace: str | None = None, owner: str | None = None, resource: str | None = None,
        kind: str | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[LockView]]:
        """Who holds and waits for what."""
        from ade.locks.api import ListLocks
        from ade.locks.views import LockView
        from ade.server.pagination import Page

        query = ListLocks(namespace=namespace, owner=owner, resource=resource, kind=kind, cursor=cursor, limit=limit)
        return self._call("list_locks", Page[LockView], query=query)

    def get_lock_graph(self, *, namespace: str = "default") -> Call[LockGraph]:
        """Who waits for whom, and the rings among them."""
        from ade.locks.api import GetLockGraph
        from ade.locks.views import LockGraph

        query = GetLockGraph(namespace=namespace)
        return self._call("get_lock_graph", LockGraph, query=query)

    def acquire_locks(
        self, *, locks: list[str | LockSpec], id: str | None = None, owner: str | None = None,
        scope: str | None = None, namespace: str = "default", priority: int | str = 5, ttl: float | None = None,
        purpose: str | None = None, wait: float | None = None, stay: bool = False, run: str | None = None,
        run_task: str | None = None,
    ) -> Call[RequestView]:
        """Ask for locks, all or none; may wait for them."""
        from ade.locks.api import AcquireLocks
        from ade.locks.views import RequestView

        body = AcquireLocks(
            locks=locks, id=id, owner=owner, scope=scope, namespace=namespace, priority=priority, ttl=ttl,
            purpose=purpose, wait=wait, stay=stay, run=run, run_task=run_task,
        )
        return self._call("acquire_locks", RequestView, body=body)

    def renew_locks(
        self, *, ids: list[str], namespace: str = "default", wait: float | None = None,
    ) -> Call[LocksRenewed]:
        """Keep locks, or a place in line."""
        from ade.locks.api import RenewLocks
        from ade.locks.views import LocksRenewed

        body = RenewLocks(ids=ids, namespace=namespace, wait=wait)
        return self._call("renew_locks", LocksRenewed, body=body)

    def watch_locks(
        self, *, ids: Sequence[str] = (), namespace: str = "default", runs: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> Call[LocksWatched]:
        """Watch for a forced release of a lock."""
        from ade.locks.api import WatchLocks
        from ade.locks.views import LocksWatched

        body = WatchLocks(ids=list(ids), namespace=namespace, runs=dict(runs or {}), wait=wait)
        return self._call("watch_locks", LocksWatched, body=body)

    def release_locks(self, *, ids: list[str], namespace: str = "default") -> Call[LocksReleased]:
        """Let locks go, or leave the line."""
        from ade.locks.api import ReleaseLocks
        from ade.locks.views import LocksReleased

        body = ReleaseLocks(ids=ids, namespace=namespace)
        return self._call("release_locks", LocksReleased, body=body)

    def upgrade_lock(
        self, *, id: str, namespace: str = "default", resource: str | None = None, wait: float | None = None,
    ) -> Call[RequestView]:
        """Make a share exclusive."""
        from ade.locks.api import UpgradeLock
        from ade.locks.views import RequestView

        body = UpgradeLock(id=id, namespace=namespace, resource=resource, wait=wait)
        return self._call("upgrade_lock", RequestView, body=body)

    def downgrade_lock(self, *, id: str, namespace: str = "default", resource: str | None = None) -> Call[RequestView]:
        """Make it a share again."""
        from ade.locks.api import DowngradeLock
        from ade.locks.views import RequestView

        body = DowngradeLock(id=id, namespace=namespace, resource=resource)
        return self._call("downgrade_lock", RequestView, body=body)

    def get_lock_position(self, *, id: str, namespace: str = "default") -> Call[RequestView]:
        """One's place in line."""
        from ade.locks.api import OneLock
        from ade.locks.views import RequestView

        body = OneLock(id=id, namespace=namespace)
        return self._call("get_lock_position", RequestView, body=body)

    def force_release_lock(
        self, *, id: str, namespace: str = "default", reason: str, request_key: str | None = None,
    ) -> Call[ForceReleased]:
        """Take a lock away from its holder."""
        from ade.locks.api import ForceRelease
        from ade.locks.views import ForceReleased

        body = ForceRelease(id=id, namespace=namespace, reason=reason)
        return self._call("force_release_lock", ForceReleased, body=body, key=request_key)

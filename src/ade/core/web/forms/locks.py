"""What is said about locks. The id of a request is known to who asked for it, and goes in bodies alone."""

from typing import Annotated

from msgspec import Meta

from ade.core.locks.records import DEFAULT_NAMESPACE
from ade.core.locks.wishes import MOST_WISHES, Wish
from ade.core.records import DEFAULT_PRIORITY
from ade.core.web.forms import words
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import LockName, told

LONGEST_WAIT_S = 30
Namespace = Annotated[words.Namespace, Meta(min_length=1, max_length=100)]
RequestId = Annotated[str, Meta(min_length=1, max_length=512)]
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)]  # seconds


class ListLocks(Form):
    """Resources that somebody holds or waits for; all that is said must hold."""

    namespace: Namespace | None = None
    owner: LockName | None = None
    resource: LockName | None = None  # needs its namespace, or the usual one is meant
    kind: LockName | None = None  # the part of a resource's name before the colon
    cursor: str | None = None
    limit: PageSize = 50


class GetLockGraph(Form):
    namespace: Namespace = DEFAULT_NAMESPACE


class AcquireLocks(Form):
    """All or none of them. A bare name is to be written.

    What is not granted within `wait` seconds is refused, or with `stay` answered as it stands in line: the place is
    kept by renewing it. Whoever goes away while it waits has left the line.
    """

    locks: Annotated[list[LockName | Wish], Meta(min_length=1, max_length=MOST_WISHES)]
    id: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{16,100}$")] | None = None  # random; asking again changes nothing
    owner: Annotated[LockName, Meta(min_length=1)] | None = None  # one program of several that share an account
    # Of requests of one program that belong together, so that rings are found.
    scope: Annotated[LockName, Meta(min_length=1)] | None = None
    namespace: Namespace = DEFAULT_NAMESPACE
    priority: Annotated[int, Meta(ge=0, le=9)] = DEFAULT_PRIORITY
    ttl: Annotated[float, told(minimum=1, maximum=3_600)] | None = None  # seconds; otherwise as the settings say
    purpose: Annotated[str, told(minLength=1, maxLength=500)] | None = None
    wait: Wait | None = None
    stay: bool = False


class RenewLocks(Form):
    """Locks, and places in line. If all of these wait in line, the answer comes once one does not any more."""

    ids: Annotated[list[RequestId], Meta(min_length=1, max_length=100)]
    namespace: Namespace = DEFAULT_NAMESPACE
    wait: Wait | None = None


class ReleaseLocks(Form):
    ids: Annotated[list[RequestId], Meta(min_length=1, max_length=100)]
    namespace: Namespace = DEFAULT_NAMESPACE


class OneLock(Form):
    id: RequestId
    namespace: Namespace = DEFAULT_NAMESPACE


class DowngradeLock(OneLock):
    resource: str | None = None  # needed where several are locked


class UpgradeLock(DowngradeLock):
    wait: Wait | None = None


class ForceRelease(OneLock, kw_only=True):
    reason: Annotated[str, Meta(min_length=1, max_length=500)]

"""Where operations that only read are carried out: on a store opened to be looked at, without an event loop."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ade.core.errors import StoreReadOnly
from ade.core.records import Task
from ade.operations.kit import Office
from ade.queue.defaults import TaskDefaults
from ade.queue.payloads import Payloads

if TYPE_CHECKING:
    from ade.core.approvals.rulebook import Rulebook
    from ade.core.records import Definition
    from ade.governance.runtime import Runtime
    from ade.ports import Stores
    from ade.settings import Settings


def office_to_look(stores: "Stores", settings: "Settings") -> Office:
    """What would write or wait raises StoreReadOnly."""

    async def rules() -> "tuple[Rulebook, Runtime]":
        from ade.governance import rulebook, runtime

        return await rulebook.load(stores), await runtime.load(stores)

    async def names(_wanted: Collection[str]) -> "Mapping[str, Definition]":
        from ade.queue.names import known_names

        return await known_names(stores)

    return Office(
        stores=stores,
        payloads=Payloads(stores.blobs, settings.store.inline_limit_kb << 10, settings.store.payload_limit_mb << 20),
        settings=settings,
        defaults=TaskDefaults(),
        keep=_keep,
        rules=rules,
        names=names,
        watch=_refuse,
        locks=_refuse,
    )


async def _keep(tasks: Sequence[Task]) -> list[Task]:
    _refuse()


def _refuse() -> NoReturn:
    raise StoreReadOnly("this store was opened to be looked at; open it in full to change it or to wait")

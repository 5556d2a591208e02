"""Services for read-only operations on a read-only store, without an event loop."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ade.errors import StoreReadOnly
from ade.server.context import Services
from ade.settings.sections import TaskSettings
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads

if TYPE_CHECKING:
    from ade.approvals.rulebook import Rulebook
    from ade.settings import Settings
    from ade.settings.runtime import RuntimeSettings
    from ade.stores.ports import Stores
    from ade.tasks.model import Definition


def read_only_services(stores: "Stores", settings: "Settings") -> Services:
    """Assemble services whose write and wait methods raise StoreReadOnly."""

    async def rules() -> "tuple[Rulebook, RuntimeSettings]":
        from ade.approvals import repository as approvals_repository
        from ade.settings import runtime

        return await approvals_repository.load(stores), await runtime.load(stores)

    async def names(_wanted: Collection[str]) -> "Mapping[str, Definition]":
        from ade.tasks.definitions import registered_names

        return await registered_names(stores)

    return Services(
        stores=stores,
        payloads=Payloads(stores.blobs, settings.store.inline_limit_kb << 10, settings.store.payload_limit_mb << 20),
        settings=settings,
        defaults=TaskSettings(),
        keep=_keep,
        rules=rules,
        names=names,
        watch=_refuse,
        locks=_refuse,
    )


async def _keep(tasks: Sequence[Task]) -> list[Task]:
    _refuse()


def _refuse() -> NoReturn:
    raise StoreReadOnly("this store was opened read-only; open it for writing to change it or to wait")

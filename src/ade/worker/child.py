"""The process that runs handlers of mode `process`, one call at a time, until its worker closes the line.

Started by the worker as `python -m ade.worker.child <descriptor> <worker's pid>`; arguments and results cross as
JSON, so nothing of the handler has to be pickled.
"""

import importlib
import importlib.util
import inspect
import os
import socket
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import msgspec

from ade.core import errors
from ade.core.errors import AdeError, InvalidArguments, InvalidResult, InvalidTask
from ade.core.failure import FailureKind
from ade.core.records import Task
from ade.queue.signature import Signature
from ade.worker import wire
from ade.worker.context import Context, SyncContext
from ade.worker.failures import failed, failure_of
from ade.worker.kinship import die_with_parent
from ade.worker.wire import Begin, Call, Ledger, Raised, Refused, Request, Returned, Spawn

PYTHONPATH_BEFORE = "ADE_CHILD_PYTHONPATH"  # the worker hands its sys.path over in PYTHONPATH
_ANSWERS: dict[type, Any] = {Begin: Ledger, Spawn: list[Task]}


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    _restore_environment()
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    while True:
        try:
            call = wire.decode_to_child(wire.receive(line))
        except (EOFError, ConnectionError):
            return
        if isinstance(call, Call):
            wire.send(line, wire.encode(perform(call, line)))


def perform(call: Call, line: socket.socket) -> Returned | Raised:
    """Run one call; whatever happens becomes the answer."""
    try:
        function, signature = find(call.module, call.qualname, call.main_path)
    except SyntaxError as error:
        return Raised(failed(FailureKind.UNRECOVERABLE, error))
    except BaseException as error:
        return Raised(failure_of(error))
    try:
        context = SyncContext(Context(call.facts, _asker(line), lambda: False))
        args, kwargs = signature.place(signature.decode(call.args), context)
    except InvalidArguments as error:
        return Raised(failed(FailureKind.BAD_ARGUMENTS, error))
    try:
        value = function(*args, **kwargs)
    except BaseException as error:  # also SystemExit: the call ends, not the process
        return Raised(failure_of(error))
    try:
        return Returned(signature.encode_result(value))
    except InvalidResult as error:
        return Raised(failed(FailureKind.BAD_RESULT, error))


@cache
def find(module_name: str, qualname: str, main_path: str | None) -> tuple[Callable[..., Any], Signature]:
    """The function itself, below whatever decorators have put around it, and its signature."""
    found: Any = importlib.import_module(module_name) if main_path is None else _script(main_path)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidTask(f"{module_name}.{qualname} cannot be imported; define it at the top of its module")
    function = inspect.unwrap(found)
    return function, Signature.of(function)


@cache
def _script(path: str) -> ModuleType:
    """The script the worker was started as, imported under another name so that its main part does not run."""
    spec = importlib.util.spec_from_file_location("__ade_main__", path)
    if spec is None or spec.loader is None:
        raise InvalidTask(f"{path} cannot be imported; put the task into a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _asker(line: socket.socket) -> Callable[[Request], Any]:
    async def ask(request: Request) -> Any:
        wire.send(line, wire.encode(request))
        answer = wire.decode_to_child(wire.receive(line))
        if isinstance(answer, Refused):
            raise _error_of(answer)
        assert isinstance(answer, wire.Answer)
        return msgspec.json.decode(answer.value, type=_ANSWERS.get(type(request), type(None)))

    return ask


def _error_of(refused: Refused) -> AdeError:
    known = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AdeError))
    kind = next((kind for kind in known if kind.code == refused.code), AdeError)
    return kind(refused.detail)


def _restore_environment() -> None:
    before = os.environ.pop(PYTHONPATH_BEFORE, None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before


if __name__ == "__main__":
    main()

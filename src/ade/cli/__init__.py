"""The command line. `main` is the entry point of the program `ade`."""

import gc
import sys
from importlib import import_module
from types import ModuleType


class _DeferredModule(ModuleType):
    """A module that is loaded when an attribute of it is first used.

    Most commands read a few records and need no event loop, but the features they belong to do. Loading `asyncio` takes
    longer than such a command.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__path__":  # the import system reads these without using the module
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)  # another thread might be loading it; this waits
        self.__dict__.update(module.__dict__)
        return getattr(module, name)


def defer(name: str) -> None:
    """Load a module only when it is used, unless it is already loaded."""
    sys.modules.setdefault(name, _DeferredModule(name))


def main() -> None:
    """Run the command given by the arguments and exit with its code."""
    gc.disable()  # modules that a command loads are not garbage; long-running commands turn it on again
    defer("asyncio")

    from ade.cli.program import run

    sys.exit(run())

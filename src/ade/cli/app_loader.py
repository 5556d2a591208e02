"""Load the app that a command line names, with a specific error message for every failure."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ade.app.ade import Ade
from ade.cli.exit_codes import ExitCode
from ade.errors import AdeError

_PACKAGE = f"{Path(__file__).parents[1]}/"


class BadApp(AdeError):
    """The app cannot be used. Name it as module:attribute, from the folder in which the module can be imported."""

    code = "bad_app"
    exit_code = ExitCode.USAGE


def load_app(spec: str | None) -> Ade:
    """Load the app from `module:attribute`. The current directory is on the path, as for `python -m`. Raises BadApp."""
    if spec is None:
        raise BadApp(
            "no app was given: add --app module:attribute or set ADE_APP. `--app ade.demo:ade` is a demo that needs no"
            " code of yours"
        )
    module_name, colon, attribute = spec.partition(":")
    if not colon or not module_name or not attribute:
        raise BadApp(f"app {spec!r} is not valid: write module:attribute, such as {_example(module_name)}")
    return _app_in(_import(module_name, spec), attribute, spec)


def _example(module_name: str) -> str:
    name = module_name.removesuffix(".py").replace("/", ".").strip(".")
    return f"{name or 'tasks'}:ade"


def _import(module_name: str, spec: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise BadApp(
                f"app {spec!r}: there is no module {missing!r} in {here} or among the installed packages"
            ) from error
        raise _broken(module_name, spec, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(module_name, spec, error) from error


def _broken(module_name: str, spec: str, error: BaseException) -> BadApp:
    """Return the error with the position in the user's code."""
    return BadApp(f"app {spec!r}: importing {module_name!r} failed with {type(error).__name__}: {error}{_place(error)}")


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    theirs = [
        frame for frame in frames if not frame.filename.startswith(_PACKAGE)
    ] or frames  # the code that the user can fix
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def _is_machinery(filename: str) -> bool:
    return filename.startswith("<frozen") or filename == __file__ or filename == importlib.__file__


def _app_in(module: ModuleType, attribute: str, spec: str) -> Ade:
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Ade):
        return found
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, Ade))
    hint = f"; it has {', '.join(f'{module.__name__}:{name}' for name in apps)}" if apps else ""
    if found is None:
        raise BadApp(f"app {spec!r}: the module {module.__name__!r} has no attribute {attribute!r}{hint}")
    raise BadApp(
        f"app {spec!r}: {attribute!r} in {module.__name__!r} is not an Ade app, but"
        f" {_article(type(found).__name__)}{hint}"
    )


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"

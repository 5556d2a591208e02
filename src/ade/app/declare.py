"""From a function and what was declared about it to a handler."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ade.core.admission import check_name, check_priority, check_queue_name
from ade.core.errors import InvalidTask
from ade.core.records import DEFAULT_PRIORITY, DEFAULT_QUEUE, Definition
from ade.queue.handlers import Handler, Mode
from ade.queue.options import (
    Declared,
    backoff,
    check_known,
    milliseconds_or_none,
    needs,
    parse_rate,
    text,
    whole,
)
from ade.queue.parameters import Parameters
from ade.queue.signature import Signature


def make_handler(function: Callable[..., Any], declared: Declared) -> Handler:
    """Raises InvalidTask when the function or a declaration cannot be used."""
    given: Mapping[str, Any] = declared
    check_known(given, Declared)
    signature = Signature.of(function)
    name = text("name", given.get("name", signature.parameters.function_name))
    check_name(name)
    key_of = given.get("concurrency_key")
    return Handler(
        name=name,
        function=function,
        signature=signature,
        mode=_mode(function, name, cpu=given.get("cpu", False)),
        definition=_definition(name, given, signature),
        concurrency_key=None if key_of is None else _key_maker(name, key_of, signature.parameters),
    )


def _mode(function: Callable[..., Any], name: str, *, cpu: bool) -> Mode:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidTask(f"task {name!r} is a generator; return a list, or enqueue a task for each item")
    if not inspect.iscoroutinefunction(function):
        return Mode.PROCESS if cpu else Mode.THREAD
    if cpu:
        raise InvalidTask(f"task {name!r} is async, so cpu=True cannot be used; make it a plain function")
    return Mode.ASYNC


def _definition(name: str, given: Mapping[str, Any], signature: Signature) -> Definition:
    queue, priority = text("queue", given.get("queue", DEFAULT_QUEUE)), given.get("priority", DEFAULT_PRIORITY)
    check_queue_name(queue)
    check_priority(priority)
    rate_count, rate_period_ms = parse_rate(given["rate"]) if "rate" in given else (None, None)
    return Definition(
        name=name,
        queue=queue,
        priority=priority,
        concurrency=_limit("concurrency", given),
        concurrency_per_key=_limit("concurrency_per_key", given) or (1 if "concurrency_key" in given else None),
        rate_count=rate_count,
        rate_period_ms=rate_period_ms,
        schema=signature.schema(),
        timeout_ms=_time("timeout", given),
        max_attempts=whole("max_attempts", given["max_attempts"]) if "max_attempts" in given else None,
        backoff=backoff("backoff", given["backoff"]) if "backoff" in given else None,
        result_ttl_ms=_time("result_ttl", given),
        needs=needs("needs", given["needs"]) if "needs" in given else (),
    )


def _limit(name: str, given: Mapping[str, Any]) -> int | None:
    if name not in given:
        return None
    limit = whole(name, given[name])
    if limit < 1:
        raise InvalidTask(f"{name} must be at least 1, not {limit}")
    return limit


def _time(name: str, given: Mapping[str, Any]) -> int | None:
    """None when nothing was declared, 0 when no limit was."""
    return (milliseconds_or_none(name, given[name]) or 0) if name in given else None


def _key_maker(name: str, key_of: Callable[..., str], parameters: Parameters) -> Callable[[Mapping[str, Any]], str]:
    """Calls the user's function with the arguments that it names, defaults included."""
    wanted = tuple(inspect.signature(key_of).parameters)
    if unknown := [parameter for parameter in wanted if parameter not in parameters.types]:
        raise InvalidTask(f"concurrency_key of task {name!r} asks for {', '.join(unknown)}, which is no argument of it")

    def key(arguments: Mapping[str, Any]) -> str:
        known = {**parameters.defaults, **arguments}
        made = key_of(*(known[parameter] for parameter in wanted))
        if not isinstance(made, str):
            raise InvalidTask(f"concurrency_key of task {name!r} must return text, not {made!r}")
        return made

    return key

"""Clients that others generate from the OpenAPI document are built, and used against a live server."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from ade.approvals import repository as approvals_repository
from ade.server.openapi import document
from tests.approvals.people import HELD, ONE
from tests.domain import Role, read_rulebook
from tests.server.conftest import ServerHarness, define, start_server
from tests.stores.urls import store_url

pytestmark = pytest.mark.long

STORIES = Path(__file__).parent / "generated"
WITHIN_S = 240.0  # npm, tsc, and mypy on a busy machine


async def run(*command: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a program to its end. Returns its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, printed.decode(errors="replace")


async def succeed(*command: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> str:
    code, printed = await run(*command, folder=folder, env=env)
    assert code == 0, printed
    return printed


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    """A server on which `greet` just runs, and `pay` waits for a reviewer."""
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as server:
        await define(server.stores, "greet", "pay")
        rules = {"guard": [{**HELD, "name": "pay"}], "policy": [ONE], "risk": {"unknown_resources": "low"}}
        await approvals_repository.apply(server.stores, read_rulebook(rules), actor="the-admin")
        yield server


async def arguments(server: ServerHarness) -> tuple[str, str, str]:
    return server.url, await server.token(Role.OPERATOR), await server.token(Role.REVIEWER)


async def test_a_client_of_openapi_python_client_is_typed_and_works(site: ServerHarness, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(document())
    (tmp_path / "config.yaml").write_text(
        "{post_hooks: [], content_type_overrides: {application/x-ndjson: text/plain}}"
    )
    await succeed(
        *(sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"),
        *("--config", "config.yaml", "--fail-on-warning", "--output-path", "ade_api"),
        folder=tmp_path,
    )
    shutil.copy(STORIES / "use_client.py", tmp_path)
    at = {"PYTHONPATH": str(tmp_path), "MYPYPATH": str(tmp_path)}

    strict = ("--strict", "--follow-imports", "silent", "--config-file", os.devnull, "--cache-dir", os.devnull)
    await succeed(sys.executable, "-m", "mypy", *strict, "use_client.py", folder=tmp_path, env=at)
    printed = await succeed(sys.executable, "use_client.py", *await arguments(site), folder=tmp_path, env=at)

    assert printed == "all is well\n"


async def test_types_of_openapi_typescript_compile_and_work(site: ServerHarness, tmp_path: Path) -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine")
    for each in ("package.json", "package-lock.json", "tsconfig.json", "use_client.ts"):
        shutil.copy(STORIES / each, tmp_path)
    code, printed = await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=tmp_path)
    if code != 0:
        pytest.skip(f"npm cannot install the packages here: {printed[-300:]}")
    (tmp_path / "openapi.json").write_bytes(document())
    programs = tmp_path / "node_modules" / ".bin"

    await succeed(programs / "openapi-typescript", "openapi.json", "-o", "ade.d.ts", folder=tmp_path)
    await succeed(programs / "tsc", "-p", ".", folder=tmp_path)
    printed = await succeed("node", "use_client.js", *await arguments(site), folder=tmp_path)

    assert printed == "all is well\n"

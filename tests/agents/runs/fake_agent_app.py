"""An app whose agents are stand-ins, on a store in a folder of its own."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ade import Ade
from ade.composition.worker import add_agents
from ade.settings import Settings
from ade.settings.sections import AgentSettings, LogSettings, StoreSettings, TaskSettings, WorkerSettings
from tests.agents.standins.running import HERE
from tests.domain import BUILT_IN

STANDINS = ("letta", "claude", "codex", "gemini")


def profiles(**more: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A type for each stand-in, called like the program; `more` adds to their tables."""
    return {
        name: {
            "base": name,
            "command": [sys.executable, str(HERE / f"{name}.py"), *BUILT_IN[name].command[1:]],
            **more.get(name, {}),
        }
        for name in STANDINS
    }


def settings(folder: Path, *, url: str | None = None, worker: WorkerSettings | None = None, **agents: Any) -> Settings:
    agents = {"profiles": profiles(), **agents}
    return Settings(
        store=StoreSettings(url=url or f"sqlite:///{folder}/ade.db", synchronous="normal"),
        agents=AgentSettings(transcripts=str(folder / "transcripts"), workspaces=str(folder / "work"), **agents),
        worker=worker or WorkerSettings(grace_s=1.0, lease_guard=False),
        task=TaskSettings(backoff_base_s=0.01, backoff_cap_s=0.02),
        log=LogSettings(level="error"),
    )


def app(folder: Path, **options: Any) -> Ade:
    made = Ade(settings=settings(folder, **options))
    add_agents(made)
    return made

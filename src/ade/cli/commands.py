"""Every command, where it lives and what it is for. A command's module is loaded only when it is used."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where a command is defined, as `module:attribute`, and its line in `ade --help`."""

    target: str
    about: str


SECTIONS: dict[str, dict[str, Place]] = {
    "Run": {
        "up": Place("ade.cli.up:up", "Start everything an app needs in one process: worker, sweeps, HTTP."),
        "serve": Place("ade.cli.serve:serve", "Answer over HTTP, without running the tasks of an app."),
        "worker": Place("ade.cli.worker:worker", "Run the tasks of an app until told to stop."),
        "sweep": Place("ade.cli.sweep:sweep", "Do the duties on a timer without running any task."),
    },
    "Tasks": {
        "run": Place("ade.cli.run:run", "Let an agent work on a prompt, and watch it."),
        "enqueue": Place("ade.cli.enqueue:enqueue", "Enqueue a task, or all tasks of a file."),
        "draft": Place("ade.cli.draft:draft", "Write a task that people approve before it runs."),
        "submit": Place("ade.cli.submit:submit", "Put a draft before people."),
        "tasks": Place("ade.cli.tasks:tasks", "List tasks, newest first."),
        "show": Place("ade.cli.show:show", "Show all about one task: record, attempts, timeline, outcome."),
        "logs": Place("ade.cli.logs:logs", "Print the lines a task has written."),
        "wait": Place("ade.cli.wait:wait", "Wait until tasks are final and print their results."),
        "explain": Place("ade.cli.explain:explain", "Say why a task is not running."),
        "cancel": Place("ade.cli.cancel:cancel", "Stop tasks, by id or by filter."),
        "retry": Place("ade.cli.retry:retry", "Run failed tasks again with fresh attempts."),
        "dlq": Place("ade.cli.dlq:dlq", "Dead letters: failed tasks nobody has dealt with yet."),
    },
    "Operate": {
        "queues": Place("ade.cli.queues:queues", "List, pause, resume and limit queues."),
        "schedules": Place("ade.cli.schedules:schedules", "Tasks that come again and again by a cron line."),
        "locks": Place("ade.cli.locks:locks", "Who holds and waits for shared resources."),
        "agents": Place("ade.cli.agents:agents", "Agents, and how much each may do at once."),
        "subagents": Place("ade.cli.subagents:subagents", "Agents at work: for whom, how far, at what cost."),
        "webhooks": Place("ade.cli.webhooks:webhooks", "Other programs that are told what happens."),
        "hook": Place("ade.cli.hook:hook", "For hooks of agents: whether a tool may be used."),
        "inbox": Place("ade.cli.inbox:inbox", "What conversations have still to be told."),
        "workers": Place("ade.cli.workers:workers", "List workers and how they are doing."),
        "events": Place("ade.cli.events:events", "Read the event log."),
        "stats": Place("ade.cli.stats:stats", "Show depths, ages, throughput and workers once."),
        "top": Place("ade.cli.top:top", "Watch depths, throughput and running tasks live."),
    },
    "People": {
        "approvals": Place("ade.cli.approvals:approvals", "What waits for people: look, approve, reject, start."),
        "users": Place("ade.cli.users:users", "Accounts of people and programs, and what they may do."),
        "tokens": Place("ade.cli.tokens:tokens", "Access tokens of accounts."),
        "whoami": Place("ade.cli.whoami:whoami", "The account that you act for, and what it may do."),
        "delegations": Place("ade.cli.delegations:delegations", "Who answers reviews for whom."),
        "policies": Place("ade.cli.policies:policies", "The rulebook: guard rules, and who must approve what."),
    },
    "Look after": {
        "doctor": Place("ade.cli.doctor:doctor", "Check settings, store, workers and every invariant."),
        "config": Place("ade.cli.config:config", "Show the settings in force and where they come from."),
        "features": Place("ade.cli.features:features", "Switch features on and off while all goes on."),
        "backup": Place("ade.cli.backup:backup", "Copy the store to a new file while it is in use."),
        "archive": Place("ade.cli.archive:archive", "Archive and prune finished tasks now."),
        "audit": Place("ade.cli.audit:audit", "Verify and export the tamper-evident copy of the event log."),
        "completion": Place("ade.cli.completion:completion", "Print the completion script for a shell."),
    },
}

COMMANDS: dict[str, Place] = {name: place for section in SECTIONS.values() for name, place in section.items()}

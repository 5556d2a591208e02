-- An effect of `ctx.once` is retained as long as its task exists. Effects of older versions name no task.

ALTER TABLE effect ADD COLUMN task_id TEXT NOT NULL DEFAULT '';

-- Tasks are found by author, tag, and resource too. A detail that is not valid JSON has none of them. An effect of `ctx.once`
-- names its task, and is retained as long as the task exists; effects of older versions name none.

WITH readable (seq, detail) AS (SELECT seq, iif(json_valid(detail), detail, '{}') FROM task_detail)
INSERT OR IGNORE INTO task_label (label, seq)
SELECT 'author:' || (detail ->> '$.author_id'), seq FROM readable WHERE detail ->> '$.author_id' IS NOT NULL
UNION ALL
SELECT 'tag:' || tag.value, d.seq FROM readable d, json_each(d.detail, '$.tags') tag
UNION ALL
SELECT 'resource:' || named.value, d.seq FROM readable d, json_each(d.detail, '$.resources') named
UNION ALL
SELECT 'resource:' || (spec.value ->> '$.resource'), d.seq FROM readable d, json_each(d.detail, '$.locks') spec
 WHERE spec.value ->> '$.resource' IS NOT NULL;

ALTER TABLE effect ADD COLUMN task_id TEXT NOT NULL DEFAULT '';

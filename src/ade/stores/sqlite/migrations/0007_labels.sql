-- Tasks are found by team and ticket. Tasks without either have no row here.

CREATE TABLE task_label (
    label TEXT    NOT NULL,  -- team:<name> or ticket:<reference>
    seq   INTEGER NOT NULL,
    PRIMARY KEY (label, seq)
) WITHOUT ROWID;
CREATE INDEX task_label_task ON task_label (seq);
INSERT INTO task_label (label, seq)
SELECT 'team:' || (detail ->> '$.team'), seq FROM task_detail
 WHERE json_valid(detail) AND detail ->> '$.team' IS NOT NULL
UNION ALL
SELECT 'ticket:' || (detail ->> '$.ticket_ref'), seq FROM task_detail
 WHERE json_valid(detail) AND detail ->> '$.ticket_ref' IS NOT NULL;

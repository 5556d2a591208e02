-- A readable, empty detail in place of one that cannot be read.
INSERT OR REPLACE INTO task_detail (seq, detail) VALUES (:seq, :detail)

-- List tasks page by page, behind :start. Every condition that is NULL holds. finding.py fills in what leads:
-- the index to walk, its condition, and the direction.
SELECT t.seq, CAST(r.json AS BLOB)
  FROM task t {index}
  JOIN record r ON r.seq = t.seq
 WHERE {condition}
   AND t.seq {beyond} :start
   AND (:statuses IS NULL OR t.status IN (SELECT value FROM json_each(:statuses)))
   AND (:queue IS NULL OR t.queue = :queue)
   AND (:name IS NULL OR t.name = :name)
   AND (:parent_id IS NULL OR t.parent_id = :parent_id)
   AND (:worker_id IS NULL OR t.worker_id = :worker_id)
   AND (:created_from IS NULL OR t.created_at >= :created_from)
   AND (:created_before IS NULL OR t.created_at < :created_before)
   AND (:tag IS NULL OR (json_valid(r.json) AND EXISTS (SELECT 1 FROM json_each(r.json, '$.tags') WHERE value = :tag)))
   AND (:author_id IS NULL OR (json_valid(r.json) AND r.json ->> '$.author_id' = :author_id))
   AND (:discarded IS NULL OR t.discarded = :discarded)
   AND (:text IS NULL OR t.name LIKE :text ESCAPE '\' OR t.id LIKE :text ESCAPE '\'
        OR (json_valid(r.json) AND (r.json ->> '$.description' LIKE :text ESCAPE '\'
                                    OR r.json ->> '$.error.message' LIKE :text ESCAPE '\')))
 ORDER BY t.seq {order}
 LIMIT :limit

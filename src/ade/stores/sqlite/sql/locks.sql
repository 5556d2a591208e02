-- Locks. `lock_request` has one row for each request, granted or waiting; `lock_item` has one row for each resource of
-- a request, in the order of the resource's wait queue.

-- name: locks.get
-- Get one request of a namespace.
SELECT request FROM lock_request WHERE id = :id AND namespace = :namespace

-- name: locks.poll
-- Get several requests of a namespace. :ids is a JSON array.
SELECT request FROM lock_request
 WHERE id IN (SELECT value FROM json_each(:ids)) AND namespace = :namespace

-- name: locks.list_positions
-- List the requests that hold a resource, or that wait for it (:granted is 0) in the order of its wait queue.
SELECT r.request
  FROM lock_item i
  JOIN lock_request r ON r.id = i.request_id
 WHERE i.namespace = :namespace AND i.resource = :resource AND i.granted = :granted
 ORDER BY i.rank, i.seq, i.request_id

-- name: locks.list
-- List the requests of one namespace, or of all.
SELECT r.request
  FROM lock_namespace n
 CROSS JOIN lock_request r INDEXED BY lock_owner ON r.namespace = n.name
 WHERE :namespace IS NULL OR n.name = :namespace
 ORDER BY r.id LIMIT :limit

-- name: locks.list_by_owner
-- List the requests of an owner, in one namespace or in all.
SELECT r.request
  FROM lock_namespace n
 CROSS JOIN lock_request r INDEXED BY lock_owner ON r.namespace = n.name AND r.owner = :owner
 WHERE :namespace IS NULL OR n.name = :namespace
 ORDER BY r.id

-- name: locks.list_by_kind
-- List the requests that hold or wait for a resource of a kind, in one namespace or in all. The name of such a resource
-- is the kind alone, or begins with the kind and a colon: the range ends at the character after it, the semicolon (59).
SELECT r.request
  FROM lock_request r
 WHERE r.id IN (
    SELECT i.request_id
      FROM lock_namespace n
     CROSS JOIN lock_item i ON i.namespace = n.name AND i.resource = :kind
     WHERE :namespace IS NULL OR n.name = :namespace
     UNION ALL
    SELECT i.request_id
      FROM lock_namespace n
     CROSS JOIN lock_item i ON i.namespace = n.name AND i.resource >= :kind || ':' AND i.resource < :kind || char(59)
     WHERE :namespace IS NULL OR n.name = :namespace)
 ORDER BY r.id LIMIT :limit

-- name: locks.list_granted
-- List requests that were granted or aborted while no process was waiting for them.
SELECT request FROM lock_request INDEXED BY lock_called WHERE called ORDER BY id LIMIT :limit

-- name: locks.list_expired
-- List expired requests, as rows of namespace and id.
SELECT namespace, id FROM lock_request WHERE lease_until <= :now ORDER BY lease_until LIMIT :limit

-- name: locks.get_load
-- Read the length of the longest of these wait queues, the number of requests of the owner, and the state of its rate
-- limit. :resources is a JSON array.
SELECT coalesce(max(waiting), 0),
       (SELECT count(*) FROM lock_request WHERE namespace = :namespace AND owner = :owner),
       coalesce((SELECT full_at FROM lock_rate WHERE namespace = :namespace AND owner = :owner), 0)
  FROM (SELECT (SELECT count(*) FROM lock_item
                 WHERE namespace = :namespace AND resource = n.value AND granted = 0) AS waiting
          FROM json_each(:resources) AS n)

-- name: locks.put
-- Write requests. :rows is a JSON array of [id, namespace, owner, granted, lease_until, request, called].
INSERT INTO lock_request (id, namespace, owner, granted, lease_until, request, called)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value -> 5, value ->> 6 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (id) DO UPDATE
   SET granted = excluded.granted, lease_until = excluded.lease_until, request = excluded.request,
       called = excluded.called

-- name: locks.put_items
-- Write the resources of requests. :rows is a JSON array of [namespace, resource, granted, rank, seq, request_id].
INSERT INTO lock_item (namespace, resource, granted, rank, seq, request_id)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM jsonb_each(:rows)

-- name: locks.delete
-- Delete requests. :ids is a JSON array.
DELETE FROM lock_request WHERE id IN (SELECT value FROM json_each(:ids))

-- name: locks.delete_items
-- Delete the resources of requests. :rows is a JSON array of [namespace, resource, granted, rank, seq, request_id].
DELETE FROM lock_item
 WHERE (namespace, resource, granted, rank, seq, request_id) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM jsonb_each(:rows))

-- name: locks.insert_events
-- Append lock events. :rows is a JSON array of [type, at, task_id, actor, payload].
INSERT INTO event (type, at, task_seq, task_id, actor, payload)
SELECT value ->> 0, value ->> 1, (SELECT seq FROM task WHERE id = value ->> 2), value ->> 2, value ->> 3, value -> 4
  FROM jsonb_each(:rows)

-- name: locks.get_namespace
-- Read the highest seq and fencing token of a namespace.
SELECT seq, token FROM lock_namespace WHERE name = :namespace

-- name: locks.put_namespace
-- Write the highest seq and fencing token of a namespace.
INSERT INTO lock_namespace (name, seq, token) VALUES (:namespace, :seq, :token)
    ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, token = excluded.token

-- name: locks.put_rate
-- Write the state of an owner's rate limit.
INSERT INTO lock_rate (namespace, owner, full_at) VALUES (:namespace, :owner, :full_at)
    ON CONFLICT (namespace, owner) DO UPDATE SET full_at = excluded.full_at

-- name: locks.list_idle_rates
-- List owners whose rate limit has been unused since a point in time, as rows of namespace and owner.
SELECT namespace, owner FROM lock_rate WHERE full_at <= :since LIMIT :limit

-- name: locks.delete_rates
-- Delete the rate limits of owners, if they are still unused since that point in time. :owners is a JSON array of
-- [namespace, owner].
DELETE FROM lock_rate
 WHERE (namespace, owner) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(:owners)) AND full_at <= :since

-- Forget the rates of owners, if they are still all free since this moment. :owners is a JSON array of [namespace, owner].
DELETE FROM lock_rate
 WHERE (namespace, owner) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(:owners)) AND full_at <= :since

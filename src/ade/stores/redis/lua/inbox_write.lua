-- uses: base, types, fields, state, request_dedup, log, inboxes
-- flags: allow-oom
-- inbox_write: write the inbox request.id if its version is still request.seen: request.head (JSON), request.summary {version,
--   consumer or false, number of items, when the oldest was added or false, steady end of the batch lease or false},
--   request.added {{seq, item (JSON)}, ...}, request.removed {seq, ...}; request.events: packed events; request.token. Consumers
--   are notified. Returns 0, or 1 when the version is another one.

return write_inbox()

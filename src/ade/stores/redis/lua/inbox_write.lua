-- uses: base, types, fields, state, memory, log, inboxes
-- flags: allow-oom
-- inbox_write: write the inbox request.id if its version is still request.seen: request.head (JSON), request.stands {version,
--   consumer or false, number of items, when the oldest was put in or false, steady end of the lease of the batch that is out or
--   false}, request.added {{seq, item (JSON)}, ...}, request.removed {seq, ...}; request.events: packed events that tell of it;
--   request.token. Rings for inboxes. Answers 0, or 1 when it has changed since it was seen.

return write_inbox()

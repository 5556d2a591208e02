-- uses: base, types, fields, state, request_dedup, log, inboxes
-- inbox_admit: the same as inbox_write, for callers that can handle an error when memory is full.

return write_inbox()

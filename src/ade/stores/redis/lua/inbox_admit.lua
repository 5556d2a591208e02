-- uses: base, types, fields, state, memory, log, inboxes
-- inbox_admit: the same as inbox_write, for what somebody puts in who can be told that there is no room.

return write_inbox()

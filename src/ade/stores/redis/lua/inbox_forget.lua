-- uses: base, types, inboxes
-- flags: allow-oom
-- inbox_forget: delete inboxes that are empty and were not written since request.before (ms), request.limit at most. Returns how
--   many.

must_be({ ALL, 'zset', HELD, 'zset', EMPTY, 'zset' })
local count = 0
for _, id in ipairs(call('ZRANGEBYSCORE', EMPTY, '-inf', '(' .. whole(request.before), 'LIMIT', 0, request.limit)) do
  local can_be_read, summary = pcall(read_summary, id)
  if can_be_read and summary[3] == 0 and summary[6] < request.before then
    call('DEL', inbox_key(id))
    index_inbox(id, summary, UNUSED)
    count = count + 1
  end
end
return count

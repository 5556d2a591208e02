-- uses: base, types, inboxes
-- flags: allow-oom
-- inbox_forget: forget inboxes that are empty and were not written since request.before (ms), request.limit at most. Answers how
--   many.

must_be({ ALL, 'zset', HELD, 'zset', EMPTY, 'zset' })
local count = 0
for _, id in ipairs(call('ZRANGEBYSCORE', EMPTY, '-inf', '(' .. whole(request.before), 'LIMIT', 0, request.limit)) do
  local can_be_read, stand = pcall(read_stand, id)
  if can_be_read and stand[3] == 0 and stand[6] < request.before then
    call('DEL', inbox_key(id))
    place_inbox(id, stand, UNUSED)
    count = count + 1
  end
end
return count

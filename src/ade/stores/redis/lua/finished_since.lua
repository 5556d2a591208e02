-- uses: base, fields, state
-- flags: no-writes
-- finished_since: how many tasks of request.queue ended in the last minute, counted up to 1000.

local found = 0
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'task:finished', whole(NOW - 60000), '+inf', 'LIMIT', 0, 1000)) do
  local state = read_state(id)
  if state and state[QUEUE] == request.queue then
    found = found + 1
  end
end
return found

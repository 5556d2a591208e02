-- uses: base, fields, state
-- flags: no-writes
-- finished_since: count the tasks of request.queue that finished in the last minute, up to 1000.

local found = 0
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'task:finished', whole(NOW - 60000), '+inf', 'LIMIT', 0, 1000)) do
  local state = read_state(id)
  if state and state[QUEUE] == request.queue then
    found = found + 1
  end
end
return found

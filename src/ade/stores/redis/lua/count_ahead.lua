-- uses: base, fields, state, streams, task_streams
-- flags: no-writes
-- count_ahead: count the ready tasks of the same queue that come before request.id, up to request.limit.

local me = read_state(request.id)
if not me then
  return 0
end
local found = 0

for priority = 0, me[PRIORITY] do
  local stream = stream_key(me[QUEUE], priority)
  if found < request.limit and call('EXISTS', stream) == 1 then
    local before = priority == me[PRIORITY] and '(' .. whole(me[SEQ]) .. '-0' or '+'
    found = found + #call('XRANGE', stream, '(' .. last_delivered(stream), before, 'COUNT', request.limit - found)
  end
end
for _, lane in ipairs(call('SUNION', P .. 'queue:lines', P .. 'queue:asking')) do
  if found < request.limit and string.sub(lane, 1, #me[QUEUE] + 1) == me[QUEUE] .. ':' then
    local line = P .. 'queue:line:' .. lane
    found = found + call('ZCOUNT', line, '-inf', '(' .. me[PRIORITY])
    for _, member in ipairs(call('ZRANGEBYSCORE', line, me[PRIORITY], me[PRIORITY], 'LIMIT', 0, request.limit)) do
      if tonumber(string.sub(member, 1, 16)) >= me[SEQ] then
        break
      end
      found = found + 1
    end
  end
end
return math.min(found, request.limit)

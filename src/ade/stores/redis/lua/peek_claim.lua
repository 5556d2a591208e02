-- uses: base, fields, state, streams, task_streams, worker_filter, capabilities
-- flags: no-writes
-- peek_claim: list the first candidates of a claim, for a worker that must choose among partitions. request.names,
--   request.queues, request.capabilities, request.limit, request.id (`of` of the claims that follow).
-- Returns {claimed, parked, priority, seq, name, ...} in order, request.limit at most; `claimed` is the number of tasks those
--   claims already received, `parked` the number of keys with parked tasks; `name` is empty for names without limits. Tasks that
--   a limit holds back are included, and so are due tasks.

local is_limited = {}
for _, name in ipairs(call('HKEYS', P .. 'limits')) do
  is_limited[name] = name
end

-- Tasks that this worker does not serve can precede those it serves. The search stops after too many of them: then the last one
-- counts as found, and a claim sets them aside.
local MOST_LOOKED_AT = 2000
local found, looked_at = {}, 0
local function peek_stream(stream, priority)
  local after, served, portion = last_delivered(stream), 0, math.max(request.limit, 50)
  repeat
    local entries = call('XRANGE', stream, '(' .. after, '+', 'COUNT', portion)
    looked_at = looked_at + #entries
    for place, entry in ipairs(entries) do
      after = entry[1]
      if serves[entry[2][4]] or (place == portion and looked_at >= MOST_LOOKED_AT) then
        served = served + 1
        found[#found + 1] = { priority, tonumber(string.match(after, '^%d+')), is_limited[entry[2][4]] }
      end
    end
  until served >= request.limit or #entries < portion or looked_at >= MOST_LOOKED_AT
end
local counted = call('HGETALL', P .. 'queue:levels')
for place = 1, #counted, 2 do
  local priority, queue = string.match(counted[place], '^(%d):(.*)$')
  local stream = stream_key(queue, priority)
  if is_open(queue) and call('EXISTS', stream) == 1 then
    peek_stream(stream, tonumber(priority))
  end
end
for _, lane in ipairs(served_lanes()) do
  local heads = call('ZRANGE', P .. 'queue:line:' .. lane[1], 0, request.limit - 1, 'WITHSCORES')
  for place = 1, #heads, 2 do
    found[#found + 1] = { tonumber(heads[place + 1]), tonumber(string.sub(heads[place], 1, 16)), is_limited[lane[2]] }
  end
end
-- A claim makes so many due tasks ready. Others can follow them, so then the last one counts as found too.
local MOST_DUE = 1000
for place, id in ipairs(call('ZRANGEBYSCORE', P .. 'queue:delayed', '-inf', whole(NOW), 'LIMIT', 0, MOST_DUE)) do
  local state = read_state(id)
  if state and (place == MOST_DUE or (serves[state[NAME]] and is_open(state[QUEUE]) and has_all(state[NEEDS]))) then
    found[#found + 1] = { state[PRIORITY], state[SEQ], is_limited[state[NAME]] }
  end
end
table.sort(found, function(one, other)
  return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2])
end)
local known = call('GET', P .. 'claim:' .. request.id)
local answer = { known and #cmsgpack.unpack(known) / 3 or 0, call('SCARD', P .. 'queue:parkings') }
for place = 1, math.min(#found, request.limit) do
  answer[#answer + 1] = found[place][1]
  answer[#answer + 1] = whole(found[place][2])
  answer[#answer + 1] = found[place][3] or ''
end
return answer

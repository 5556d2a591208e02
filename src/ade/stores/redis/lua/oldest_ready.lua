-- uses: base, fields, state, streams, task_streams
-- flags: no-writes
-- oldest_ready: return when the oldest ready task of each queue became due: {queue, ms, ...}.

local since = {}

local function consider(id)
  local state = read_state(id)
  if state and state[STAGE] == 'ready' then
    local moment = math.max(state[RUN_AFTER], state[CREATED])
    since[state[QUEUE]] = math.min(since[state[QUEUE]] or moment, moment)
  end
end

local levels = call('HGETALL', P .. 'queue:levels')
for place = 1, #levels, 2 do
  local priority, queue = string.match(levels[place], '^(%d):(.*)$')
  local stream = stream_key(queue, priority)
  local head = call('XRANGE', stream, '(' .. last_delivered(stream), '+', 'COUNT', 1)
  if head[1] then
    consider(head[1][2][2])
  end
end
for _, lane in ipairs(call('SUNION', P .. 'queue:lines', P .. 'queue:asking')) do
  for priority = 0, 9 do
    local head = call('ZRANGEBYSCORE', P .. 'queue:line:' .. lane, priority, priority, 'LIMIT', 0, 1)
    if head[1] then
      consider(string.sub(head[1], 18))
    end
  end
end
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'queue:delayed', '-inf', whole(NOW), 'LIMIT', 0, 1000)) do
  local state = read_state(id) -- due, but no claim has made it ready yet
  if state then
    since[state[QUEUE]] = math.min(since[state[QUEUE]] or state[RUN_AFTER], state[RUN_AFTER])
  end
end
local answer = {}
for queue, moment in pairs(since) do
  answer[#answer + 1] = queue
  answer[#answer + 1] = whole(moment)
end
return answer

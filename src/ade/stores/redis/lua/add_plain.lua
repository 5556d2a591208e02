-- uses: base, types
-- add_plain: keep new tasks that are ready at once, without keys, dependencies, deadlines or parents: the common case, in as few
--   steps as there are. request.kinds: {queue, name, priority}, ...; request.states: begin, rest, ...: what stands before and
--   behind `seq` in a packed state, without the log; request.tasks: id, detail, event, number of its kind, of its state, ...;
--   request.due: when the last of them is due.
-- Answers 1 when all are stored. Answers 0, with nothing written, when one of them is not so plain after all (it exists already,
--   is not due, or its queue has a limit): then add.lua must be called.
-- What names tasks is looked at before anything is written, and counters are moved first: if that fails, no task was accepted, and
--   reconcile.lua puts the counters right.

local tasks, kinds, states = request.tasks, request.kinds, request.states
local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local base = math.max(SERVER_US - SERVER_US % PARTITIONS + PARTITION, before + PARTITIONS)
local base_text = whole(base)
if request.due > NOW or #base_text ~= 16 then
  return 0
end
for _, kind in ipairs(kinds) do
  local known = call('HGET', P .. 'queues', kind[1])
  if known and cmsgpack.unpack(known)[2] then
    return 0
  end
end
local keys = { P .. 'recount' }
for place = 1, #tasks, 5 do
  keys[#keys + 1] = P .. 'task:' .. tasks[place]
end
for from = 1, #keys, 1000 do
  if call('EXISTS', unpack(keys, from, math.min(from + 999, #keys))) > 0 then
    return 0
  end
end
must_be({ P .. 'task:all', 'zset', P .. 'events', 'stream' })
for _, kind in ipairs(kinds) do
  kind.stream, kind.count = STREAM .. kind[1] .. ':' .. kind[3], 0
  must_be({ kind.stream, 'stream' })
end

call('HSET', KEYS[1], 'tick', whole(base + (#keys - 2) * PARTITIONS))
local everyone, events = {}, {} -- seq, id, ... and what the log tells
for place = 1, #tasks, 5 do
  local kind = kinds[tasks[place + 3]]
  local number = #events + 1
  kind.count = kind.count + 1
  everyone[2 * number - 1], everyone[2 * number] = whole(base + (number - 1) * PARTITIONS), tasks[place]
  events[number] = tasks[place + 2]
end
for _, kind in ipairs(kinds) do
  call('HINCRBY', P .. 'tally', kind[1] .. ':' .. kind[2] .. ':pending', kind.count)
  call('HINCRBY', P .. 'queue:depth', kind[1], kind.count)
  call('HINCRBY', P .. 'queue:levels', kind[3] .. ':' .. kind[1], kind.count)
end
in_portions('ZADD', P .. 'task:all', everyone)
local head = string.char(220, math.floor(#events / 256), #events % 256)
call('XADD', P .. 'events', base_text .. '-0', 'events', head .. table.concat(events))
local log = string.char(176) .. base_text
for number = 1, #events do
  local place = 5 * number - 4
  local kind, state = kinds[tasks[place + 3]], 2 * tasks[place + 4]
  call('XADD', kind.stream, everyone[2 * number - 1] .. '-0', 'id', tasks[place], 'name', kind[2])
  local seq = cmsgpack.pack(base + (number - 1) * PARTITIONS)
  call('HSET', keys[number + 1], 'state', states[state - 1] .. seq .. states[state] .. log, 'detail', tasks[place + 1])
end
ring('work')
return 1

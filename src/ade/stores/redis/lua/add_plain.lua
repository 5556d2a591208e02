-- uses: base, fields
-- add_plain: keep new tasks that are ready at once, without keys, dependencies, deadlines or parents: the common case, in as few
--   steps as there are. request.tasks: {id, state, detail, event}, ...; request.queues: the queues they are for.
-- Answers 1 when all are stored. Answers 0, with nothing written, when one of them is not so plain after all (it exists already,
--   is not due, or its queue has a limit): then add.lua must be called.
-- What other programs may have spoiled is written first: if that fails, no task was accepted, and what was written by then is
--   taken back by reconcile.lua.

local tasks = request.tasks
for _, queue in ipairs(request.queues) do
  local known = call('HGET', P .. 'queues', queue)
  if known and cmsgpack.unpack(known)[2] then
    return 0
  end
end
local keys = {}
for place, task in ipairs(tasks) do
  keys[place] = P .. 'task:' .. task[1]
  if task[2][RUN_AFTER] > NOW then
    return 0
  end
end
if call('EXISTS', P .. 'recount', unpack(keys)) > 0 then
  return 0
end

local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local base = math.max(SERVER_US - SERVER_US % PARTITIONS + PARTITION, before + PARTITIONS)
local base_text = whole(base)
call('HSET', KEYS[1], 'tick', whole(base + (#tasks - 1) * PARTITIONS))

local lanes, depths, levels, everyone, events = {}, {}, {}, {}, {}
for place, task in ipairs(tasks) do
  local id, state = task[1], task[2]
  local seq = base + (place - 1) * PARTITIONS
  local queue, level = state[QUEUE], state[PRIORITY] .. ':' .. state[QUEUE]
  local lane = queue .. ':' .. state[NAME] .. ':' .. state[STATUS]
  state[STAGE], state[WHERE], state[SEQ], state[LOGGED] = 'ready', 'stream', seq, base_text
  lanes[lane] = (lanes[lane] or 0) + 1
  depths[queue] = (depths[queue] or 0) + 1
  levels[level] = (levels[level] or 0) + 1
  everyone[2 * place - 1], everyone[2 * place] = seq, id
  events[place] = task[4]
end
for lane, number in pairs(lanes) do
  call('HINCRBY', P .. 'tally', lane, number)
end
for queue, number in pairs(depths) do
  call('HINCRBY', P .. 'queue:depth', queue, number)
end
for level, number in pairs(levels) do
  call('HINCRBY', P .. 'queue:levels', level, number)
end
call('ZADD', P .. 'task:all', unpack(everyone))
local head = string.char(220, math.floor(#events / 256), #events % 256)
call('XADD', P .. 'events', base_text .. '-0', 'events', head .. table.concat(events))
for place, task in ipairs(tasks) do
  local state = task[2]
  call('XADD', STREAM .. state[QUEUE] .. ':' .. state[PRIORITY], whole(state[SEQ]) .. '-0', 'id', task[1], 'name', state[NAME])
  call('HSET', keys[place], 'state', cmsgpack.pack(state), 'detail', task[3])
end
ring('work')
return 1

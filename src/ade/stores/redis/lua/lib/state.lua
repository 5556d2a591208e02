-- Read and write the state of a task.
local FINAL = { completed = true, failed = true, rejected = true, cancelled = true }
local CLAIMABLE = { pending = true, stalled = true }
local WAITS = { pending = true, stalled = true, submitted = true, reviewing = true, approved = true } -- a broken dependency ends it
local COMMON = { pending = true, running = true, completed = true } -- too frequent for an index of their own

local function task_key(id)
  return P .. 'task:' .. id
end

local function read_state(id)
  local packed = call('HGET', task_key(id), 'state')
  return packed and cmsgpack.unpack(packed)
end

local function write_state(id, state)
  call('HSET', task_key(id), 'state', cmsgpack.pack(state))
end

-- The record of a task: id, state, detail, outcome, progress.
local function record_of(id)
  local found = call('HMGET', task_key(id), 'state', 'detail', 'outcome', 'progress')
  return { id, found[1], found[2], found[3], found[4] }
end

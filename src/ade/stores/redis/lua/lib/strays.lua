-- What names a task must be right about it. For each kind of key: its type, and whether a task belongs in it.
local function has_id(stream, entry)
  local found = call('XRANGE', stream, entry, entry)[1]
  local fields = found and found[2] or {}
  for place = 1, #fields, 2 do
    if fields[place] == 'id' then
      return fields[place + 1]
    end
  end
  return found and ''
end

local function of_place(named)
  return string.sub(named, 18)
end

-- Each answers whether the task (its state, its id) belongs where `named` with `value` (a score or a field) was found.
local KINDS = {
  all = { 'zset', function(state, _, seq) return seq == state[SEQ] end },
  finished = { 'zset', function(state, _, at) return FINAL[state[STATUS]] and at == state[FINISHED] end },
  results = { 'zset', function(state, _, at) return at == state[EXPIRES] end },
  state = { 'zset', function(state, _, seq, status)
    return status == state[STATUS] and not COMMON[status] and seq == state[SEQ]
  end },
  children = { 'zset', function(state, _, _, parent) return parent == state[PARENT] end },
  leases = { 'zset', function(state, _, at) return state[STATUS] == 'running' and at == state[LEASE] end },
  deadlines = { 'zset', function(state, _, at) return CLAIMABLE[state[STATUS]] and at == state[DEADLINE] end },
  delayed = { 'zset', function(state, _, at) return state[STAGE] == 'delayed' and at == state[RUN_AFTER] end },
  line = { 'zset', function(state, id, priority, lane, named)
    return state[STAGE] == 'ready' and state[WHERE] == 'line' and lane == lane_of(state)
      and named == member(id, state) and priority == state[PRIORITY]
  end, of_place },
  parked = { 'zset', function(state, id, _, parking, named)
    return state[STAGE] == 'parked' and state[KEY] and parking == crowd_of(state) .. ':' .. parking_of(state)
      and named == member(id, state)
  end, of_place },
  holders = { 'set', function(state, _, _, parking)
    return state[STATUS] == 'running' and state[KEY] and parking == parking_of(state)
  end },
  broken = { 'set', function(_, id) return has_broken_needs(id) end },
  waiting = { 'hash', function(_, id, _, on) return call('HEXISTS', P .. 'task:needs:' .. id, on) == 1 end },
  needs = { 'hash', function() return true end },
  idem = { 'string', function(state, _, _, digest) return digest == state[IDEM] end },
  stream = { 'stream', function(state, _, _, _, entry, key)
    return state[WHERE] == 'stream' and entry == whole(state[SEQ]) .. '-0' and key == stream_key(state[QUEUE], state[PRIORITY])
      and (state[STAGE] == 'ready' or state[STATUS] == 'running')
  end },
  back = { 'stream', function(state, _, _, _, entry)
    return state[STATUS] == 'running' and state[WHERE] == 'back:' .. entry
  end },
  letters = { 'stream', function(state, _, _, _, entry) return state[LETTER] == entry end },
}

-- The value under which something is still there, and the id of the task it names; nil when it has gone meanwhile.
local LOOK = {
  zset = function(key, named)
    local score = call('ZSCORE', key, named)
    return score and tonumber(score), named
  end,
  set = function(key, named)
    return call('SISMEMBER', key, named) == 1, named
  end,
  hash = function(key, named)
    return call('HGET', key, named), named
  end,
  stream = function(key, entry)
    local id = has_id(key, entry)
    return id and true, id
  end,
  string = function(key)
    local known = call('GET', key)
    return known and true, known and cmsgpack.unpack(known)[1]
  end,
}

local REMOVE = {
  zset = function(key, named) call('ZREM', key, named) end,
  set = function(key, named) call('SREM', key, named) end,
  hash = function(key, named) call('HDEL', key, named) end,
  stream = function(key, entry) strike(key, entry) end,
  string = function(key) call('DEL', key) end,
}

-- Why a task does not belong where it is named, or nil. The second answer is the id of a task that is gone altogether.
local function stray_fault(kind, key, argument, named)
  local kind_type, belongs, id_in = unpack(KINDS[kind])
  local value, id = LOOK[kind_type](key, named)
  if not value or (kind == 'waiting' and string.find(value, '@', 1, true)) then
    return nil -- it has gone meanwhile, or its task is in another partition
  end
  id = id_in and id_in(named) or id
  if kind == 'needs' then
    id = argument -- a task that is gone waits for nothing
  end
  local state = readable_state(id)
  if state == nil then
    return key .. ' names ' .. id .. ', which does not exist', id
  elseif state and not belongs(state, id, value, argument, named, key) then
    return key .. ' names ' .. id .. ', which is ' .. state[STATUS] .. ' and does not belong there'
  end
end

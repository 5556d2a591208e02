-- Where claimable tasks are. A task that is ready when it is created is in the stream of its queue and priority, in the order of
-- age. A task that becomes ready later (delayed, retried, stalled, released, unblocked, held back by a limit) would be out of order
-- at the end of a stream, so it enters a lane: a sorted set of its queue and name, by priority and age. A claim merges both. Tasks
-- that require capabilities are always in lanes, with tasks that require the same ones: other workers never read them.

-- How far a stream has been delivered.
local function last_delivered(stream)
  local group = group_of(stream)
  return group and group['last-delivered-id'] or '0-0'
end

local function member(id, state)
  return string.format('%016.0f:%s', state[SEQ], id)
end

-- Its lane, and the set of all such lanes.
local function lane_of(state)
  local lane = state[QUEUE] .. ':' .. state[NAME]
  if state[NEEDS] then
    return lane .. '+' .. state[NEEDS], P .. 'queue:asking'
  end
  return lane, P .. 'queue:lines'
end

local function enter_lane(id, state)
  local lane, lanes = lane_of(state)
  state[STAGE], state[WHERE] = 'ready', 'line'
  call('ZADD', P .. 'queue:line:' .. lane, state[PRIORITY], member(id, state))
  call('SADD', lanes, lane)
end

local function parking_of(state)
  return state[NAME] .. '/' .. state[KEY]
end

local function parked_key(segment, parking)
  return P .. 'queue:parked:' .. segment .. ':' .. parking
end

-- Parked tasks are separated by queue and required capabilities, because not every worker serves all of them.
local function segment_of(state)
  return state[NEEDS] and state[QUEUE] .. '+' .. state[NEEDS] or state[QUEUE]
end

-- Its concurrency key is busy: it is not ready until a run of that key ends.
local function park(id, state)
  local parking, segment = parking_of(state), segment_of(state)
  state[STAGE], state[WHERE] = 'parked', false
  call('ZADD', parked_key(segment, parking), state[PRIORITY], member(id, state))
  call('SADD', P .. 'queue:parking:' .. parking, segment)
  call('SADD', P .. 'queue:parkings', parking)
end

-- A key might be free: the first parked task of each segment becomes ready, and the claim chooses among them.
local function unpark(parking, all)
  local freed = false
  for _, segment in ipairs(call('SMEMBERS', P .. 'queue:parking:' .. parking)) do
    local key = parked_key(segment, parking)
    for _, waiting in ipairs(call('ZRANGE', key, 0, all and -1 or 0)) do
      local id = string.sub(waiting, 18)
      local state = read_state(id)
      call('ZREM', key, waiting)
      if state and state[STAGE] == 'parked' then
        enter_lane(id, state)
        write_state(id, state)
        freed = true
      end
    end
    if call('EXISTS', key) == 0 then
      call('SREM', P .. 'queue:parking:' .. parking, segment)
    end
  end
  if call('EXISTS', P .. 'queue:parking:' .. parking) == 0 then
    call('SREM', P .. 'queue:parkings', parking)
  end
  return freed
end

-- Put a claimable task where it belongs.
local function enter(id, state, was_due)
  if state[DEADLINE] then
    call('ZADD', P .. 'queue:deadlines', whole(state[DEADLINE]), id)
  end
  if state[WAITING] > 0 then
    state[STAGE] = 'blocked'
  elseif state[RUN_AFTER] > NOW and not was_due then
    state[STAGE] = 'delayed'
    call('ZADD', P .. 'queue:delayed', whole(state[RUN_AFTER]), id)
  else
    enter_lane(id, state)
  end
end

-- Remove a claimable task from where it is.
local function leave(id, state)
  local stage = state[STAGE]
  if stage == 'ready' and state[WHERE] == 'line' then
    call('ZREM', P .. 'queue:line:' .. lane_of(state), member(id, state))
  elseif stage == 'ready' then
    redis.pcall('XDEL', stream_key(state[QUEUE], state[PRIORITY]), whole(state[SEQ]) .. '-0')
    local level = state[PRIORITY] .. ':' .. state[QUEUE]
    if call('HINCRBY', P .. 'queue:levels', level, -1) == 0 then
      call('HDEL', P .. 'queue:levels', level)
    end
  elseif stage == 'delayed' then
    call('ZREM', P .. 'queue:delayed', id)
  elseif stage == 'parked' then
    call('ZREM', parked_key(segment_of(state), parking_of(state)), member(id, state))
  end
  if state[DEADLINE] then
    call('ZREM', P .. 'queue:deadlines', id)
  end
  state[STAGE], state[WHERE] = false, false
end

-- The stream and the entry that a run was delivered from.
local function delivery(state)
  if state[WHERE] == 'stream' then
    return stream_key(state[QUEUE], state[PRIORITY]), whole(state[SEQ]) .. '-0'
  end
  return P .. 'queue:back', string.sub(state[WHERE], 6)
end

-- A run ended: remove its entry, its lease, and its hold on the concurrency key.
local function release_run(id, state)
  if state[WHERE] then
    remove_entry(delivery(state))
  end
  released[#released + 1] = id
  if state[KEY] then
    call('SREM', P .. 'queue:key:' .. parking_of(state), id)
  end
  state[WHERE] = false
end

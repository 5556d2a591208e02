-- Where tasks stand. What is ready at its creation stands in the stream of its queue and priority, in the order of age. What
-- comes back later (delayed, retried, stalled, released, unblocked, kept back by a limit) would be out of order at the end of
-- a stream, so it stands in a line: a sorted set of its queue and name, by priority and age. A claim merges both. What asks
-- for capabilities always stands in a line, together with those that ask for the same: who cannot take it never comes upon it.
-- How far a stream was handed out.
local function last_delivered(stream)
  local group = group_of(stream)
  return group and group['last-delivered-id'] or '0-0'
end

local function member(id, state)
  return string.format('%016.0f:%s', state[SEQ], id)
end

-- Its line, and the set of all such lines.
local function lane_of(state)
  local lane = state[QUEUE] .. ':' .. state[NAME]
  if state[NEEDS] then
    return lane .. '+' .. state[NEEDS], P .. 'queue:asking'
  end
  return lane, P .. 'queue:lines'
end

local function join_line(id, state)
  local lane, lanes = lane_of(state)
  state[STAGE], state[WHERE] = 'ready', 'line'
  call('ZADD', P .. 'queue:line:' .. lane, state[PRIORITY], member(id, state))
  call('SADD', lanes, lane)
end

local function parking_of(state)
  return state[NAME] .. '/' .. state[KEY]
end

local function parked_key(crowd, parking)
  return P .. 'queue:parked:' .. crowd .. ':' .. parking
end

-- With whom it waits for a key: not every worker serves every queue, or has what some ask for.
local function crowd_of(state)
  return state[NEEDS] and state[QUEUE] .. '+' .. state[NEEDS] or state[QUEUE]
end

-- Its concurrency key is busy: out of the line until a run of that key ends.
local function park(id, state)
  local parking, crowd = parking_of(state), crowd_of(state)
  state[STAGE], state[WHERE] = 'parked', false
  call('ZADD', parked_key(crowd, parking), state[PRIORITY], member(id, state))
  call('SADD', P .. 'queue:parking:' .. parking, crowd)
  call('SADD', P .. 'queue:parkings', parking)
end

-- A key may be free: the first that waits for it in each crowd stands in line again; the claim decides among them.
local function unpark(parking, all)
  local freed = false
  for _, crowd in ipairs(call('SMEMBERS', P .. 'queue:parking:' .. parking)) do
    local key = parked_key(crowd, parking)
    for _, waiting in ipairs(call('ZRANGE', key, 0, all and -1 or 0)) do
      local id = string.sub(waiting, 18)
      local state = read_state(id)
      call('ZREM', key, waiting)
      if state and state[STAGE] == 'parked' then
        join_line(id, state)
        write_state(id, state)
        freed = true
      end
    end
    if call('EXISTS', key) == 0 then
      call('SREM', P .. 'queue:parking:' .. parking, crowd)
    end
  end
  if call('EXISTS', P .. 'queue:parking:' .. parking) == 0 then
    call('SREM', P .. 'queue:parkings', parking)
  end
  return freed
end

-- Give a claimable task its place.
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
    join_line(id, state)
  end
end

-- Take a claimable task out of its place.
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
    call('ZREM', parked_key(crowd_of(state), parking_of(state)), member(id, state))
  end
  if state[DEADLINE] then
    call('ZREM', P .. 'queue:deadlines', id)
  end
  state[STAGE], state[WHERE] = false, false
end

-- The stream and the entry a run is delivered by.
local function delivery(state)
  if state[WHERE] == 'stream' then
    return stream_key(state[QUEUE], state[PRIORITY]), whole(state[SEQ]) .. '-0'
  end
  return P .. 'queue:back', string.sub(state[WHERE], 6)
end

-- A run is over: its entry, its lease and its hold on the concurrency key go.
local function release_run(id, state)
  if state[WHERE] then
    strike(delivery(state))
  end
  released[#released + 1] = id
  if state[KEY] then
    call('SREM', P .. 'queue:key:' .. parking_of(state), id)
  end
  state[WHERE] = false
end

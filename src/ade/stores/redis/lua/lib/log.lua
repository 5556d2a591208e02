-- The event log. One entry for all events of a call; its id is the tick of the first, the others count up from it.
-- Ticks are the server's microseconds, never the same twice, and apart by partition, so that they order all events.
local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local aligned = SERVER_US - SERVER_US % PARTITIONS + PARTITION
local BASE = math.max(aligned, before + PARTITIONS)
local BASE_TEXT = whole(BASE)
local events, told = {}, 0 -- what goes into the entry, and how many events that is

local function tick(number)
  return BASE + (number - 1) * PARTITIONS
end

-- This entry tells of the task.
local function note(state)
  local logged = state[LOGGED]
  if logged == '' then
    state[LOGGED] = BASE_TEXT
  elseif string.sub(logged, -#BASE_TEXT) ~= BASE_TEXT then
    state[LOGGED] = logged .. ' ' .. BASE_TEXT
  end
end

-- Enter a packed event of a task whose state says already that this entry tells of it.
local function tell(event)
  events[#events + 1] = event
  told = told + 1
end

-- Enter packed events of a task.
local function record(state, packed)
  for _, event in ipairs(packed) do
    events[#events + 1] = event
  end
  told = told + #packed
  note(state)
end

-- Enter the claims of one call in one piece: packed {id, run id, attempt, ...}. Readers make an event of each.
local function record_claims(worker, number, claims)
  table.insert(events, 1, string.char(148) .. cmsgpack.pack('claims', NOW, worker) .. claims) -- an array of four
  told = told + number
end

-- How many events an entry tells of, claims in one piece counted one by one.
local function told_in(packed)
  local number = 0
  for _, event in ipairs(cmsgpack.unpack(packed)) do
    number = number + (event[1] == 'claims' and #event[4] / 3 or 1)
  end
  return number
end

local function array_head(count)
  if count < 65536 then
    return string.char(220, math.floor(count / 256), count % 256)
  end
  return string.char(221, math.floor(count / 16777216), math.floor(count / 65536) % 256,
    math.floor(count / 256) % 256, count % 256)
end

-- Write the entry. `newest` is the last tick that was used for other things than events, if any was.
local function close_log(newest)
  if #events == 0 and not newest then
    return
  end
  call('HSET', KEYS[1], 'tick', whole(math.max(tick(told), newest or 0)))
  if #events > 0 then
    call('XADD', P .. 'events', BASE_TEXT .. '-0', 'events', array_head(#events) .. table.concat(events))
  end
end

-- The event log. All events of a call are one entry; its id is the tick of the first event, and the others count up from it.
-- Ticks are the server's microseconds. They are unique, also across partitions, so that they order all events.
local before = tonumber(call('HGET', KEYS[1], 'tick') or '0')
local aligned = SERVER_US - SERVER_US % PARTITIONS + PARTITION
local BASE = math.max(aligned, before + PARTITIONS)
local BASE_TEXT = whole(BASE)
local events, event_count = {}, 0 -- elements of the entry, and the number of events in them

local function tick(number)
  return BASE + (number - 1) * PARTITIONS
end

-- Record in the state of a task that this entry has events of it.
local function note_entry(state)
  local logged = state[LOGGED]
  if logged == '' then
    state[LOGGED] = BASE_TEXT
  elseif string.sub(logged, -#BASE_TEXT) ~= BASE_TEXT then
    state[LOGGED] = logged .. ' ' .. BASE_TEXT
  end
end

-- Append a packed event; the state of its task already names this entry.
local function append_event(event)
  events[#events + 1] = event
  event_count = event_count + 1
end

-- Append packed events of a task.
local function append_task_events(state, packed)
  for _, event in ipairs(packed) do
    events[#events + 1] = event
  end
  event_count = event_count + #packed
  note_entry(state)
end

-- Append the claims of one call as one element: packed {id, run id, attempt, ...}. Readers expand it to one event each.
local function append_claims(worker, number, claims)
  table.insert(events, 1, string.char(148) .. cmsgpack.pack('claims', NOW, worker) .. claims) -- an array of four
  event_count = event_count + number
end

-- Put the claim of a governed task before all other events of the call, as an event of its own with the digest that runs.
local function append_governed_claim(worker, id, run_id, attempt, digest)
  table.insert(events, 1, cmsgpack.pack({ 'task.claimed', NOW, id, false, { attempt = attempt, run_id = run_id,
    worker = worker, digest = digest } }))
  event_count = event_count + 1
end

-- The number of events in an entry; each claim counts.
local function count_events_in(packed)
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

-- Write the entry. `newest` is the last tick that was used for something else, if any.
local function flush_log(newest)
  if #events == 0 and not newest then
    return
  end
  call('HSET', KEYS[1], 'tick', whole(math.max(tick(event_count), newest or 0)))
  if #events > 0 then
    call('XADD', P .. 'events', BASE_TEXT .. '-0', 'events', array_head(#events) .. table.concat(events))
  end
end

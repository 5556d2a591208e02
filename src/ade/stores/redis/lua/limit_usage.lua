-- uses: base, fields, state, streams, task_streams, rates
-- flags: allow-oom
-- limit_usage: return this partition's usage of names with limits, for a claim that must count over several partitions.
-- request.busy: running tasks by name and concurrency key in other partitions, or false at first. If it is given, parked tasks
--   become ready when their key is free.
-- Returns {running: name, count, ...; rates: name, full at, ...; keys of parked and of running tasks: key, count, ...}.

local running, rates, busy = {}, {}, {}
local per_key = {}
local packed_limits = call('HGETALL', P .. 'limits')
for place = 1, #packed_limits, 2 do
  local name = packed_limits[place]
  local limit = cmsgpack.unpack(packed_limits[place + 1])
  running[#running + 1] = name
  running[#running + 1] = tonumber(call('HGET', P .. 'queue:running', name) or '0')
  rates[#rates + 1] = name
  rates[#rates + 1] = limit[3] and whole(rate_full_at(name, limit)) or '0'
  per_key[name] = limit[2]
end

-- Keys of running tasks are found through the leases: few tasks run compared to how many wait.
for _, id in ipairs(next(per_key) and call('ZRANGE', P .. 'queue:leases', 0, -1) or {}) do
  local state = read_state(id)
  if state and state[KEY] and per_key[state[NAME]] then
    local parking = parking_of(state)
    busy[parking] = (busy[parking] or 0) + 1
  end
end
if request.busy then
  for _, parking in ipairs(call('SMEMBERS', P .. 'queue:parkings')) do
    local limit = per_key[string.match(parking, '^[^/]*')]
    if not limit or (busy[parking] or 0) + (request.busy[parking] or 0) < limit then
      unpark(parking)
    end
  end
end
local keys = {}
for parking, number in pairs(busy) do
  keys[#keys + 1] = parking
  keys[#keys + 1] = number
end
return { running, rates, keys }

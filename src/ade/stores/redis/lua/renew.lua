-- uses: base, fields, state, streams, task_streams, leases
-- flags: allow-oom
-- renew: extend the leases of a worker's runs. request.worker (its id), request.runs: {run id, task id}, ..., request.lease_ms,
--   request.claim: the id of a claim whose response the worker may not have read, or none; its runs are extended too.
-- A lease never gets shorter; an expired one is extended too, if its task was not reclaimed. The entry stays pending for the
--   worker. The field `lease` of the partition is the longest lease of the last hour, and about when it was renewed.
-- Returns for each run 'held', 'gone' (the task does not exist), or the status of a task that this run no longer holds.

repair_leases()
local until_ms = STEADY + request.lease_ms
local answers, leases, pending = {}, {}, {}
local function extend(run_id, id)
  local state = read_state(id)
  if not state then
    return 'gone'
  elseif state[STATUS] ~= 'running' or state[RUN_ID] ~= run_id or state[WORKER] ~= request.worker then
    return state[STATUS]
  end
  if state[LEASE] < until_ms then
    state[LEASE] = until_ms
    write_state(id, state)
    leases[#leases + 1] = whole(until_ms)
    leases[#leases + 1] = id
  end
  if state[WHERE] then
    local stream, entry = delivery(state)
    pending[stream] = pending[stream] or {}
    table.insert(pending[stream], entry)
  end
  return 'held'
end
for place, run in ipairs(request.runs) do
  answers[place] = extend(run[1], run[2])
end
local claimed = request.claim and call('GET', P .. 'claim:' .. request.claim)
local claims = claimed and cmsgpack.unpack(claimed) or {} -- id, run id, attempt, ...
for place = 1, #claims, 3 do
  extend(claims[place + 1], claims[place])
end
in_portions('ZADD', P .. 'queue:leases', leases)
local longest = call('HGET', KEYS[1], 'lease')
longest = longest and cmsgpack.unpack(longest)
local age = longest and (longest[1] == request.lease_ms and 60000 or 3600000)
if not longest or longest[1] < request.lease_ms or longest[2] < STEADY - age then
  call('HSET', KEYS[1], 'lease', cmsgpack.pack({ request.lease_ms, STEADY }))
end
for stream, entries in pairs(pending) do
  for from = 1, #entries, 1000 do
    local arguments = { stream, GROUP, request.worker, 0 }
    for place = from, math.min(from + 999, #entries) do
      arguments[#arguments + 1] = entries[place]
    end
    arguments[#arguments + 1] = 'JUSTID'
    redis.pcall('XCLAIM', unpack(arguments)) -- fails only when the group was lost; the lease decides
  end
end
return answers

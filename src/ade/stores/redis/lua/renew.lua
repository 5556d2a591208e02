-- uses: base, fields, state, streams, task_streams, leases
-- flags: allow-oom
-- renew: extend the leases of a worker's runs. request.worker (its id), request.runs: {run id, task id}, ..., request.lease_ms.
-- A lease never gets shorter; an expired one is extended too, if its task was not reclaimed. The entry stays pending for the
--   worker. Returns for each run 'held', 'gone' (the task does not exist), or the status of a task that this run no longer holds.

repair_leases()
local until_ms = STEADY + request.lease_ms
local answers, leases, pending = {}, {}, {}
for place, run in ipairs(request.runs) do
  local state = read_state(run[2])
  if not state then
    answers[place] = 'gone'
  elseif state[STATUS] == 'running' and state[RUN_ID] == run[1] and state[WORKER] == request.worker then
    answers[place] = 'held'
    if state[LEASE] < until_ms then
      state[LEASE] = until_ms
      write_state(run[2], state)
      leases[#leases + 1] = whole(until_ms)
      leases[#leases + 1] = run[2]
    end
    if state[WHERE] then
      local stream, entry = delivery(state)
      pending[stream] = pending[stream] or {}
      table.insert(pending[stream], entry)
    end
  else
    answers[place] = state[STATUS]
  end
end
in_portions('ZADD', P .. 'queue:leases', leases)
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

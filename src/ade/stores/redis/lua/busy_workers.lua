-- uses: base, fields, state
-- flags: no-writes
-- busy_workers: list which of request.workers (ids) hold a running task.

local asked, found = {}, {}
for _, worker in ipairs(request.workers) do
  asked[worker] = true
end
for _, id in ipairs(call('ZRANGE', P .. 'queue:leases', 0, -1)) do
  local state = read_state(id)
  local worker = state and state[STATUS] == 'running' and state[WORKER]
  if worker and asked[worker] then
    asked[worker] = nil
    found[#found + 1] = worker
  end
end
return found

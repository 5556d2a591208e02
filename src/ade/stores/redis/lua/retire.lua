-- uses: base, memory
-- flags: allow-oom
-- retire: forget workers. request.workers (ids), request.silent_ms: only those still silent for so long, or false for all;
--   request.token. Answers the ids that went.

local known = remembered()
if known then
  return known
end
local gone = {}
for _, worker in ipairs(request.workers) do
  local ended = call('ZSCORE', P .. 'workers:heartbeat', worker)
  if ended and (not request.silent_ms or tonumber(ended) < STEADY - request.silent_ms) then
    call('ZREM', P .. 'workers:heartbeat', worker)
    call('HDEL', P .. 'workers', worker)
    gone[#gone + 1] = worker
  end
end
return #gone > 0 and remember(gone) or gone

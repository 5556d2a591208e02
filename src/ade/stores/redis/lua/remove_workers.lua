-- uses: base, request_dedup, continuity
-- flags: allow-oom
-- remove_workers: delete workers. request.workers (ids), request.lost_ms: only those that are still lost for so long, or false
--   for all; request.token, request.clock as in lib/continuity.lua. Returns the deleted ids.

local known = known_answer()
if known then
  return known
end
local gone = {}
for _, worker in ipairs(request.workers) do
  local ended = call('ZSCORE', P .. 'workers:heartbeat', worker)
  if ended and (not request.lost_ms or has_expired(tonumber(ended) + request.lost_ms, request.lost_ms)) then
    call('ZREM', P .. 'workers:heartbeat', worker)
    call('HDEL', P .. 'workers', worker)
    gone[#gone + 1] = worker
  end
end
return #gone > 0 and keep_answer(gone) or gone

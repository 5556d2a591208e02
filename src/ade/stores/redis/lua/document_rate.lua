-- uses: base
-- flags: allow-oom
-- document_rate: use request.times of request.count starts in request.period_ms from the rate limit request.key, by GCRA as in
--   ade/core/rate.py; request.token. Returns 0, or the milliseconds until so many are available; then nothing is used.

local KEY = P .. 'document:rate:' .. request.key
local KEPT_MS = 60000 -- after all of it is available again
local stored, last = string.match(call('GET', KEY) or '', '^(%d+) (%x+)$')
if last == request.token then -- repeated: the answer was lost
  return 0
end
local interval = math.ceil(request.period_ms * 1000 / request.count)
local now, full_at = STEADY * 1000, tonumber(stored or '0')
local latest = now + request.count * interval
if full_at > latest then -- from before the clock was set back
  full_at = latest - interval
end
local earliest = full_at - (request.count - request.times) * interval
if earliest > now then
  return math.ceil(earliest / 1000) - STEADY
end
full_at = math.max(full_at, now) + request.times * interval
call('SET', KEY, whole(full_at) .. ' ' .. request.token, 'PX', whole(math.ceil(full_at / 1000) - STEADY + KEPT_MS))
return 0

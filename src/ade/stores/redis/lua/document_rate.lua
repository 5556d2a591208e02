-- uses: base
-- flags: allow-oom
-- document_rate: use up request.times of request.count starts in request.period_ms of the rate request.key, by GCRA as in
--   ade/core/rate.py; request.token. Answers 0, or after how many milliseconds there are so many, and nothing is used up.

local KEY = P .. 'document:rate:' .. request.key
local KEPT_MS = 60000 -- after it is all free again
local stored, last = string.match(call('GET', KEY) or '', '^(%d+) (%x+)$')
if last == request.token then -- the answer was lost
  return 0
end
local interval = math.ceil(request.period_ms * 1000 / request.count)
local now, full_at = STEADY * 1000, tonumber(stored or '0')
local latest = now + request.count * interval
if full_at > latest then -- from before the clock was put back
  full_at = latest - interval
end
local earliest = full_at - (request.count - request.times) * interval
if earliest > now then
  return math.ceil(earliest / 1000) - STEADY
end
full_at = math.max(full_at, now) + request.times * interval
call('SET', KEY, whole(full_at) .. ' ' .. request.token, 'PX', whole(math.ceil(full_at / 1000) - STEADY + KEPT_MS))
return 0

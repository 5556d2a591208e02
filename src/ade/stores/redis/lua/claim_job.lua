-- uses: base
-- flags: allow-oom
-- claim_job: claim the maintenance job request.job for the next request.ttl_ms, or extend the claim. request.holder. Returns 1,
--   or 0 when another process holds it.
-- The job is stored as {holder, until steady ms, ttl_ms}: a claim that ends later than it could is from before the server's clock
--   was set back, and no longer counts.

local known = call('HGET', P .. 'duty', request.job)
local job = known and cmsgpack.unpack(known)
local left = job and job[2] - STEADY
if job and job[1] ~= request.holder and left >= 0 and left <= (job[3] or 0) then
  return 0
end
call('HSET', P .. 'duty', request.job, cmsgpack.pack({ request.holder, STEADY + request.ttl_ms, request.ttl_ms }))
return 1

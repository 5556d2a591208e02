-- uses: base
-- flags: allow-oom
-- duty: become or stay the one who performs request.duty for the next request.ttl_ms. request.holder. Answers 1, or 0 when
--   somebody else is. Kept as {holder, until steady ms, ttl_ms}: one that ends later than it could was taken before the
--   server's clock went back, and counts no more.

local known = call('HGET', P .. 'duty', request.duty)
local duty = known and cmsgpack.unpack(known)
local left = duty and duty[2] - STEADY
if duty and duty[1] ~= request.holder and left >= 0 and left <= (duty[3] or 0) then
  return 0
end
call('HSET', P .. 'duty', request.duty, cmsgpack.pack({ request.holder, STEADY + request.ttl_ms, request.ttl_ms }))
return 1

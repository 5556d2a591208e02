-- uses: base
-- flags: allow-oom
-- duty: become or stay the one who performs request.duty for the next request.ttl_ms. request.holder. Answers 1, or 0 when
--   somebody else is. Kept as {holder, until steady ms}.

local known = call('HGET', P .. 'duty', request.duty)
local duty = known and cmsgpack.unpack(known)
if duty and duty[1] ~= request.holder and duty[2] >= STEADY then
  return 0
end
call('HSET', P .. 'duty', request.duty, cmsgpack.pack({ request.holder, STEADY + request.ttl_ms }))
return 1

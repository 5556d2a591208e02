-- uses: base, request_dedup
-- flags: allow-oom
-- prune_effects: delete effects that were done before request.before (ms), the oldest first, request.limit at most. Effects with
--   an unknown outcome stay until an operator settles them. request.token. Returns how many were deleted.

local known = known_answer()
if known then
  return known
end
local done = call('ZRANGEBYSCORE', P .. 'effects', '-inf', '(' .. whole(request.before), 'LIMIT', 0, request.limit)
for _, digest in ipairs(done) do
  call('DEL', P .. 'effect:' .. digest)
end
in_portions('ZREM', P .. 'effects', done)
return #done > 0 and keep_answer(#done) or 0

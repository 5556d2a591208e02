-- uses: base, memory
-- flags: allow-oom
-- prune_effects: forget effects that were done before request.before (ms), the oldest first, request.limit at most.
-- What is of unknown end stays until somebody settles it. request.token. Answers how many went.

local known = remembered()
if known then
  return known
end
local done = call('ZRANGEBYSCORE', P .. 'effects', '-inf', '(' .. whole(request.before), 'LIMIT', 0, request.limit)
for _, digest in ipairs(done) do
  call('DEL', P .. 'effect:' .. digest)
end
in_portions('ZREM', P .. 'effects', done)
return #done > 0 and remember(#done) or 0

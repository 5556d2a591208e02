-- uses: base
-- flags: no-writes
-- old_effects: list effects that were done before request.before (ms), the oldest first, request.limit at most. Returns pairs:
--   {digest, ID of the task or an empty string}.

local found = {}
for _, digest in ipairs(call('ZRANGEBYSCORE', P .. 'effects', '-inf', '(' .. whole(request.before), 'LIMIT', 0, request.limit)) do
  found[#found + 1] = { digest, call('HGET', P .. 'effect:' .. digest, 'task_id') or '' }
end
return found

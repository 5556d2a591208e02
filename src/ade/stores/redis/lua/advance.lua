-- uses: base
-- flags: allow-oom
-- advance: remember how far a named reader has come: request.name, request.seq. Never moves back.

local known = tonumber(call('HGET', P .. 'cursors', request.name) or '0')
if request.seq > known then
  call('HSET', P .. 'cursors', request.name, whole(request.seq))
end
return 1

-- uses: base
-- flags: allow-oom
-- advance_cursor: store how far a named reader has read: request.name, request.seq. A cursor never moves back.

local known = tonumber(call('HGET', P .. 'cursors', request.name) or '0')
if request.seq > known then
  call('HSET', P .. 'cursors', request.name, whole(request.seq))
end
return 1

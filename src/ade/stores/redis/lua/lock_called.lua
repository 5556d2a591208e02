-- uses: base, lock_places
-- flags: no-writes
-- lock_called: unattended requests (packed) that were let in or gave way, at most request.limit.

local found = {}
for _, member in ipairs(look('SRANDMEMBER', CALLED, request.limit)) do
  local namespace, id = string.match(member, '^([^:]*):(.*)$')
  found[#found + 1] = look('HGET', P .. 'lock:request:' .. namespace, id) or nil
end
return found

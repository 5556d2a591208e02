-- uses: base, lock_queues
-- flags: no-writes
-- lock_granted: list unattended requests (packed) that were granted or aborted, request.limit at most.

local found = {}
for _, member in ipairs(read_key('SRANDMEMBER', UNATTENDED, request.limit)) do
  local namespace, id = string.match(member, '^([^:]*):(.*)$')
  found[#found + 1] = read_key('HGET', P .. 'lock:request:' .. namespace, id) or nil
end
return found

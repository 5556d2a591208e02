-- uses: base
-- flags: no-writes
-- due_schedules: list the schedules (JSON) that are due at request.moment (ms), the earliest first.

local names = call('ZRANGEBYSCORE', P .. 'schedules:due', '-inf', whole(request.moment))
local found = {}
for _, name in ipairs(names) do
  found[#found + 1] = call('HGET', P .. 'schedules', name) or nil
end
return found

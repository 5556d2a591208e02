-- uses: base
-- flags: no-writes
-- agent_list: list the agents of the partition: {record, {holder, end of its lease, ...} of live leases}, ...

local found = {}
for place, record in ipairs(call('HVALS', P .. 'agents')) do
  local units = P .. 'agent:units:' .. cmsgpack.unpack(record).id
  found[place] = { record, call('ZRANGEBYSCORE', units, '(' .. whole(STEADY), '+inf', 'WITHSCORES') }
end
return found

-- uses: base
-- flags: no-writes
-- agent_list: the agents of the partition: {record, {holder, end of its lease, ...} of the live ones}, ...

local found = {}
for place, record in ipairs(call('HVALS', P .. 'agents')) do
  local units = P .. 'agent:units:' .. cmsgpack.unpack(record).id
  found[place] = { record, call('ZRANGEBYSCORE', units, '(' .. whole(STEADY), '+inf', 'WITHSCORES') }
end
return found

-- When the server's clock went back, leases from before would end as much too late. They keep what was left of them when a sweep
-- last looked. Whoever gives leases sees to this first, so that none of the new ones is taken for an old one.
local MUCH_MS = 5000

local function mend_leases()
  local looked = tonumber(call('HGET', KEYS[1], 'looked') or '0')
  if STEADY >= looked - MUCH_MS then
    return
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'queue:leases', '(' .. whole(looked), '+inf')) do
    local state = read_state(id)
    if state and state[STATUS] == 'running' then
      state[LEASE] = STEADY + state[LEASE] - looked
      write_state(id, state)
      call('ZADD', P .. 'queue:leases', whole(state[LEASE]), id)
    end
  end
  call('HSET', KEYS[1], 'looked', whole(STEADY))
end

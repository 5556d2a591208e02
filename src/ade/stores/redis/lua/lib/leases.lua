-- After the server's clock was set back, earlier leases would expire too late. They keep the time they had left when a sweep last
-- ran. Scripts that grant leases call this first, so that no new lease is mistaken for an old one.
local MUCH_MS = 5000

local function repair_leases()
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

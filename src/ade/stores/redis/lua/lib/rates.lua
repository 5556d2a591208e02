-- Rate limits of names, by GCRA: the state is the time in microseconds at which all of it is available again.
local function interval_of(limit)
  return math.ceil(limit[4] * 1000 / limit[3])
end

-- The state is at most one period ahead, unless the server's clock was set back since: then it is cut to one period.
local function rate_full_at(name, limit)
  local known = tonumber(call('HGET', P .. 'rates', name) or '0')
  local most = STEADY * 1000 + limit[3] * interval_of(limit)
  if known > most then
    known = most
    call('HSET', P .. 'rates', name, whole(known))
  end
  return known
end

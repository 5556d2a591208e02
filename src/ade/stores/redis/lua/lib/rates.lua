-- How far the rate of a name is used up, by GCRA: the moment in microseconds at which all of it is free again.
local function interval_of(limit)
  return math.ceil(limit[4] * 1000 / limit[3])
end

-- Nothing can be used up further than a whole period ahead, unless the server's clock went back since: then the period counts.
local function used_up_until(name, limit)
  local known = tonumber(call('HGET', P .. 'rates', name) or '0')
  local most = STEADY * 1000 + limit[3] * interval_of(limit)
  if known > most then
    known = most
    call('HSET', P .. 'rates', name, whole(known))
  end
  return known
end

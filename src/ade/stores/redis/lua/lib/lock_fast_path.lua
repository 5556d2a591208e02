-- The usual cases of `acquire` and `release`: one resource, no expired request, an exclusive request next. They do exactly what the
-- rules do (lock_table, lock_rules, lock_writes). All other cases are left to the rules, with nothing changed: `break` leads there.
-- There are no functions here: creating one costs about as much as a command, and these cases must be quick.
local EVENTS_OF_ONE, EVENTS_OF_TWO = string.char(220, 0, 1), string.char(220, 0, 2) -- heads of arrays
local EVENT = string.char(149) -- the head of an array of five
local answered -- the answer, if it was such a case

repeat
  local verb, space = request.verb, request.namespace
  if verb ~= 'acquire' and (verb ~= 'release' or #request.ids ~= 1) then
    break
  end
  local requests, leases, events = P .. 'lock:request:' .. space, P .. 'lock:leases', P .. 'events'
  local marks = redis.pcall('HGET', P .. 'lock:marks', space)
  local seq, token, looked = 0, 0, 0
  if type(marks) == 'string' then
    seq, token, looked = unpack(cmsgpack.unpack(marks))
  end
  if type(marks) == 'table' or STEADY < looked - 5000 then -- an error, or the clock was set back
    break
  end
  local one, id = request.wanted, nil
  if verb == 'acquire' then
    id, one.namespace = one.id, space
    if redis.pcall('HEXISTS', requests, id) ~= 0 then
      break
    end
  else
    id = request.ids[1]
    one = redis.pcall('HGET', requests, id)
    if type(one) ~= 'string' then
      break
    end
    answered = one
    one = cmsgpack.unpack(one)
    if one.state ~= 'granted' or one.lease_until <= STEADY then
      break
    end
  end
  if #one.items ~= 1 or one.task_id or one.upgrades or one.unattended then
    break
  end

  local resource, mode = one.items[1].resource, one.items[1].mode
  local owner = P .. 'lock:owner:' .. space .. ':' .. one.owner
  local kind = P .. 'lock:kind:' .. space .. ':' .. string.match(resource, '^[^:]*')
  local held, line = P .. 'lock:held:' .. space .. ':' .. resource, P .. 'lock:line:' .. space .. ':' .. resource
  local of_owner = redis.pcall('ZCARD', owner)
  local holders, waiters = redis.pcall('ZRANGE', held, 0, 1), redis.pcall('ZRANGE', line, 0, 1)
  local log_type, leases_type, kind_type = call('TYPE', events).ok, call('TYPE', leases).ok, call('TYPE', kind).ok
  if type(of_owner) ~= 'number' or holders.err or waiters.err or (log_type ~= 'stream' and log_type ~= 'none')
    or (leases_type ~= 'zset' and leases_type ~= 'none') or (kind_type ~= 'zset' and kind_type ~= 'none') then
    break
  end
  local now_us = request.now and request.now * 1000 or SERVER_US
  local tick = math.max(SERVER_US - SERVER_US % PARTITIONS + PARTITION,
    tonumber(call('HGET', KEYS[1], 'tick') or '0') + PARTITIONS)
  local tick_text = string.format('%.0f', tick)

  if verb == 'acquire' then
    local wait_ms, full_at, rate = request.wait_ms, nil, nil
    if of_owner >= request.most_of_owner or (#holders == 0 and #waiters > 0) then
      break
    end
    if #holders > 0 then -- one live holder of nothing else, which conflicts with the request
      local holder = #holders == 1 and call('HGET', requests, string.sub(holders[1], 18))
      holder = holder and cmsgpack.unpack(holder)
      if not holder or #holder.items ~= 1 or holder.lease_until <= STEADY or wait_ms == 0
        or (mode ~= 'exclusive' and holder.items[1].mode ~= 'exclusive')
        or (#waiters > 0 and call('ZCARD', line) >= request.most_waiting) or request.most_waiting < 1 then
        break
      end
    end
    if request.acquires then -- by GCRA, as in lock_table
      rate = P .. 'lock:rate:' .. space .. ':' .. one.owner
      local count, now, known = request.acquires, STEADY * 1000, redis.pcall('GET', rate) or '0'
      if type(known) ~= 'string' then
        break
      end
      local interval = math.ceil(request.acquires_per_ms * 1000 / count)
      known = tonumber(known) or 0
      if known > now + (count - 1) * interval then -- exceeded, or from before the clock was set back
        break
      end
      full_at = math.max(known, now) + interval
    end
    seq = seq + 1
    local age = request.first_seq > 0 and request.first_seq < seq and request.first_seq or seq
    one.ttl_ms, one.priority = one.ttl_ms or 30000, one.priority or 5
    one.seq, one.rank, one.asked_at = age, age + 8 * one.priority, NOW
    local place, event = line, 'lock.queued'
    if #holders > 0 then
      one.state, one.lease_until = 'waiting', STEADY + 15000
      one.wait_until = wait_ms and STEADY + wait_ms or nil
    else
      place, event, token = held, 'lock.acquired', math.max(token + 1, now_us)
      one.state, one.lease_until, one.granted_at = 'granted', STEADY + one.ttl_ms, NOW
      one.items[1].token = token
    end
    answered = cmsgpack.pack(one)
    local ends = one.wait_until and math.min(one.lease_until, one.wait_until) or one.lease_until
    call('HSET', requests, id, answered)
    call('ZADD', leases, string.format('%.0f', ends), space .. ':' .. id)
    call('ZADD', owner, '0', id)
    call('ZADD', kind, '0', id)
    call('ZADD', place, string.format('%.17g', one.rank), string.format('%016d:', age) .. id)
    if rate then
      call('SET', rate, string.format('%.0f', full_at), 'PX', math.ceil(full_at / 1000) - STEADY + 60000)
    end
    call('HSET', P .. 'lock:marks', space, cmsgpack.pack({ seq, token, math.max(looked, STEADY) }))
    call('HSET', KEYS[1], 'tick', tick_text)
    local items = { { resource = resource, mode = mode, token = one.items[1].token or 0 } }
    call('XADD', events, tick_text .. '-0', 'events', EVENTS_OF_ONE .. EVENT .. cmsgpack.pack(event, NOW, nil, one.owner,
      { namespace = space, request_id = id, state = one.state, items = items, scope = one.scope, purpose = one.purpose }))
    return { false, { answered } }
  end

  -- The first two waiters must decide who is next.
  if #holders ~= 1 then
    break
  end
  local following, update = nil, false
  if #waiters > 0 then
    local found, is_clear = call('HMGET', requests, unpack({ string.sub(waiters[1], 18),
      waiters[2] and string.sub(waiters[2], 18) })), true
    for place = 1, #waiters do
      local waiter = found[place] and cmsgpack.unpack(found[place])
      if not waiter or #waiter.items ~= 1 or waiter.items[1].mode ~= 'exclusive' or waiter.state ~= 'waiting'
        or waiter.task_id or waiter.upgrades or waiter.unattended or waiter.lease_until <= STEADY
        or (waiter.wait_until and waiter.wait_until <= STEADY) then
        is_clear = false
      end
      following = following or waiter
    end
    if not is_clear then
      break
    end
  end
  call('HDEL', requests, id)
  call('ZREM', leases, space .. ':' .. id)
  call('ZREM', owner, id)
  call('ZREM', kind, id)
  call('ZREM', held, holders[1])
  local logged = EVENTS_OF_ONE .. EVENT .. cmsgpack.pack('lock.released', NOW, nil, one.owner, { namespace = space, request_id = id,
    state = one.state, items = one.items, scope = one.scope, purpose = one.purpose })
  if following then
    token = math.max(token + 1, now_us)
    following.items[1].token = token
    following.state, following.lease_until, following.granted_at = 'granted', STEADY + following.ttl_ms, NOW
    following.wait_until = nil
    call('HSET', requests, following.id, cmsgpack.pack(following))
    call('ZADD', leases, string.format('%.0f', following.lease_until), space .. ':' .. following.id)
    call('ZREM', line, waiters[1])
    call('ZADD', held, string.format('%.17g', following.rank), waiters[1])
    logged = EVENTS_OF_TWO .. string.sub(logged, 4) .. EVENT .. cmsgpack.pack('lock.promoted', NOW, nil, following.owner,
      { namespace = space, request_id = following.id, state = 'granted', items = following.items, scope = following.scope,
        purpose = following.purpose })
    update = cmsgpack.pack({ settled = { following }, gone = { id } })
    notify('lock ' .. update)
  end
  if following or looked < STEADY - 1000 then
    call('HSET', P .. 'lock:marks', space, cmsgpack.pack({ seq, token, math.max(looked, STEADY) }))
  end
  call('HSET', KEYS[1], 'tick', string.format('%.0f', tick + (following and PARTITIONS or 0)))
  call('XADD', events, tick_text .. '-0', 'events', logged)
  return { update, { answered } }
until true

-- Whether a lease has expired, by a clock that is known to have had no step: after the server's clock was set forward, the leases
-- of live holders look expired. Callers measure the server's clock by their own, and say in request.clock what they know: {since
-- when it has had no step forward, the earliest and the latest time it can show now, the size of the last step or 0, the time
-- before that step, how far it is ahead of the monotonic clock of the caller's machine, and the name of that clock or ''}.
-- The field `continuous` of the partition joins what they know: {since, until, share, earlier, floor, ahead, machine}. A caller
-- continues it if it is two seconds old at most, or if it is from the same machine, by whose clock there was no step meanwhile.
-- A lease is judged when the clock has had no step for `share` of its length: all of it after a step, half of it if nobody watched
-- the clock before `since`, which is more than a live holder needs to renew. A lease that had expired by `earlier`, when the clock
-- was watched before, and half its length before `since`, has expired too: or nothing would expire for processes that all end soon.
-- After the clock was set back, `floor` is where it was. When it shows that time again, it may have been corrected, which not all
-- callers have noticed: `floor` is then where it was seen again.
local CLOCK_MARGIN_MS = 2000
local continuous -- what holds for this call, false: the time cannot be trusted

local function watch_clock()
  local mine = not request.steady and request.clock
  if continuous ~= nil then
    return continuous
  elseif not mine or STEADY < mine[2] or STEADY > mine[3] then
    continuous = false -- not measured, or it was stepped since, or the request took long
    return false
  end
  local stored = redis.pcall('HGET', KEYS[1], 'continuous')
  local step, is_new = mine[4], false
  local own_share = step > 0 and 1 or 0.5
  local since, share, earlier, floor = mine[1], own_share, false, 0
  if type(stored) == 'string' then
    local until_ms, ahead, machine
    since, until_ms, share, earlier, floor, ahead, machine = unpack(cmsgpack.unpack(stored))
    local is_watched = mine[7] ~= '' and mine[7] == machine and math.abs(mine[6] - ahead) <= CLOCK_MARGIN_MS
    if STEADY < until_ms - CLOCK_MARGIN_MS then
      floor = math.max(floor, until_ms)
    elseif until_ms < floor and floor <= STEADY then
      floor = STEADY
    end
    if mine[1] > until_ms + CLOCK_MARGIN_MS and not is_watched then -- nobody can say what was in between
      is_new = step > 0
      since, share, earlier = mine[1], own_share, not is_new and (earlier or since)
    elseif mine[1] < since then
      since, share, earlier = mine[1], own_share, false
    elseif step > 0 and share < 1 and mine[5] < since then -- it was before `since`, when only the caller was there
      share, earlier, is_new = 1, false, true
    end
  end
  if since < floor and floor <= STEADY then
    since, share, earlier = floor, 1, false
  end
  call('HSET', KEYS[1], 'continuous', cmsgpack.pack({ since, STEADY, share, earlier, floor, mine[6], mine[7] }))
  if is_new then -- `unreported` until a sweep has logged it
    call('HSET', KEYS[1], 'stepped', cmsgpack.pack({ STEADY, step }), 'unreported', step)
  end
  continuous = { since, share, earlier }
  return continuous
end

-- Leases of a length that ended by this time have expired; 0 if none can be judged. With request.steady, as in tests, the caller's
-- time counts.
local function judged_until(length)
  if request.steady then
    return STEADY
  end
  local known = watch_clock()
  if not known then
    return 0
  end
  local since, share, earlier = known[1], known[2], known[3]
  if STEADY - since >= length * share then
    return STEADY
  end
  return earlier and since - earlier >= length / 2 and earlier or 0
end

local function has_expired(ends, length)
  return ends <= STEADY and ends <= judged_until(length)
end

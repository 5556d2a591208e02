-- Whether a lease has expired, by a clock that is known to have had no step: after the server's clock was set forward, the leases
-- of live holders look expired. Callers measure the server's clock by their own, and say in request.clock what they know: {since
-- when it has had no step, the latest time it can show now, the size of the last step or 0, the time before that step}.
-- The field `continuous` of the partition joins what they know: {since, until, share, earlier}. A lease is judged when the clock
-- has had no step for `share` of its length: all of it after a step, half of it if nobody watched the clock before `since`, which
-- is more than a live holder needs to renew. A lease that had expired by `earlier`, when the clock was watched before, and half
-- its length before `since`, has expired too: or nothing would expire for processes that all end soon.
local CLOCK_MARGIN_MS = 2000
local continuous -- what holds for this call, false: the time cannot be trusted

local function watch_clock()
  local mine = not request.steady and request.clock
  if continuous ~= nil then
    return continuous
  elseif not mine or STEADY > mine[2] or STEADY < mine[1] - CLOCK_MARGIN_MS then
    continuous = false -- not measured, or it was stepped since, or the request took long
    return false
  end
  local stored = redis.pcall('HGET', KEYS[1], 'continuous')
  local since, until_ms, share, earlier, is_new = mine[1], nil, mine[3] > 0 and 1 or 0.5, false, false
  if type(stored) == 'string' then
    since, until_ms, share, earlier = unpack(cmsgpack.unpack(stored))
    if mine[1] > until_ms + CLOCK_MARGIN_MS then -- nobody can say what was in between
      is_new = mine[3] > 0
      earlier = not is_new and (earlier or since)
      since, share = mine[1], is_new and 1 or 0.5
    elseif mine[1] < since then
      since, share, earlier = mine[1], mine[3] > 0 and 1 or 0.5, false
    elseif mine[3] > 0 and share < 1 and mine[4] < since then -- it was before `since`, when only the caller was there
      share, earlier, is_new = 1, false, true
    end
  end
  call('HSET', KEYS[1], 'continuous', cmsgpack.pack({ since, STEADY, share, earlier }))
  if is_new then -- `unreported` until a sweep has logged it
    call('HSET', KEYS[1], 'stepped', cmsgpack.pack({ STEADY, mine[3] }), 'unreported', mine[3])
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

-- The book of one namespace of locks: its keys, its marks, and how events and copies of requests are made. A request is a map
-- with the fields of LockRequest, and never changed but copied. request.namespace names the book.
local NAMESPACE = request.namespace
local REQUESTS = P .. 'lock:request:' .. NAMESPACE
local HELD, LINE = P .. 'lock:held:' .. NAMESPACE .. ':', P .. 'lock:line:' .. NAMESPACE .. ':'
local NOW_US = request.now and request.now * 1000 or SERVER_US
local FRONT, OVERTAKING, WAITER_LEASE_MS, UNATTENDED_LEASE_MS = -1, 8, 15000, 900000
local CLOCK_WENT_BACK_MS = 5000
local RATE_KEPT_MS = 60000 -- after it is all free again, when nothing is lost with it

local seq, token, looked = 0, 0, 0 -- the highest that were given, and when somebody last wrote here
local marks = look('HGET', MARKS, NAMESPACE)
if marks then
  seq, token, looked = unpack(cmsgpack.unpack(marks))
end
if request.wanted then
  request.wanted.namespace = NAMESPACE -- what is usual is left out by whoever asks
end
local full_at -- when the rate of who asked will be all free again, in microseconds

local function copy(one, changes)
  local new = {}
  for field, value in pairs(one) do
    new[field] = value
  end
  for field, value in pairs(changes) do
    new[field] = value
  end
  return new
end

local function conflict(mode, other)
  return mode == 'exclusive' or other == 'exclusive'
end

local function is_dead(one)
  local out_of_time = one.wait_until and one.wait_until <= STEADY and one.state ~= 'granted'
  return one.lease_until <= STEADY or out_of_time
end

local function waits_until(one)
  return STEADY + (one.unattended and UNATTENDED_LEASE_MS or WAITER_LEASE_MS)
end

local function next_token()
  token = math.max(token + 1, NOW_US)
  return token
end

-- Tell of a request in the log.
local function tell_of(event, one, more)
  local items = {}
  for place, item in ipairs(one.items) do
    items[place] = { resource = item.resource, mode = item.mode, token = item.token or 0 }
  end
  local payload = { namespace = one.namespace, request_id = one.id, state = one.state, items = items, scope = one.scope,
    purpose = one.purpose }
  for field, value in pairs(more or {}) do
    payload[field] = value
  end
  tell(string.char(149) .. cmsgpack.pack(event, NOW, one.task_id, one.owner, payload)) -- an array of five
end

-- A request that was not there before, as it enters the book. Nobody else has it, so it is completed in its place.
local function entering(wanted, wait_ms, first)
  seq = seq + 1
  local age = first > 0 and first < seq and first or seq
  wanted.state, wanted.ttl_ms, wanted.priority = 'waiting', wanted.ttl_ms or 30000, wanted.priority or 5
  wanted.seq, wanted.rank, wanted.asked_at = age, age + OVERTAKING * wanted.priority, NOW
  wanted.lease_until, wanted.wait_until = waits_until(wanted), wait_ms and STEADY + wait_ms or nil
  return wanted
end

-- The request with its lease and tokens.
local function as_granted(one)
  local items = {}
  for place, item in ipairs(one.items) do
    items[place] = { resource = item.resource, mode = item.mode, token = next_token() }
  end
  local granted = copy(one, { items = items, state = 'granted', lease_until = STEADY + one.ttl_ms, granted_at = NOW })
  granted.wait_until = nil
  return granted
end

-- Note that an owner asks once more, by GCRA as in ade/core/rate.py; or answer after how many milliseconds it may.
local function use_rate(one)
  local count = request.acquires
  if not count then
    return nil
  end
  local interval = math.ceil(request.acquires_per_ms * 1000 / count)
  local now, known = STEADY * 1000, tonumber(look('GET', rate_key(one)) or '0') or 0
  local latest = now + count * interval
  if known > latest then -- from before the clock was put back
    known = latest - interval
  end
  local earliest = known - (count - 1) * interval
  if earliest > now then
    return math.ceil(earliest / 1000) - STEADY
  end
  full_at = math.max(known, now) + interval
end

local function keep_rate()
  if full_at then
    local kept = math.ceil(full_at / 1000) - STEADY + RATE_KEPT_MS
    call('SET', rate_key(request.wanted), whole(full_at), 'PX', whole(kept))
  end
end

local function keep_marks()
  call('HSET', MARKS, NAMESPACE, cmsgpack.pack({ seq, token, math.max(looked, STEADY) }))
end

-- Tell all processes what became of whom, so that nobody has to ask. A hint only; answers what was told.
local function publish_news(settled, gone)
  local news = cmsgpack.pack({ settled = settled, gone = gone })
  ring('lock ' .. news)
  return news
end

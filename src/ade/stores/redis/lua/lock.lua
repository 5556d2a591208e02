-- uses: base, lock_fast_path
-- flags: allow-oom
-- lock: apply request.verb to the lock table of request.namespace. It can use memory past the server's limit, so that running
--   work can end. The verbs: acquire (wanted: the request; wait_ms or false; first_seq, most_waiting, most_of_owner; acquires in
--   acquires_per_ms, or false), poll, renew, release, reap (ids), upgrade (grant_id, resource, upgrade_id, wait_ms or false),
--   downgrade (grant_id, resource), force_release (id, reason, by), abort_victim (id, cycle), reorder (id, before),
--   return_grant (id). request.clock is explained in lib/continuity.lua.
-- Returns {the published update (packed), or nil, requests (packed, or nil)}, one for each id (reap: how many had ended); or
--   {'refused', error code, detail}, with nothing written. request.token is given with verbs whose repetition would be logged twice.

-- uses: types, fields, log, request_dedup, state, lock_queues, continuity, lock_table, lock_rules, lock_writes
local known = request.token and known_answer()
if known then
  return known
end
local refusal
local function refuse(code, detail)
  refusal = { 'refused', code, detail }
end

local function get_alive(id)
  local one = get(id)
  if one and is_expired(one) then
    remove(one, 'lock.expired')
    return nil
  end
  return one
end

-- Remove expired holders of the requested resources, and grant the requests that come first.
local function refresh_holders(one)
  for _, item in ipairs(one.items) do
    holders(item.resource)
  end
  settle()
end

local function longest_wait_queue(one)
  local longest = 0
  for _, item in ipairs(one.items) do
    longest = math.max(longest, read_key('ZCARD', WAIT_QUEUE .. item.resource))
  end
  return longest
end

-- A process waits for the request again: the lease of a grant is renewed, and so is that of an unattended waiter.
local function attach(one)
  local lease_until = one.lease_until
  if one.state == 'granted' then
    lease_until = math.max(lease_until, STEADY + one.ttl_ms)
  elseif one.state == 'waiting' and one.unattended then
    lease_until = waits_until(one)
  end
  local unattended = one.unattended and one.state == 'waiting'
  if lease_until == one.lease_until and unattended == one.unattended then
    return one
  end
  local new = copy(one, { lease_until = lease_until, unattended = unattended })
  put(new)
  return new
end

local verbs = {}

function verbs.acquire()
  local wanted, wait_ms, first = request.wanted, request.wait_ms, request.first_seq
  local earlier = get(wanted.id)
  if earlier and not is_expired(earlier) then
    return { attach(earlier) }
  end
  local retry_after = use_rate(wanted)
  if retry_after then
    return refuse('rate', retry_after)
  end
  local of_owner = read_key('ZCARD', owner_key(wanted))
  if of_owner >= request.most_of_owner then
    return refuse('of_owner', of_owner)
  end
  local asked = new_request(wanted, wait_ms, first)
  refresh_holders(asked)
  local granted = is_free_for(asked) and grant(copy(asked, { unattended = false }), 'lock.acquired')
  settle()
  if granted or wait_ms == 0 then
    return { granted }
  end
  local longest = longest_wait_queue(asked)
  if longest >= request.most_waiting and not asked.unattended then
    return refuse('waiting', longest)
  end
  put(asked)
  announce('lock.queued', asked)
  return { asked }
end

local function poll(id)
  local one = get_alive(id)
  if not one then
    return nil
  end
  if one.state == 'waiting' then
    put(copy(one, { lease_until = waits_until(one) }))
    refresh_holders(one)
  end
  settle()
  return get(id)
end

local function renew(id)
  watch_clock()
  local one = get_alive(id)
  settle()
  if not one or one.state ~= 'granted' then
    return nil
  end
  local renewed = copy(one, { lease_until = math.max(one.lease_until, STEADY + one.ttl_ms),
    heartbeats = (one.heartbeats or 0) + 1 })
  put(renewed)
  return renewed
end

local function end_by(id, event, more)
  local one = get_alive(id)
  if one then
    remove(one, event, more)
  end
  settle()
  return one
end

local function of_each(verb)
  local answers = {}
  read_all(request.ids)
  for place, id in ipairs(request.ids) do
    answers[place] = verb(id) or false
  end
  return answers
end

function verbs.poll()
  return of_each(poll)
end

function verbs.renew()
  return of_each(renew)
end

function verbs.release()
  return of_each(function(id)
    return end_by(id, 'lock.released')
  end)
end

function verbs.force_release()
  return { end_by(request.id, 'lock.lost', { reason = request.reason, by = request.by }) }
end

local function first_upgrade(resource)
  for waiter in waiters(resource) do
    if waiter.rank > FRONT then
      return nil
    elseif waiter.upgrades then
      return waiter
    end
  end
end

local function held_item()
  local one = get_alive(request.grant_id)
  return one, one and one.state == 'granted' and item_of(one, request.resource)
end

function verbs.upgrade()
  local held, item = held_item()
  if not item then
    return refuse('lost')
  elseif item.mode == 'exclusive' then
    return { held }
  end
  local other = first_upgrade(request.resource)
  if other and other.upgrades == held.id then
    return { other }
  elseif other then
    return refuse('upgraded', other.owner)
  end
  seq = seq + 1
  local asked = copy(held, { id = request.upgrade_id, items = { { resource = request.resource, mode = 'exclusive' } },
    upgrades = held.id, state = 'waiting', seq = seq, rank = FRONT, asked_at = NOW, lease_until = STEADY + WAITER_LEASE_MS,
    heartbeats = 0 })
  asked.granted_at, asked.wait_until = nil, request.wait_ms and STEADY + request.wait_ms or nil
  local upgraded = is_free_for(asked) and grant(asked, 'lock.acquired')
  settle()
  if upgraded or request.wait_ms == 0 then
    return { upgraded }
  end
  put(asked)
  announce('lock.queued', asked)
  return { asked }
end

function verbs.downgrade()
  local held, item = held_item()
  if not item then
    return refuse('lost')
  end
  local items = {}
  for place, each in ipairs(held.items) do
    items[place] = each == item and { resource = item.resource, mode = 'shared', token = item.token } or each
  end
  local shared = copy(held, { items = items })
  put(shared)
  announce('lock.downgraded', shared)
  freed[request.resource] = true
  settle()
  return { shared }
end

function verbs.abort_victim()
  local one = get_alive(request.id)
  if not one or one.state ~= 'waiting' then
    return {}
  end
  local victim = copy(one, { state = 'victim', lease_until = STEADY + WAITER_LEASE_MS })
  victim.wait_until = nil
  put(victim)
  announce('lock.deadlock', victim, { cycle = request.cycle })
  must_notify = true
  free(one)
  settle()
  return { victim }
end

function verbs.reorder()
  local one, other = get_alive(request.id), get_alive(request.before)
  if not one or not other or one.state ~= 'waiting' or other.state ~= 'waiting' then
    return {}
  end
  put(copy(one, { rank = math.min(one.rank, other.rank - 0.5) }))
  free(one)
  settle()
  return { get(one.id) }
end

-- Granted locks of a task that no worker has claimed yet.
function verbs.return_grant()
  local one = get_alive(request.id)
  if not one or one.state ~= 'granted' or not one.unattended then
    return {}
  end
  remove(one, 'lock.released')
  settle()
  return { one }
end

-- An expiry entry without a request would be found again and again.
function verbs.reap()
  local count = 0
  read_all(request.ids)
  for _, id in ipairs(request.ids) do
    local is_alive = get_alive(id)
    count = count + (is_alive and 0 or 1)
    if not is_alive and not removed[id] then
      call('ZREM', LEASES, NAMESPACE .. ':' .. id)
    end
  end
  settle()
  return { count }
end

local answers = verbs[request.verb]()
if refusal then
  return refusal
end
flush_table()
write_rate()
for place, one in ipairs(answers) do
  answers[place] = one and cmsgpack.pack(one)
end
local answer = { update or false, answers }
return request.token and keep_answer(answer) or answer

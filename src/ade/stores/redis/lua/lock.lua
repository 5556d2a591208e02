-- uses: base, lock_short
-- flags: allow-oom
-- lock: carry out a verb on the book of request.namespace. It may use memory past the server's limit, so that running work can
--   end. request.verb is one of: acquire (wanted: the request; wait_ms or false; first_seq, most_waiting, most_of_owner; acquires
--   in acquires_per_ms, or false), poll, renew, release, bury (ids), upgrade (grant_id, resource, upgrade_id, wait_ms or false),
--   downgrade (grant_id, resource), take_away (id, reason, by), give_way (id, cycle), let_pass (id, before).
-- Answers {what others were told (packed), or nil, requests (packed, or nil)}, as many as were asked for; or {'refused', code of
--   the error, detail} and nothing is written. request.token is given with verbs whose repetition would be told of twice.

-- uses: types, fields, log, memory, state, lock_places, lock_words, lock_book, lock_rules, lock_writing
local known = request.token and remembered()
if known then
  return known
end
local refusal
local function refuse(code, detail)
  refusal = { 'refused', code, detail }
end

local function alive(id)
  local one = get(id)
  if one and is_dead(one) then
    remove(one, 'lock.expired')
    return nil
  end
  return one
end

-- Remove who has died among the holders of what the request wants, and let in those who come first.
local function look_after(one)
  for _, item in ipairs(one.items) do
    holders(item.resource)
  end
  settle()
end

local function longest_line(one)
  local longest = 0
  for _, item in ipairs(one.items) do
    longest = math.max(longest, look('ZCARD', LINE .. item.resource))
  end
  return longest
end

-- Somebody is there for it now: the lease of a grant begins anew, and an unattended one in line lives on.
local function fetched(one)
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
  if earlier and not is_dead(earlier) then
    return { fetched(earlier) }
  end
  local retry_after = use_rate(wanted)
  if retry_after then
    return refuse('rate', retry_after)
  end
  local of_owner = look('ZCARD', owner_key(wanted))
  if of_owner >= request.most_of_owner then
    return refuse('of_owner', of_owner)
  end
  local asked = entering(wanted, wait_ms, first)
  look_after(asked)
  local granted = is_free_for(asked) and grant(copy(asked, { unattended = false }), 'lock.acquired')
  settle()
  if granted or wait_ms == 0 then
    return { granted }
  end
  local longest = longest_line(asked)
  if longest >= request.most_waiting and not asked.unattended then
    return refuse('waiting', longest)
  end
  put(asked)
  announce('lock.queued', asked)
  return { asked }
end

local function poll(id)
  local one = alive(id)
  if not one then
    return nil
  end
  if one.state == 'waiting' then
    put(copy(one, { lease_until = waits_until(one) }))
    look_after(one)
  end
  settle()
  return get(id)
end

local function renew(id)
  local one = alive(id)
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
  local one = alive(id)
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

function verbs.take_away()
  return { end_by(request.id, 'lock.lost', { reason = request.reason, by = request.by }) }
end

local function first_upgrade(resource)
  for waiter in line(resource) do
    if waiter.rank > FRONT then
      return nil
    elseif waiter.upgrades then
      return waiter
    end
  end
end

local function held_item()
  local one = alive(request.grant_id)
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
  local widened = is_free_for(asked) and grant(asked, 'lock.acquired')
  settle()
  if widened or request.wait_ms == 0 then
    return { widened }
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

function verbs.give_way()
  local one = alive(request.id)
  if not one or one.state ~= 'waiting' then
    return {}
  end
  local victim = copy(one, { state = 'victim', lease_until = STEADY + WAITER_LEASE_MS })
  victim.wait_until = nil
  put(victim)
  announce('lock.deadlock', victim, { cycle = request.cycle })
  stirred = true
  free(one)
  settle()
  return { victim }
end

function verbs.let_pass()
  local one, other = alive(request.id), alive(request.before)
  if not one or not other or one.state ~= 'waiting' or other.state ~= 'waiting' then
    return {}
  end
  put(copy(one, { rank = math.min(one.rank, other.rank - 0.5) }))
  free(one)
  settle()
  return { get(one.id) }
end

-- What has an end but no record would be found again and again.
function verbs.bury()
  read_all(request.ids)
  for _, id in ipairs(request.ids) do
    if not alive(id) and not removed[id] then
      call('ZREM', LEASES, NAMESPACE .. ':' .. id)
    end
  end
  settle()
  return {}
end

local answers = verbs[request.verb]()
if refusal then
  return refusal
end
close_book()
keep_rate()
for place, one in ipairs(answers) do
  answers[place] = one and cmsgpack.pack(one)
end
local answer = { news or false, answers }
return request.token and remember(answer) or answer

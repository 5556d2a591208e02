-- Who waits for whom. `task:waiting:<id>` tells who waits for a task ('strict', or 'tolerant' if it runs anyway);
-- `task:needs:<id>` tells what a task waits for ('open', or 'broken' when that ended without completing). When the other one is
-- in another partition, '@' and the number of that partition follow, and news go there by way of the outbox.

local function kind_and_place(word)
  return string.match(word, '^(%a+)@?(%d*)$')
end

local posted = 0 -- messages this call has left in the outbox

local function post(partition, kind, on, id)
  posted = posted + 1
  call('XADD', P .. 'queue:outbox', '*', 'to', partition, 'message', cmsgpack.pack({ kind, on, id }))
end

local function wait_for(id, state, on, on_state, tolerant)
  local broken = FINAL[on_state[STATUS]]
  call('HSET', P .. 'task:waiting:' .. on, id, tolerant and 'tolerant' or 'strict')
  call('HSET', P .. 'task:needs:' .. id, on, broken and 'broken' or 'open')
  state[WAITING] = state[WAITING] + 1
  if broken and CLAIMABLE[state[STATUS]] then
    call('SADD', P .. 'queue:broken', id)
  end
end

-- What it waits for is in other partitions: {id, partition}, ... Whoever calls must then ask there how things stand.
local function wait_afar(id, state, remote)
  for _, on in ipairs(remote) do
    call('HSET', P .. 'task:needs:' .. id, on[1], 'open@' .. on[2])
    call('HSET', P .. 'queue:unlinked', id, NOW)
    state[WAITING] = state[WAITING] + 1
  end
end

local function is_met(on_state, tolerant)
  return on_state[STATUS] == 'completed' or (tolerant and FINAL[on_state[STATUS]])
end

-- A task ended: what it waited for is nothing to it any more.
local function forget_needs(id, state)
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  for place = 1, #needs, 2 do
    local _, at = kind_and_place(needs[place + 1])
    if at == '' then
      call('HDEL', P .. 'task:waiting:' .. needs[place], id)
    else
      post(at, 'forget', needs[place], id)
    end
  end
  call('DEL', P .. 'task:needs:' .. id)
  call('SREM', P .. 'queue:broken', id)
  state[WAITING] = 0
end

-- One that a task waited for is met; with the last one it stands in line.
local function meet(id, on)
  local state = read_state(id)
  if call('HDEL', P .. 'task:needs:' .. id, on) == 0 or not state then
    return false
  end
  state[WAITING] = state[WAITING] - 1
  local freed = state[STAGE] == 'blocked' and state[WAITING] == 0
  if freed then
    enter(id, state)
  end
  write_state(id, state)
  return freed
end

local function break_need(id, on, word)
  local state = read_state(id)
  call('HSET', P .. 'task:needs:' .. id, on, word)
  if state and CLAIMABLE[state[STATUS]] then
    call('SADD', P .. 'queue:broken', id)
  end
end

-- A task ended: who waited for it goes on, or is marked for the sweep that decides on it.
local function settle_dependents(on, completed)
  local freed = false
  local waiting = call('HGETALL', P .. 'task:waiting:' .. on)
  for place = 1, #waiting, 2 do
    local id = waiting[place]
    local kind, at = kind_and_place(waiting[place + 1])
    local met = completed or kind == 'tolerant'
    if met then
      call('HDEL', P .. 'task:waiting:' .. on, id)
    end
    if at ~= '' then
      post(at, met and 'met' or 'broken', on, id)
    elseif met then
      freed = meet(id, on) or freed
    else
      break_need(id, on, 'broken')
    end
  end
  return freed
end

local function has_broken_needs(id)
  for _, fate in ipairs(call('HVALS', P .. 'task:needs:' .. id)) do
    if kind_and_place(fate) == 'broken' then
      return true
    end
  end
  return false
end

-- What a task waits for may still complete after all; whoever has decided on it must decide again.
local function reopen_need(id, on, word)
  call('HSET', P .. 'task:needs:' .. id, on, word)
  if not has_broken_needs(id) then
    call('SREM', P .. 'queue:broken', id)
  end
  local state = read_state(id)
  if state then
    state[VERSION] = state[VERSION] + 1
    write_state(id, state)
  end
end

-- A task that had ended runs again: who waits for it may hope again.
local function give_hope(on)
  local waiting = call('HGETALL', P .. 'task:waiting:' .. on)
  for place = 1, #waiting, 2 do
    local _, at = kind_and_place(waiting[place + 1])
    if at == '' then
      reopen_need(waiting[place], on, 'open')
    else
      post(at, 'hope', on, waiting[place])
    end
  end
end

-- ... and it waits again for what has not ended.
local function wait_again(id, state, depends_on, tolerant)
  for _, on in ipairs(depends_on) do
    local on_state = on ~= id and read_state(on)
    if on_state and not FINAL[on_state[STATUS]] then
      wait_for(id, state, on, on_state, tolerant)
      on_state[AWAITED] = true
      write_state(on, on_state)
    end
  end
end

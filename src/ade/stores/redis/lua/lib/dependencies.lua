-- Dependencies between tasks. `task:waiting:<id>` has the tasks that wait for a task ('strict', or 'tolerant' if they run in any
-- case); `task:needs:<id>` has the tasks that a task waits for ('open', or 'broken' when that task ended without completing). For a
-- task of another partition, '@' and its partition follow, and changes are sent there through the outbox.

local function split_edge(word)
  return string.match(word, '^(%a+)@?(%d*)$')
end

local posted = 0 -- messages this call has put into the outbox

local function post(partition, kind, on, id)
  posted = posted + 1
  call('XADD', P .. 'queue:outbox', '*', 'to', partition, 'message', cmsgpack.pack({ kind, on, id }))
end

local function wait_for(id, state, on, on_state, tolerant)
  local broken = FINAL[on_state[STATUS]]
  call('HSET', P .. 'task:waiting:' .. on, id, tolerant and 'tolerant' or 'strict')
  call('HSET', P .. 'task:needs:' .. id, on, broken and 'broken' or 'open')
  state[WAITING] = state[WAITING] + 1
  if broken and WAITS[state[STATUS]] then
    call('SADD', P .. 'queue:broken', id)
  end
end

-- Wait for tasks of other partitions: {id, partition}, ... The caller must then register there (add_remote_waiter.lua).
local function wait_for_remote(id, state, remote)
  for _, on in ipairs(remote) do
    call('HSET', P .. 'task:needs:' .. id, on[1], 'open@' .. on[2])
    call('HSET', P .. 'queue:unlinked', id, NOW)
    state[WAITING] = state[WAITING] + 1
  end
end

local function is_met(on_state, tolerant)
  return on_state[STATUS] == 'completed' or (tolerant and FINAL[on_state[STATUS]])
end

-- A task ended: it no longer waits for other tasks.
local function delete_needs(id, state)
  local needs = call('HGETALL', P .. 'task:needs:' .. id)
  for place = 1, #needs, 2 do
    local _, at = split_edge(needs[place + 1])
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

-- A dependency of a task is met; with the last one the task becomes claimable.
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
  if state and WAITS[state[STATUS]] then
    call('SADD', P .. 'queue:broken', id)
  end
end

-- A task ended: tasks that waited for it continue, or are marked for the sweep to decide.
local function settle_dependents(on, completed)
  local freed = false
  local waiting = call('HGETALL', P .. 'task:waiting:' .. on)
  for place = 1, #waiting, 2 do
    local id = waiting[place]
    local kind, at = split_edge(waiting[place + 1])
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
    if split_edge(fate) == 'broken' then
      return true
    end
  end
  return false
end

-- A broken dependency can complete again. The version rises, so that decisions made on the earlier state are rejected.
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

-- A task that had ended runs again: dependencies on it are no longer broken.
local function reopen_dependents(on)
  local waiting = call('HGETALL', P .. 'task:waiting:' .. on)
  for place = 1, #waiting, 2 do
    local _, at = split_edge(waiting[place + 1])
    if at == '' then
      reopen_need(waiting[place], on, 'open')
    else
      post(at, 'hope', on, waiting[place])
    end
  end
end

-- ... and it waits again for tasks that have not ended.
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

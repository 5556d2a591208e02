-- uses: base, fields, state
-- flags: allow-oom
-- add_remote_waiter: a task of another partition waits for a task here. request.waits: {on, id, partition of id, tolerant,
--   again}, ...; with `again` it waits once more, and only for tasks that have not ended.
-- Returns 'met', 'broken', or 'open' for each. From then on, changes are sent to the other partition through the outbox.

local answers = {}
for place, wait in ipairs(request.waits) do
  local on, id, at, tolerant, again = unpack(wait)
  local state = read_state(on)
  local ended = not state or FINAL[state[STATUS]]
  if ended and (again or tolerant or (state and state[STATUS] == 'completed')) then
    answers[place] = 'met'
  else
    answers[place] = ended and 'broken' or 'open'
    if state then
      call('HSET', P .. 'task:waiting:' .. on, id, (tolerant and 'tolerant@' or 'strict@') .. at)
      if not state[AWAITED] then
        state[AWAITED] = true
        write_state(on, state)
      end
    end
  end
end
return answers

-- uses: base, fields, state, streams, places, edges, checks, strays, mends
-- flags: allow-oom
-- reconcile: look whether records and everything around them fit, and with request.mend put right what does not.
-- request.ids: tasks to look at. request.strays: {kind (lib/strays.lua), key, argument, what is named in it}, ...;
--   request.pending: {stream, entries that are pending}, ...: an entry that does not exist any more waits for nobody.
-- request.afar: partitions by id of tasks elsewhere that those of request.ids depend on, if known.
-- Answers {faults, gone, unresolved}: {invariant, sentence}, ...; ids of tasks that something names but that have no record;
--   ids of tasks that cannot be mended before request.afar is known.
-- A task is only mended as far as its record says so at this moment; nothing else is ever made up.

local faults, gone = {}, {}

local function note(name, sentence)
  faults[#faults + 1] = { name, sentence }
end

local function look_at(id)
  local state = readable_state(id)
  if state == false then
    note('every_record_is_whole', 'task ' .. id .. ' has a state that cannot be read')
  end
  if not state then
    return
  end
  local mended = false
  for _, each in ipairs(CHECKS) do
    local name, fault_of = each[1], each[2]
    local fault = fault_of(id, state)
    if fault then
      note(name, 'task ' .. id .. ' ' .. fault)
      if request.mend and MENDS[name] then
        MENDS[name](id, state)
        mended = true
      end
    end
  end
  if mended then
    write_state(id, state)
  end
end

for _, id in ipairs(request.ids or {}) do
  look_at(id)
end
for _, stray in ipairs(request.strays or {}) do
  local kind, key, argument = stray[1], stray[2], stray[3]
  for _, named in ipairs(stray[4]) do
    local fault, gone_id = stray_fault(kind, key, argument, named)
    if fault then
      note('nothing_is_named_in_vain', fault)
      gone[#gone + 1] = gone_id
      if request.mend then
        REMOVE[KINDS[kind][1]](key, named)
      end
    end
  end
end
for _, waiting in ipairs(request.pending or {}) do
  local stream = waiting[1]
  for _, entry in ipairs(waiting[2]) do
    if not has_entry(stream, entry) and pending_for(stream, entry) then
      note('nothing_is_named_in_vain', 'entry ' .. entry .. ' is pending in ' .. stream .. ', but does not exist')
      if request.mend then
        call('XACK', stream, GROUP, entry)
      end
    end
  end
end
close_streams()
if entered then
  ring('work')
end
return { faults, gone, unresolved }

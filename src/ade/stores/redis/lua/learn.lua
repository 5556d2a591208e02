-- uses: base, fields, state, counts, streams, places, edges, memory
-- flags: allow-oom
-- learn: news from other partitions. request.messages: {message, partition it comes from, mark of this message}, ...; a message
--   is packed {kind, on, id}: 'met', 'broken' and 'hope' tell a task here of one it waits for there; 'forget': one there no
--   longer waits for one here; 'move': a draft comes from there; 'linked': everything a task waits for afar knows of it.
--   Safe to repeat, also late: what later news may have undone is heard once. (What is met may be waited for again: both may
--   have been replayed since.)

local freed = false
local learn = {
  met = function(on, id)
    freed = meet(id, on) or freed
  end,
  broken = function(on, id, from)
    if call('HEXISTS', P .. 'task:needs:' .. id, on) == 1 then
      break_need(id, on, 'broken@' .. from)
    end
  end,
  hope = function(on, id, from)
    if call('HGET', P .. 'task:needs:' .. id, on) == 'broken@' .. from then
      reopen_need(id, on, 'open@' .. from)
    end
  end,
  forget = function(on, id)
    call('HDEL', P .. 'task:waiting:' .. on, id)
  end,
  move = function(packed, id)
    local state, detail, outcome = unpack(cmsgpack.unpack(packed))
    if call('EXISTS', task_key(id)) == 0 then
      call('HSET', task_key(id), 'state', cmsgpack.pack(state), 'detail', detail)
      if outcome ~= '' then
        call('HSET', task_key(id), 'outcome', outcome)
      end
      call('ZADD', P .. 'task:all', whole(state[SEQ]), id)
      call('ZADD', P .. 'task:index:state:' .. state[STATUS], whole(state[SEQ]), id)
      if state[IDEM] then
        call('SET', P .. 'task:key:' .. state[IDEM], cmsgpack.pack({ id, state[DIGEST] }))
      end
      if state[PARENT] then
        call('ZADD', P .. 'task:children:' .. state[PARENT], whole(state[SEQ]), id)
      end
      count(state, 1)
    end
  end,
  linked = function(_, id)
    call('HDEL', P .. 'queue:unlinked', id)
  end,
}
for _, message in ipairs(request.messages) do
  local kind, on, id = unpack(cmsgpack.unpack(message[1]))
  if kind == 'linked' or call('SET', P .. 'said:' .. message[3], '', 'NX', 'PX', SAID_MS) then
    learn[kind](on, id, message[2])
  end
end
close_counts()
if freed then
  ring('work')
end
return freed and 1 or 0

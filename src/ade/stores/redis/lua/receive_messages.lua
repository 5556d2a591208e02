-- uses: base, fields, state, labels, counters, streams, task_streams, dependencies, request_dedup
-- flags: allow-oom
-- receive_messages: apply messages from other partitions. request.messages: {message, source partition, id of this message}, ...;
--   a message is packed {kind, on, id}. 'met', 'broken', and 'hope' (it can complete again) report to a task here on a dependency
--   there; 'forget': a task there no longer waits for one here; 'move': a draft arrives; 'linked': every remote dependency of a
--   task is registered.
-- Safe to repeat, also late: a message that a later one could have undone is applied once. (A met dependency can be waited for
--   again: both tasks might have been replayed since.)

local freed = false
local handlers = {
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
      index_labels(id, state, labels_in(detail))
      count(state, 1)
    end
  end,
  linked = function(_, id)
    call('HDEL', P .. 'queue:unlinked', id)
  end,
}
for _, message in ipairs(request.messages) do
  local kind, on, id = unpack(cmsgpack.unpack(message[1]))
  if kind == 'linked' or call('SET', P .. 'said:' .. message[3], '', 'NX', 'PX', ANSWER_KEPT_MS) then
    handlers[kind](on, id, message[2])
  end
end
flush_counts()
if freed then
  notify('work')
end
return freed and 1 or 0

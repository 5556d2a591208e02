-- Indexes by author, tag, resource, team, and ticket. Most tasks have few of these fields.
-- A label is the end of the key of an index: `author:<id>`, `tag:<tag>`, or `resource:<name>`. They are in the detail and not in the
-- state, which claims and commits unpack.
local LABELED = { '"author_id"', '"tags"', '"resources"', '"locks"' }

local function has_labels(detail)
  for _, name in ipairs(LABELED) do
    if string.find(detail, name, 1, true) then
      return true
    end
  end
  return false
end

-- The labels of a task, by its detail. A detail that cannot be read has none.
local function labels_in(detail)
  local labels = {}
  local is_readable, fields = false, nil
  if detail and has_labels(detail) then
    is_readable, fields = pcall(cjson.decode, detail)
  end
  if not is_readable or type(fields) ~= 'table' then
    return labels
  end
  local function add(kind, value)
    if type(value) == 'string' then
      labels[#labels + 1] = kind .. ':' .. value
    end
  end
  add('author', fields.author_id)
  for _, tag in ipairs(type(fields.tags) == 'table' and fields.tags or {}) do
    add('tag', tag)
  end
  for _, resource in ipairs(type(fields.resources) == 'table' and fields.resources or {}) do
    add('resource', resource)
  end
  for _, spec in ipairs(type(fields.locks) == 'table' and fields.locks or {}) do
    add('resource', type(spec) == 'table' and spec.resource)
  end
  return labels
end

local function has_label(detail, label)
  for _, each in ipairs(labels_in(detail)) do
    if each == label then
      return true
    end
  end
  return false
end

local function label_key(label)
  return P .. 'task:index:' .. label
end

-- The team and the ticket never change.
local function index_labels(id, state, labels)
  if state[TEAM] then
    call('ZADD', label_key('team:' .. state[TEAM]), whole(state[SEQ]), id)
  end
  if state[TICKET] then
    call('ZADD', label_key('ticket:' .. state[TICKET]), whole(state[SEQ]), id)
  end
  for _, label in ipairs(labels) do
    call('ZADD', label_key(label), whole(state[SEQ]), id)
  end
end

local function remove_labels(id, state, labels)
  if state[TEAM] then
    call('ZREM', label_key('team:' .. state[TEAM]), id)
  end
  if state[TICKET] then
    call('ZREM', label_key('ticket:' .. state[TICKET]), id)
  end
  for _, label in ipairs(labels) do
    call('ZREM', label_key(label), id)
  end
end

-- Documents: a hash for each kind, with {version, when it expires or false, body (JSON)} packed under the id.
local MARKS, ENDS = P .. 'document:marks', P .. 'document:ends' -- highest version that went by kind; `<kind>:<id>` by expiry
local marks = {}

local function documents_key(kind)
  return P .. 'documents:' .. kind
end

local function end_member(kind, id)
  return kind .. ':' .. id
end

-- Nothing under an id is {0, false, false}. Fails when it cannot be read.
local function read_document(kind, id)
  local packed = call('HGET', documents_key(kind), id)
  if not packed then
    return { 0, false, false }
  end
  local can_be_read, one = pcall(cmsgpack.unpack, packed)
  if not can_be_read or type(one) ~= 'table' or type(one[1]) ~= 'number' or type(one[3]) ~= 'string' then
    error({ err = 'ERR the ' .. kind .. ' ' .. id .. ' cannot be read' })
  end
  return one
end

local function is_over(one)
  return one[2] and one[2] <= NOW
end

local function mark_of(kind)
  marks[kind] = marks[kind] or tonumber(call('HGET', MARKS, kind) or '0')
  return marks[kind]
end

-- The version of a document goes with it: new ones of its kind begin above.
local function raise_mark(kind, version)
  marks[kind] = math.max(mark_of(kind), version)
end

local function keep_marks()
  for kind, version in pairs(marks) do
    if version > 0 then
      call('HSET', MARKS, kind, whole(version))
    end
  end
end

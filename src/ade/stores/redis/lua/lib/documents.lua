-- Documents: a hash for each kind, with packed {version, expiry or false, body (JSON)} by id.
local MARKS, EXPIRIES = P .. 'document:marks', P .. 'document:ends' -- highest deleted version of each kind; `<kind>:<id>` by expiry
local marks = {}

local function documents_key(kind)
  return P .. 'documents:' .. kind
end

local function expiry_member(kind, id)
  return kind .. ':' .. id
end

-- A document that does not exist is {0, false, false}. Fails when it cannot be read.
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

local function is_expired(one)
  return one[2] and one[2] <= NOW
end

local function mark_of(kind)
  marks[kind] = marks[kind] or tonumber(call('HGET', MARKS, kind) or '0')
  return marks[kind]
end

-- A document is deleted: new ones of its kind start above its version.
local function raise_mark(kind, version)
  marks[kind] = math.max(mark_of(kind), version)
end

local function write_marks()
  for kind, version in pairs(marks) do
    if version > 0 then
      call('HSET', MARKS, kind, whole(version))
    end
  end
end

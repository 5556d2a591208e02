-- Plain tasks: ready at their creation, on their first run, without a deadline or a concurrency key. Nearly all are. Their state
-- is not taken apart: it is compared with what it must be, byte by byte, and only its beginning and its end are put anew. That
-- saves a quarter of a claim and a third of a commit. What is not as expected is not plain, and goes the usual way.
-- A state is: status to letter (FRESH), `updated`, `awaited`, `seq`, queue, name, priority, ..., log. `updated` and `seq` are nine
-- bytes each.
local NINE = 207 -- what a number of nine bytes begins with
local STATE = string.char(220, 0, 29) -- an array of so many fields
local FRESH = STATE .. cmsgpack.pack('pending', 'ready', 'stream', 1, 0, false, false, false, false, false, 0, false, false, false,
  false, false)
local ONE_ENTRY, TWO_ENTRIES, THREE_ENTRIES = string.char(176), string.char(217, 33), string.char(217, 50) -- heads of the log
local HAS_USUAL_TICKS = #BASE_TEXT == 16

-- Whether a text stands at this place of another; no new text is made for it.
local function stands_at(packed, at, text)
  return string.find(packed, text, at, true) == at
end

-- Whether a state is that of a fresh task with this entry; `kind` is its queue, name and priority, packed.
local function is_fresh(packed, entry, kind)
  return stands_at(packed, 1, FRESH) and string.byte(packed, #FRESH + 1) == NINE
    and string.byte(packed, #FRESH + 11) == NINE and stands_at(entry, 17, '-0')
    and struct.unpack('>I8', packed, #FRESH + 12) == tonumber(string.sub(entry, 1, 16))
    and stands_at(packed, #FRESH + 20, kind) and stands_at(packed, #packed - 16, ONE_ENTRY)
end

-- The state of a fresh task whose run begins: `begin` stands before the run id, and `rest` behind it, up to `updated`.
local function begun(packed, begin, run_id, rest)
  return begin .. cmsgpack.pack(run_id) .. rest .. string.sub(packed, #FRESH + 10, -18)
    .. TWO_ENTRIES .. string.sub(packed, -16) .. ' ' .. BASE_TEXT
end

-- Whether a state begins as the one who ends the run expects it, `awaited` included.
local function begins_with(packed, expected)
  return stands_at(packed, 1, expected) and string.byte(packed, #expected + 1) == NINE
    and stands_at(packed, #packed - 34, TWO_ENTRIES)
end

local function ended(packed, expected, new)
  return new .. string.sub(packed, #expected + 1, -36) .. THREE_ENTRIES .. string.sub(packed, -33) .. ' ' .. BASE_TEXT
end

local function entry_of(packed, expected)
  return whole(struct.unpack('>I8', packed, #expected + 2)) .. '-0'
end

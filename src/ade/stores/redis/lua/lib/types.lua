-- A script that fails in the middle leaves half of its work behind. So the types of keys, which another program could have changed,
-- are checked before anything is written: {key, type, key, type, ...}.
local function must_be(expected)
  for place = 1, #expected, 2 do
    local kind = call('TYPE', expected[place]).ok
    if kind ~= expected[place + 1] and kind ~= 'none' then
      error({ err = 'WRONGTYPE ' .. expected[place] .. ' is a ' .. kind .. ' and should be a ' .. expected[place + 1] })
    end
  end
end

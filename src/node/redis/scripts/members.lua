-- Placed behind marker.lua, before the scripts that read or end members.
local now = clock_ms()

-- Returns a member's index, fence and value, whether or not it is over.
local function entry(token)
  local found = call('HGET', HOLDERS, token)
  if found then return match(found, '^(%d+) (%d+) (.*)$') end
end

-- Returns the end of the member that lasts longest, if there is one.
local function last_end() return call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2] end

-- The lock ends with its last member, whichever that is. Without a member it is deleted, unless some were evicted.
local function span()
  local ends = last_end()
  if not ends then
    if call('HLEN', HOLDERS) == 0 then call('DEL', KEY) end
    return
  end
  for _, key in ipairs({KEY, LEASES, HOLDERS}) do call('PEXPIREAT', key, ends) end
end

local function take_out(token)
  local index = entry(token)
  call('ZREM', LEASES, token)
  call('HDEL', HOLDERS, token, index ~= '0' and index or token)
end

-- Takes out the members that are over. Returns whether there were any.
local function sweep()
  local over = call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. whole(now))
  for _, token in ipairs(over) do take_out(token) end
  if over[1] then span() end
  return over[1]
end

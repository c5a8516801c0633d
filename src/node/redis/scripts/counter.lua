-- Placed before the scripts of a holder, which compares the fence counter with its own fence.

-- Returns the fence counter; empty if it cannot be read.
local function counter()
  local count = try('GET', KEYS[2])
  return type(count) ~= 'table' and whole(tonumber(count or 0) or 0) or ''
end

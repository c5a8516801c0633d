-- Placed before every other script of this folder. KEYS[1] is the lock, and KEYS[2] its fence counter where a script has one.
local call, try, match, insert = redis.call, redis.pcall, string.match, table.insert
local KEY = KEYS[1]

-- A number without an exponent.
local function whole(number) return string.format('%.0f', number) end

local function clock_ms()
  local time = call('TIME')
  return time[1] * 1e3 + math.floor(time[2] / 1e3)
end

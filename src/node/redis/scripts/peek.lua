-- Placed before every other script of this folder. KEYS[1] is the lock, and KEYS[2] its fence counter where a script has one.
local call, try, match, insert = redis.call, redis.pcall, string.match, table.insert
local KEY = KEYS[1]

-- Reads the lock without fetching more than 1 KiB of it: a hash, a list or a 512 MB string is foreign and must cost the server
-- nothing.
local function peek()
  local kind = call('TYPE', KEY)['ok']
  if kind == 'none' then return end
  local left = call('PTTL', KEY)
  if kind ~= 'string' then return {'held', kind, 0, '', left} end
  return {'held', kind, call('STRLEN', KEY), call('GETRANGE', KEY, 0, 1023), left}
end

-- A number without an exponent.
local function whole(number) return string.format('%.0f', number) end

local function clock_ms()
  local time = call('TIME')
  return time[1] * 1e3 + math.floor(time[2] / 1e3)
end

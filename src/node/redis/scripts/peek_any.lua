-- Placed behind base.lua, in peek.lua's place where a hash at the key may be a lock of ours (put_hash.lua).

-- Whether it is. Known after peek().
local hashed

-- Reads the lock as peek.lua does. The value in a hash is returned as a string is.
local function peek()
  local kind = call('TYPE', KEY).ok
  if kind == 'none' then return end
  -- A hash is foreign to a user who may not ask.
  local left, size = call('PTTL', KEY), kind == 'hash' and tonumber(try('HSTRLEN', KEY, 'rlock')) or 0
  hashed = size > 0 and size < 1025
  if hashed then return {'held', 'string', size, call('HGET', KEY, 'rlock'), left} end
  if kind ~= 'string' then return {'held', kind, 0, '', left} end
  return {'held', kind, call('STRLEN', KEY), call('GETRANGE', KEY, 0, 1023), left}
end

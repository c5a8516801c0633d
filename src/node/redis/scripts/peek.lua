-- Placed before every other script of this folder.
-- Reads a key without fetching more than 1 KiB of it: a hash, a list or a 512 MB string is foreign and must cost the server
-- nothing.
local function peek(key)
  local kind = redis.call('TYPE', key)['ok']
  if kind == 'none' then return nil end
  if kind ~= 'string' then return {'held', kind, 0, '', redis.call('PTTL', key)} end
  return {'held', kind, redis.call('STRLEN', key), redis.call('GETRANGE', key, 0, 1023), redis.call('PTTL', key)}
end

-- Whether what peek() returned is the value of this token. The whole token and the space behind it are compared.
local function ours(seen, token)
  return seen ~= nil and seen[2] == 'string' and string.sub(seen[4], 1, #token + 1) == token .. ' '
end

-- The fence counter, for the caller to compare with its own fence; empty if it cannot be read.
local function counter(key)
  local count = redis.pcall('GET', key)
  return type(count) ~= 'table' and string.format('%.0f', tonumber(count or 0) or 0) or ''
end

-- Whether what peek() returned is the tombstone in the place of this token's lock (tombstone.lua).
local function broken(seen, token)
  return seen ~= nil and seen[2] == 'string' and string.sub(seen[4], 1, #token + 8) == 'broken ' .. token .. ' '
end

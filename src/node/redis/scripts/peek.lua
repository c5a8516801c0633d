-- Placed behind base.lua where a hash at the key is no lock of ours.

-- Reads the lock without fetching more than 1 KiB of it: a hash, a list or a 512 MB string is foreign and must cost the server
-- nothing.
local function peek()
  local kind = call('TYPE', KEY).ok
  if kind == 'none' then return end
  local left = call('PTTL', KEY)
  if kind ~= 'string' then return {'held', kind, 0, '', left} end
  return {'held', kind, call('STRLEN', KEY), call('GETRANGE', KEY, 0, 1023), left}
end

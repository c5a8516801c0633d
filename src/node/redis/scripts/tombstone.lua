-- Puts a tombstone in the place of a lock. The key keeps others out, and the holder learns at its next renewal that it must
-- stop its command, or at once if it listens. Once that is dead the holder deletes the tombstone as it would its lock (release.lua).
-- KEYS[1] the lock, KEYS[3] its members' leases, KEYS[4] its members
-- ARGV[1] the holder's token, ARGV[2] the tombstone: 'broken', token and details. It keeps the TTL.
-- ARGV[3] the holder's channel
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local function told()
  try('PUBLISH', ARGV[3], 'go')
  return {'forced'}
end

local seen = peek()
if not seen then return {'absent'} end
local index, fence, value = nil, nil, seen[4]
if marker(seen) then
  index, fence, value = member(ARGV[1])
  if not index then return {'absent'} end
  -- A server that is out of memory does what follows a write that needs none.
  extend(ARGV[1], call('ZSCORE', LEASES, ARGV[1]) - now)
end
if seen[2] == 'string' and is_of(value, 'broken ' .. ARGV[1]) then return told() end
if seen[2] ~= 'string' or not is_of(value, ARGV[1]) then return seen end
if index then
  write(ARGV[1], index, fence, ARGV[2])
elseif hashed then
  call('HSET', KEY, 'rlock', ARGV[2])
else
  call('SET', KEY, ARGV[2], 'KEEPTTL')
end
return told()

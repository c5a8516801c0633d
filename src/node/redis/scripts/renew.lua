-- Extends the lock if it is the token's. PEXPIRE, not SET: a server that is out of memory still does it.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its members' leases, KEYS[4] its members
-- ARGV[1] token, ARGV[2] TTL in ms, ARGV[3] the holder's fence, ARGV[4] life of the fence counter in ms
-- ARGV[5] the index of the member's place, or empty: any
-- {'renewed', counter} | {'broken', type, length, tombstone, PTTL} | {'absent', counter} | {'held', type, length, first KiB, PTTL}
local token, fence = ARGV[1], ARGV[3]
local seen = peek()
if not seen then return {'absent', counter()} end
if marker(seen) then
  local index, number, value = member(token)
  if not index or ARGV[5] ~= '' and ARGV[5] ~= index then return {'absent', counter()} end
  if not is_of(value, token) then return {'broken', 'string', #value, value, seen[5]} end
  extend(token, ARGV[2])
  -- The members' own numbers stay when the counter moves on.
  if number ~= fence then write(token, index, fence, value) end
else
  if broken(seen, token) then seen[1] = 'broken' end
  if not ours(seen, token) then return seen end
  call('PEXPIRE', KEY, ARGV[2])
end

-- c := max(c, the holder's): a counter that was lost comes back. A renewal does not fail because of the counter, and a value
-- there that is not a string is not touched.
local count = counter()
if count ~= '' then
  if tonumber(count) < tonumber(fence) then
    try('SET', KEYS[2], fence, 'PX', ARGV[4])
  else
    try('PEXPIRE', KEYS[2], ARGV[4])
  end
end
return {'renewed', counter()}

-- Extends the lock if it is the token's. PEXPIRE, not SET: a server that is out of memory still does it.
-- KEYS[1] the lock, KEYS[2] its fence counter
-- ARGV[1] token, ARGV[2] TTL in ms, ARGV[3] the holder's fence, ARGV[4] life of the fence counter in ms
-- {'renewed', counter} | {'broken', type, length, tombstone, PTTL} | {'absent', counter} | {'held', type, length, first KiB, PTTL}
local seen = peek(KEYS[1])
if not seen then return {'absent', counter(KEYS[2])} end
if broken(seen, ARGV[1]) then seen[1] = 'broken' end
if not ours(seen, ARGV[1]) then return seen end
redis.call('PEXPIRE', KEYS[1], ARGV[2])

-- c := max(c, the holder's): a counter that was lost comes back. A renewal does not fail because of the counter, and a value
-- there that is not a string is not touched.
local count = counter(KEYS[2])
if count ~= '' then
  if tonumber(count) < tonumber(ARGV[3]) then
    redis.pcall('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
  else
    redis.pcall('PEXPIRE', KEYS[2], ARGV[4])
  end
end
return {'renewed', counter(KEYS[2])}

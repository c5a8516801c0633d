-- Sets a lock of ours again that is gone, unless a later holder's fence was given out meanwhile; extends it if it is not. A
-- tombstone in its place is extended too: it keeps others out until the command is dead.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its queue
-- ARGV[1] token, ARGV[2] value, ARGV[3] TTL in ms, ARGV[4] our fence, ARGV[5] life of the fence counter in ms
-- ARGV[6] waiter that the holder was, or empty
-- {'renewed'} | {'broken', type, length, tombstone, PTTL} | {'healed'} | {'absent'} (a later fence was given out) |
--   {'held', type, length, first KiB, PTTL}
if ARGV[6] ~= '' then redis.pcall('ZREM', KEYS[3], ARGV[6]) end
local seen = peek(KEYS[1])
if ours(seen, ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'renewed'}
end
if broken(seen, ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  seen[1] = 'broken'
end
if seen then return seen end
if (tonumber(redis.call('GET', KEYS[2])) or 0) > tonumber(ARGV[4]) then return {'absent'} end
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {'healed'}

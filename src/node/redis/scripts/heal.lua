-- Sets the holder's key again if it is gone, else extends it. A tombstone in its place is extended too: it keeps others out
-- until the command is dead.
-- A counter above the holder's fence shows that the node has granted the lock to another client since. The caller decides what
-- that means. The key is set only if the counter is the one that the caller was told: a request that runs late must not set
-- the key over a grant that came between.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its queue
-- ARGV[1] token, ARGV[2] value, ARGV[3] TTL in ms, ARGV[4] the holder's fence, ARGV[5] life of the fence counter in ms
-- ARGV[6] the holder's entry in the queue, or empty
-- ARGV[7] the counter that this node told with 'absent', or empty: none above the holder's fence
-- {'renewed', counter} | {'broken', type, length, tombstone, PTTL} | {'healed', counter as it was} | {'absent', counter} |
--   {'held', type, length, first KiB, PTTL}
if ARGV[6] ~= '' then redis.pcall('ZREM', KEYS[3], ARGV[6]) end
local seen = peek(KEYS[1])
if ours(seen, ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'renewed', counter(KEYS[2])}
end
if broken(seen, ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  seen[1] = 'broken'
end
if seen then return seen end
local count = tonumber(redis.call('GET', KEYS[2])) or 0
local told = string.format('%.0f', count)
if count > tonumber(ARGV[4]) and told ~= ARGV[7] then return {'absent', told} end
redis.call('SET', KEYS[2], string.format('%.0f', math.max(count, tonumber(ARGV[4]))), 'PX', ARGV[5])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {'healed', told}

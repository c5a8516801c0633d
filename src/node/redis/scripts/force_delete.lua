-- Deletes a lock, or the tombstone in its place, without waiting for its holder, and tells it and the next waiters.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its members' leases, KEYS[4] its members, KEYS[5] its queue,
--   KEYS[6] its turns
-- ARGV[1] the holder's token, ARGV[2] the highest fence seen, ARGV[3] life of the fence counter in ms,
--   ARGV[4] the holder's channel
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local done, seen, answer = give_up(ARGV[1], true)
if not done then return answer or {'absent'} end

-- The counter is raised above the holder's fence. A healing request of the holder that is in flight then changes nothing
-- (heal.lua). A server that is out of memory refuses that, as it will refuse the healing, and still deletes the key.
local count = counter()
if count ~= '' then
  local fence = math.max(tonumber(count), tonumber(ARGV[2])) + 1
  if fence < 4503599627370496 then try('SET', KEYS[2], whole(fence), 'PX', ARGV[3]) end
end
try('PUBLISH', ARGV[4], 'go')
pass_on(seen)
return {'forced'}

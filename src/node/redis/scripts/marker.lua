-- Placed before the scripts that may meet members: the holders of a shared lock or of slots.
-- KEYS[3] the members' leases: token → end in ms. KEYS[4] the members: token → 'INDEX FENCE VALUE', index → token.
-- INDEX is 0 if the lock is shared, VALUE what an exclusive holder stores at the lock. The lock itself is then a marker
-- 'rlock KIND n=NODES ttl=MS', with the longest TTL of any member so far, and ends with its last member.
-- Members count under a marker only. A member is over when its end has passed.
local LEASES, HOLDERS = KEYS[3], KEYS[4]

-- Returns kind, number of nodes and longest TTL, if what peek() returned is a marker.
local function marker(seen)
  if seen and seen[2] == 'string' then return match(seen[4], '^rlock (%S+) n=(%d+) ttl=(%d+)$') end
end

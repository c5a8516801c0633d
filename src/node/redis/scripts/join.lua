-- Takes a place among the holders of a shared lock or of slots, if there is one and no other waiter's turn comes first.
-- Arguments and reply: enter.lua, and
-- ARGV[11] token, ARGV[12] kind, ARGV[13] number of nodes, ARGV[14] index from which a free one is looked for
-- ARGV[15] '1' if no other index will do. The token then moves there from the place that it has. If the index is taken, that
--   place is given up.
local token, kind = ARGV[11], ARGV[12]
if marker(seen) and sweep() then seen = peek() end
local group, nodes = marker(seen)
if seen and (group ~= kind or nodes ~= ARGV[13] or not intact(kind)) then return not_now(crowd(seen, ARGV[10])) end
if crowd(seen, ARGV[10]) and seen[7] == 1 then return not_now(seen) end
if young then return not_now({'restarted'}) end

local had = seen and entry(token)
-- The same attempt was here before: this server has two names.
if had and ARGV[15] ~= '1' then return reply(crowd(seen, token)) end
local most = places(kind)
local room = most - (seen and seen[6] or 0) + (had and 1 or 0)
if room <= 0 then
  -- A place is free when the first member is over.
  seen[5] = math.max(0, call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')[2] - now)
  return not_now(seen)
end
local called = had or waiter ~= '' and told(waiter)
if not had then
  local ahead, left = before(kind, room, not seen)
  if ahead and not left then return not_now(seen) end
  if ahead then return reply({'turn', ahead, left}) end
end

local index = kind == 's' and '0'
for step = 0, index and -1 or ARGV[15] == '1' and 0 or most - 1 do
  local place = whole((ARGV[14] - 1 + step) % most + 1)
  local owner = seen and call('HGET', HOLDERS, place)
  if not owner or owner == token then
    index = place
    break
  end
end
if not index then
  if had then
    take_out(token)
    span()
    offer(kind, room)
  end
  return not_now(seen)
end

-- Readers that hold together share a fence: between them no writer can have had the lock. A place that moves gets a new number:
-- the last holder of its index may have told this node one that is not below the old one.
local count = call('GET', KEYS[2])
local fence
if seen and kind == 's' and count then
  fence = whole(tonumber(count) or 0)
  -- Not PEXPIRE: a server that is out of memory must refuse it, before anything is changed.
  call('SET', KEYS[2], fence, 'PX', ARGV[4])
else
  fence = next_fence()
end
if not fence then return reply({'exhausted'}) end
admit(seen, kind, ARGV[13], ARGV[2], token, index, fence, ARGV[1])
if waiter ~= '' then drop(waiter) end
-- It came by itself, perhaps since a holder died: the next ones have not been told.
if not called then offer(kind, room - 1) end
return reply({'granted', fence, index})

-- Sets the holder's key again if it is gone, else extends it. A tombstone in its place is extended too: it keeps others out
-- until the command is dead. A member joins those of its kind, or moves to its index; then the place must be free.
-- A counter above the holder's fence shows that the node has granted the lock to another client since. The caller decides what
-- that means. The key is set only if the counter is the one that the caller was told: a request that runs late must not set
-- the key over a grant that came between.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its members' leases, KEYS[4] its members, KEYS[5] its queue,
--   KEYS[6] its turns
-- ARGV[1] token, ARGV[2] value, ARGV[3] TTL in ms, ARGV[4] the holder's fence, ARGV[5] life of the fence counter in ms
-- ARGV[6] the holder's entry in the queue, or empty
-- ARGV[7] the counter that this node told with 'absent', or empty: none above the holder's fence
-- ARGV[8] kind, ARGV[9] number of nodes, ARGV[10] index
-- {'renewed', counter} | {'broken', type, length, tombstone, PTTL} | {'healed', counter as it was} | {'absent', counter} |
--   {'held', type, length, first KiB, PTTL}
local token, ttl, fence, kind, index = ARGV[1], ARGV[3], ARGV[4], ARGV[8], ARGV[10]
if ARGV[6] ~= '' then
  try('ZREM', KEYS[5], ARGV[6])
  try('ZREM', KEYS[6], ARGV[6])
end
local seen = peek()
if ours(seen, token) then
  call('PEXPIRE', KEY, ttl)
  return {'renewed', counter()}
end
if broken(seen, token) then
  call('PEXPIRE', KEY, ttl)
  seen[1] = 'broken'
end
if marker(seen) and sweep() then seen = peek() end
local group, nodes = marker(seen)
if group == kind and nodes == ARGV[9] and intact(kind) then
  local place, number, value = member(token)
  local owner = kind ~= 's' and call('HGET', HOLDERS, index)
  -- A member that is parked is the run's no more: a request that ran late.
  if place and is_of(value, 'parked ' .. token) then return seen end
  if place and (place == index or owner) then extend(token, ttl) end
  if place == index then
    if not is_of(value, token) then return {'broken', 'string', #value, value, seen[5]} end
    if number ~= fence then write(token, index, fence, value) end
    return {'renewed', counter()}
  end
  if owner then return seen end
elseif seen then
  return seen
end
local count = tonumber(call('GET', KEYS[2])) or 0
local now_at = whole(count)
if count > tonumber(fence) and now_at ~= ARGV[7] then return {'absent', now_at} end
call('SET', KEYS[2], whole(math.max(count, tonumber(fence))), 'PX', ARGV[5])
if kind == 'x' then
  put(ARGV[2], ttl)
else
  admit(seen, kind, ARGV[9], ttl, token, index, fence, ARGV[2])
end
return {'healed', now_at}

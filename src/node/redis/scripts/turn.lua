-- Placed behind queue.lua, before the scripts that ask whose turn it is.
-- `kind`: this waiter's; `room`: the number of places that are left, at least one; `free`: whether the key is free.
-- Returns the waiter ahead that keeps this one from going, and the ms that it has left to go itself; no ms if it cannot go
-- yet. Returns nothing if it is this one's turn. The waiter is cut to 1 KiB: a reply has a limit. An rlock's entry is shorter.
-- 1. Waiters ahead that do not listen any more are removed.
-- 2. So are those that were told STALLED ms ago and have not come, and all waiters behind the first of these from its host,
--    which may have stopped as a whole. They are told, so that a live one comes back to the place that its ticket gives it. If
--    this waiter is from that host too, the host has not stopped, and the one waiter alone is removed.
-- 3. Each waiter of the same kind takes one of the places. It is told, if it was not yet. Behind one that has stalled it has
--    200 ms only: the lock has been free for long.
-- 4. A waiter of another kind keeps all behind it out.
local function before(kind, room, free)
  local waiter, rank, left, late = ARGV[6], 0, room
  if waiter ~= '' and told(waiter) then return end
  while true do
    local ahead = waiters(rank, rank)[1]
    if not ahead or ahead == waiter then return end
    local alive, ago = try('PUBSUB', 'NUMSUB', channel(ahead)), told(ahead)
    if alive.err then return end
    if alive[2] == 0 then
      if not drop(ahead) then return end
    elseif (ago or 0) >= STALLED then
      late = true
      for _, other in ipairs(waiters(rank, -1)) do
        if other ~= waiter and (other == ahead or host(other) == host(ahead) and host(waiter) ~= host(ahead)) then
          if not drop(other) then return end
          wake(other, 'go')
        end
      end
    else
      local other = kind_of(ahead) ~= kind
      if not ago and (free or not other) then
        if free then offer(nil, nil, waiter) else offer(kind, room, waiter) end
        if late then try('ZADD', TURNS, clock_ms() - 300, ahead) end
        ago = told(ahead)
      end
      left = left - 1
      if other or left <= 0 then return string.sub(ahead, 1, 1024), (ago or free) and STALLED - (ago or 0) end
      rank = rank + 1
    end
  end
end

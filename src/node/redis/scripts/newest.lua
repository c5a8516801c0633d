-- Placed behind queue.lua, before the scripts of a waiter with --supersede, which ends all such waiters that came before it.
-- KEYS[7] the last of them that came: 'CAME WAITER', CAME in unix µs with 16 digits, so that these texts compare as the times.
-- It outlives the waiter's place in the queue: a waiter that was cut off for a while must not run after a newer one.

-- Makes the waiter of `came`, such a text, the newest one, and tells the one before it. Returns the newest one if that came later.
-- A time in the future is from before the clock was set back, and does not count. Clocks of several nodes may differ by a minute.
local function supersede(came, life, only_node)
  local newest, time = try('GET', KEYS[7]), call('TIME')
  newest = type(newest) == 'string' and newest or ''
  local at, other = tonumber(match(newest, '^%d+')), string.sub(newest, 18, 1024)
  if at and newest > came and at <= (time[1] + (only_node == '1' and 0 or 60)) * 1e6 + time[2] then return other end
  if newest ~= '' and newest ~= came then
    drop(other)
    wake(other, 'go')
  end
  try('SET', KEYS[7], came, 'PX', life)
end

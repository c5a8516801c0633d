-- Placed behind base.lua, before both requests for a lock, which raise the fence counter. Arguments: enter.lua.
local time = call('TIME')
local micros = time[1] * 1e6 + time[2]

-- c := max(c + 1, hint), the hint clamped to this server's clock ± 5 s: a client whose clock is far ahead must not exhaust the
-- counter. The counter is written first: if memory is short, this call fails and nothing is changed. Returns nil if the
-- counter is exhausted.
local function next_fence()
  local upper = micros + 5e6
  local hint = ARGV[9] == '1' and upper or math.min(math.max(tonumber(ARGV[3]), micros - 5e6), upper)
  local fence = math.max((tonumber(call('GET', KEYS[2]) or 0) or 0) + 1, hint)
  if fence >= 2^52 then return end
  call('SET', KEYS[2], whole(fence), 'PX', ARGV[4])
  return whole(fence)
end

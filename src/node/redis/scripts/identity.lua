-- Placed behind base.lua, before both requests for a lock: what this server tells of itself, and whether that keeps it from granting.
-- Arguments and reply: enter.lua.
local waiter, server, young, replica = ARGV[6], {}
if ARGV[5] ~= '' then
  local process, data = try('INFO', 'server'), try('INFO', 'replication')
  -- A reply is a string, which has no field of this name, or an error.
  local denied = process.err or data.err
  if denied then
    server = {'forbidden', denied}
  else
    local uptime, id = match(process, 'seconds:(%d+)') or '0', match(data, 'replid:(%w+)') or ''
    replica = match(data, 'role:slave')
    -- A server that was promoted may lack the last writes. It does not tell when that was, so it counts from the first request
    -- for this lock. Each promotion changes the replication id. A marker of another server came with the lock's slot.
    local marker_key = not replica and KEYS[10]
    local promoted, mark = marker_key and match(data, 'second_repl_offset:%d') and id, marker_key and call('GET', marker_key)
    if promoted or mark then
      local now = clock_ms()
      local since = match(mark or '', (promoted or '') .. ' (%d+)')
      if not since or tonumber(since) > now then since = whole(now) end
      -- Five weeks: a monthly job waits once.
      try('SET', marker_key, id .. ' ' .. since, 'PX', 3024e6)
      uptime = whole(math.min(uptime, math.floor((now - since) / 1e3)))
    end
    server = {uptime, match(process, 'run_id:(%w+)') or '', id, promoted or mark or nil}
    young = tonumber(uptime) < tonumber(ARGV[5])
  end
end

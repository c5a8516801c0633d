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
    server = {uptime, match(process, 'run_id:(%w+)') or '', id}
    young = tonumber(uptime) < tonumber(ARGV[5])
  end
end

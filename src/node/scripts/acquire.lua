-- Takes the lock if nobody has it.
-- KEYS[1] the lock, KEYS[2] its fence counter
-- ARGV[1] value, ARGV[2] TTL in ms, ARGV[3] fence hint in unix µs, ARGV[4] life of the fence counter in ms
-- ARGV[5] the least uptime in s with which this server grants; empty: it is not asked what it is
-- {answer} | {answer, {uptime in s, run id, replication id}} | {answer, {'forbidden', why}}, where answer is
-- {'granted', fence} | {'held', type, length, first KiB, PTTL} | {'restarted'} | {'replica'} | {'exhausted'}
local server, young, replica
if ARGV[5] ~= '' then
  local process, data = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
  if type(process) == 'table' or type(data) == 'table' then
    server = {'forbidden', type(process) == 'table' and process.err or data.err}
  else
    local uptime = string.match(process, 'uptime_in_seconds:(%d+)') or '0'
    server = {uptime, string.match(process, 'run_id:(%w+)') or '', string.match(data, 'master_replid:(%w+)') or ''}
    young = tonumber(uptime) < tonumber(ARGV[5])
    replica = string.find(data, 'role:slave', 1, true)
  end
end

if replica then return {{'replica'}, server} end
local seen = peek(KEYS[1])
if seen then return {seen, server} end
if young then return {{'restarted'}, server} end

-- c := max(c + 1, hint), the hint clamped to this server's clock ± 5 s so that a client's clock that is far ahead
-- cannot use the counter up. The counter is written first: if memory is short, this call fails and nothing is changed.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local hint = math.min(math.max(tonumber(ARGV[3]), now - 5000000), now + 5000000)
local fence = math.max((tonumber(redis.call('GET', KEYS[2])) or 0) + 1, hint)
if fence >= 4503599627370496 then return {{'exhausted'}, server} end
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {{'granted', string.format('%.0f', fence)}, server}

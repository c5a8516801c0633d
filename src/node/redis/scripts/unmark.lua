-- Deletes the mark of a success, if it is still that of the run that was shown.
-- KEYS[9] the mark, ARGV[1] the run's token
-- {'forced'} | {'absent'}
local mark = try('GETRANGE', KEYS[9], 0, 1023)
if type(mark) ~= 'string' or not is_of(mark, ARGV[1]) then return {'absent'} end
call('DEL', KEYS[9])
return {'forced'}

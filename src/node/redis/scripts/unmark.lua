-- Deletes the mark of a success, if it is still that of the run that was shown.
-- KEYS[8] the mark, ARGV[1] the run's token
-- {'forced'} | {'absent'}
local mark = try('GETRANGE', KEYS[8], 0, 1023)
if type(mark) ~= 'string' or not is_of(mark, ARGV[1]) then return {'absent'} end
call('DEL', KEYS[8])
return {'forced'}

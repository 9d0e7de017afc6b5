-- Finds the commands that the user may not run.
--
-- ARGV  1 a key of lapse, then the names of commands
-- Returns  the names that are denied; none on a server that cannot tell
local key, denied = ARGV[1], {}
if not redis.acl_check_cmd then
	return denied
end
for i = 2, #ARGV do
	if not redis.acl_check_cmd(ARGV[i], key, key, key) then
		denied[#denied + 1] = ARGV[i]
	end
end
return denied

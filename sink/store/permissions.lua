-- Finds the commands that the user may not run.
--
-- ARGV  1 a key of lapse, then the names of commands
-- Returns  the names that are denied; none on a server that cannot tell
local key, denied = ARGV[1], {}
if not redis.acl_check_cmd then
	return denied
end
-- Redis 8 and later check the number of the arguments too: the first number that fits counts.
local function allowed(name)
	local ok, answer
	for _, n in ipairs({ 3, 2, 1, 0, 4, 5 }) do
		local args = {}
		for i = 1, n do
			args[i] = key
		end
		ok, answer = pcall(redis.acl_check_cmd, name, unpack(args))
		if ok then
			return answer
		end
	end
	error(answer)
end
for i = 2, #ARGV do
	if not allowed(ARGV[i]) then
		denied[#denied + 1] = ARGV[i]
	end
end
return denied

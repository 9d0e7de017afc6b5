-- Renames keys of a partition.
--
-- KEYS  1 state, then pairs of a key and its new name
-- ARGV  1 the expected version
-- Returns  1 done, 0 the partition is at another version.
local state, expected, first_pair = KEYS[1], ARGV[1], 2
if (redis.call('HGET', state, 'version') or '') ~= expected then
	return 0
end
for i = first_pair, #KEYS, 2 do
	local key, new_name = KEYS[i], KEYS[i + 1]
	if redis.call('EXISTS', key) == 1 then -- the scan that found the keys may find one twice
		redis.call('RENAME', key, new_name)
	end
end
return 1

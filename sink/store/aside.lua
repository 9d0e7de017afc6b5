-- Renames keys of a shard.
--
-- KEYS  1 state, then pairs of a key and its new name
-- ARGV  1 the expected version, 2 the version to set, unless the state is renamed
-- Returns  1 done, 0 the shard is at another version.
local state, expected, first_pair = KEYS[1], ARGV[1], 2
if (redis.call('HGET', state, 'version') or '') ~= expected then
	return 0
end
for i = first_pair, #KEYS, 2 do
	local key, new_name = KEYS[i], KEYS[i + 1]
	-- The scan that found the keys may find one twice. A key that has its new name already was
	-- renamed before an interruption.
	if redis.call('EXISTS', key) == 1 and redis.call('EXISTS', new_name) == 0 then
		redis.call('RENAME', key, new_name)
	end
end
if ARGV[2] then
	-- After the rest, as Redis accepts it at the limit of its memory only after another write.
	redis.call('HSET', state, 'version', ARGV[2])
end
return 1

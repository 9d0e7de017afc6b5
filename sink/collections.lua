-- Reads the configurations and counts the documents of several collections.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own
-- ARGV  1 whether to return the configuration of collections without documents (1), then
--       per collection: name, number of ranges to count, and for each the index (1 inherit, 2 own)
--       and the lowest and the highest score as ZCOUNT takes them
-- Returns  {head, {configuration, size after the last commit, size, count}, ...}: head as
--          in head.lua, without a collection.
local call = redis.call
local state, config = KEYS[1], KEYS[2]
local always = ARGV[1] == '1'
local reply = {head(state, config)}
local at, k = 2, 3
while k <= #KEYS do
	local docs, inherit, own = KEYS[k], KEYS[k + 1], KEYS[k + 2]
	local name, first_range = ARGV[at], at + 2
	local after = first_range + 3 * ARGV[at + 1]
	local left = call('HGET', state, 'size:' .. name)
	local size = call('HLEN', docs) .. ' ' .. call('ZCARD', inherit) .. ' ' .. call('ZCARD', own)
	local counted = 0
	for i = first_range, after - 1, 3 do
		counted = counted + call('ZCOUNT', KEYS[k + ARGV[i]], ARGV[i + 1], ARGV[i + 2])
	end
	reply[#reply + 1] = {(always or left) and call('HGET', config, name), left, size, counted}
	at, k = after, k + 3
end
return reply

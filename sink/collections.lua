-- Reads the configurations and counts the documents of several collections.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own
-- ARGV  1 whether to return the configuration of collections without documents (1), then
--       per collection: name, and the highest scores of inherit and of own to count, as
--       ZCOUNT takes them ('' to count nothing)
-- Returns  {head, {configuration, size after the last commit, size, count}, ...}: head as
--          in head.lua, without a collection.
local call = redis.call
local state, config = KEYS[1], KEYS[2]
local always = ARGV[1] == '1'
local reply = {head(state, config)}
local at, k = 2, 3
while k <= #KEYS do
	local docs, inherit, own = KEYS[k], KEYS[k + 1], KEYS[k + 2]
	local name, highest_inherit, highest_own = ARGV[at], ARGV[at + 1], ARGV[at + 2]
	local left = call('HGET', state, 'size:' .. name)
	local size = call('HLEN', docs) .. ' ' .. call('ZCARD', inherit) .. ' ' .. call('ZCARD', own)
	local counted = 0
	if highest_inherit ~= '' then
		counted = call('ZCOUNT', inherit, '-inf', highest_inherit) + call('ZCOUNT', own, '-inf', highest_own)
	end
	reply[#reply + 1] = {(always or left) and call('HGET', config, name), left, size, counted}
	at, k = at + 3, k + 3
end
return reply

-- Counts ranges of a collection's two indexes.
--
-- KEYS  1 state, 2 config, 3 documents, 4 inherit, 5 own
-- ARGV  1 collection, then per range: index (inherit or own), and the lowest and the highest
--       score as ZCOUNT takes them
-- Returns  {head, {count, ...}, size of inherit, size of own}: head as in head.lua.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local keys = {inherit = KEYS[4], own = KEYS[5]}
local collection = ARGV[1]
local reply_head = head(state, config, collection, docs)
local counts = {}
for i = 2, #ARGV, 3 do
	local index, lowest, highest = ARGV[i], ARGV[i + 1], ARGV[i + 2]
	counts[#counts + 1] = redis.call('ZCOUNT', keys[index], lowest, highest)
end
return {reply_head, counts, redis.call('ZCARD', keys.inherit), redis.call('ZCARD', keys.own)}

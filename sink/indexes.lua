-- Counts the entries of indexes of a collection.
--
-- KEYS  1 state, 2 config, 3 documents, then the indexes
-- ARGV  1 collection, 2 the field of the state that says what is being made, then for each index: the field that has
-- the
--       number of its entries, the number of ranges to count, and for each where it begins and where it ends, as
--       ZLEXCOUNT takes them
-- Returns  {head, what is being made, for each index {number of entries after the last commit, number of entries,
--           number of those in the ranges}}
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection, making_field = ARGV[1], ARGV[2]
local reply = {head(state, config, collection, docs), redis.call('HGET', state, making_field)}
local at, first_index = 3, 4
for k = first_index, #KEYS do
	local index, first_range = KEYS[k], at + 2
	local after, counted = first_range + 2 * ARGV[at + 1], 0
	for i = first_range, after - 1, 2 do
		counted = counted + redis.call('ZLEXCOUNT', index, ARGV[i], ARGV[i + 1])
	end
	reply[#reply + 1] = {redis.call('HGET', state, ARGV[at]), redis.call('ZCARD', index), counted}
	at = after
end
return reply

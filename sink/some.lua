-- Reads documents of a collection, until they are many bytes.
--
-- KEYS  1 state, 2 config, 3 documents
-- ARGV  1 collection, 2 stop after reading this many bytes of values, then ids
-- Returns  {head, {value, ...}}: of the first ids, one at least; a value is false if the document
--          does not exist.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection, bytes, first_id = ARGV[1], tonumber(ARGV[2]), 3
local reply_head = head(state, config, collection, docs)
local values = {}
for i = first_id, #ARGV do
	local value = redis.call('HGET', docs, ARGV[i])
	values[#values + 1] = value
	bytes = bytes - (value and #value or 0)
	if bytes <= 0 then
		break
	end
end
return {reply_head, values}

-- Reads the headers of documents in the order of an index, from a place on.
--
-- KEYS  1 state, 2 config, 3 documents, 4 the index
-- ARGV  1 collection, 2 the score after which it begins ('' for the beginning), 3 and the id,
--       4 the length of a header, 5 stop after this many members, 6 stop after this many bytes of values
-- Returns  {head, score, id, left, headers}: the place is that of the last member; left
--          is 1 if members come after it, else 0. The headers are one text: each has its length, and may end
--          with a part of the body, or with zeros. It has none for a member that is not a document.
local state, config, docs, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local collection, score, id, length = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local most, load = tonumber(ARGV[5]), tonumber(ARGV[6])
local at_once = 50
local reply_head = head(state, config, collection, docs)
local headers, left = {}, 1
local rank = rank_after(index, score, id)
while most > 0 and load > 0 do
	local members = redis.call('ZRANGE', index, rank, rank + at_once - 1, 'WITHSCORES')
	if #members == 0 then
		left = 0
		break
	end
	for i = 1, #members, 2 do
		local value = redis.call('HGET', docs, members[i])
		if value then
			local header = string.sub(value, 1, length)
			headers[#headers + 1] = header .. string.rep('\0', length - #header)
			load = load - #value
		end
		id, score = members[i], members[i + 1]
		rank, most = rank + 1, most - 1
		if load <= 0 then
			break
		end
	end
end
return {reply_head, score, id, left, table.concat(headers)}

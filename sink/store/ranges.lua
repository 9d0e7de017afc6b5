-- Finds the documents in ranges of the indexes of collections, each after a place and up to a score.
--
-- KEYS  1 state, then per collection: documents, inherit, own
-- ARGV  1 the expected version, 2 the most documents to return, 3 stop after returning this many bytes of
--       values, but not before the first document, 4 whether to return bodies (1), 5 number of collections n,
--       then n fields of the state that hold the sizes of the collections, then for each range:
--       the collection (from 1), the index (1 inherit, 2 own), after this score ('' for the beginning), and
--       this id ('' before all with the score), how many documents are passed over there, and up to this
--       score ('' for none)
-- Returns  {1, time, per range: {next, ids, values, left}}: next is the lowest score that comes after what was
--          returned, also behind the end of the range, false if there is none; a value is false if the
--          document does not exist; left is how many documents of the range were not returned. Or {0} the
--          shard is at another version; {-2, n} the n-th collection is not as the last commit left it, so
--          that documents may be missing.
local call, state = redis.call, KEYS[1]
local expected, limit, bytes, whole = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local collections, first_size, at_once = tonumber(ARGV[5]), 6, 32
local first_range = first_size + collections
local known = call('HMGET', state, 'version', unpack(ARGV, first_size, first_range - 1))
if known[1] ~= expected then
	return {0}
end
for c = 1, collections do
	local k = 3 * c - 1
	local size = call('HLEN', KEYS[k]) .. ' ' .. call('ZCARD', KEYS[k + 1]) .. ' ' .. call('ZCARD', KEYS[k + 2])
	if size ~= (known[c + 1] or '0 0 0') then
		return {-2, c}
	end
end

local reply = {1, call('TIME')}
local none = true -- no document was read yet
for at = first_range, #ARGV, 6 do
	local k, index = 3 * ARGV[at] - 1, ARGV[at + 1]
	local docs, key, up_to = KEYS[k], KEYS[k + index], ARGV[at + 5]
	local first = rank_after(key, ARGV[at + 2], ARGV[at + 3]) + ARGV[at + 4]
	local there = up_to == '' and 0 or math.max(0, call('ZCOUNT', key, '-inf', up_to) - first)
	local ids, values, n = {}, {}, 0
	local most = math.min(there, limit)
	if most > 0 and (bytes > 0 or none) then
		ids = call('ZRANGE', key, first, first + most - 1)
	end
	while n < #ids and (bytes > 0 or none) do
		local part = call('HMGET', docs, unpack(ids, n + 1, math.min(n + at_once, #ids)))
		for i = 1, #part do
			if bytes <= 0 and not none then
				break
			end
			local v = part[i]
			if v and not whole then
				v = string.sub(v, 1, string.byte(v, 1))
			end
			n, none = n + 1, false
			values[n], bytes = v or false, bytes - (v and #v or 0)
		end
	end
	for i = #ids, n + 1, -1 do
		ids[i] = nil
	end
	limit = limit - n
	local next_score = call('ZRANGE', key, first + n, first + n, 'WITHSCORES')[2] or false
	reply[#reply + 1] = {next_score, ids, values, there - n}
end
return reply

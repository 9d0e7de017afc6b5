-- Finds the documents that are at or under the cuts of their collections, lowest score
-- first, and the scores that come next.
--
-- KEYS  1 state, then per collection: documents, inherit, own
-- ARGV  1 the expected version, 2 the most documents to return, 3 stop after returning this
--       many bytes of values, 4 whether to return bodies (1), 5 number of collections n, then
--       n fields of the state that hold the sizes of the collections, then per collection: where a band
--       of inherit begins (-inf for the first), the cut of inherit there and the cut of own ('' for none),
--       and how many documents are passed over in inherit and in own
-- Returns  {1, time, per collection: {next inherit, next own, ids, values, left}}: next is the
--          lowest score that was not returned, false if there is none; a value is false if the
--          document does not exist; left is how many documents are at or under the cuts and
--          were not returned. Or {0} the shard is at another version; {-2, n} the n-th
--          collection is not as the last commit left it, so that due documents may be missing.
local call, state = redis.call, KEYS[1]
local expected, limit, bytes, whole = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local collections, first_size = tonumber(ARGV[5]), 6
local first_cut = first_size + collections
local left = call('HMGET', state, 'version', unpack(ARGV, first_size, first_cut - 1))
local version, first_left = left[1], 2
if version ~= expected then
	return {0}
end
for c = 1, collections do
	local k = 3 * c - 1
	local size = call('HLEN', KEYS[k]) .. ' ' .. call('ZCARD', KEYS[k + 1]) .. ' ' .. call('ZCARD', KEYS[k + 2])
	if size ~= (left[first_left + c - 1] or '0 0 0') then
		return {-2, c}
	end
end

-- Returns the ids in an index from a score up to a cut, but for the first skip, how many they are, the lowest
-- score after them, and how many more are up to the cut.
local function under(key, from, cut, skip)
	local ids, n, more, before = {}, 0, 0, 0
	if from ~= '-inf' then
		before = call('ZCOUNT', key, '-inf', '(' .. from)
	end
	if cut ~= '' and limit > 0 then
		ids = call('ZRANGEBYSCORE', key, from, cut, 'LIMIT', skip, limit)
		n = #ids
		limit = limit - n
	end
	if cut ~= '' and limit == 0 then
		more = math.max(0, call('ZCOUNT', key, from, cut) - n - skip)
	end
	local next = before + skip + n
	return ids, n, call('ZRANGE', key, next, next, 'WITHSCORES')[2] or false, more
end
local reply = {1, call('TIME')}
local none = true -- no document was read yet
for c = 1, collections do
	local k = 3 * c - 1
	local docs, inherit, own = KEYS[k], KEYS[k + 1], KEYS[k + 2]
	local at = first_cut + 5 * (c - 1)
	local ids, inherited, next_inherit, more_inherit = under(inherit, ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 3]))
	local own_ids, owned, next_own, more_own = under(own, '-inf', ARGV[at + 2], tonumber(ARGV[at + 4]))
	if inherited == 0 then
		ids = own_ids
	else
		for i = 1, owned do
			ids[inherited + i] = own_ids[i]
		end
	end
	local n = inherited + owned
	local values = {}
	local from = 1 -- the first id that is not read yet
	while from <= n and (bytes > 0 or none) do
		local part = call('HMGET', docs, unpack(ids, from, math.min(from + 31, n)))
		for i = 1, #part do
			if bytes <= 0 and not none then
				break
			end
			local v = part[i]
			if v and not whole then
				v = string.sub(v, 1, string.byte(v, 1))
			end
			bytes = bytes - (v and #v or 0)
			values[from] = v or false
			from = from + 1
			none = false
		end
	end
	if bytes <= 0 and not none then
		limit = 0
	end
	-- The ids that were not read come next.
	if from <= n then
		if from <= inherited then
			next_inherit = call('ZSCORE', inherit, ids[from])
		end
		if owned > 0 then
			next_own = call('ZSCORE', own, ids[math.max(from, inherited + 1)])
		end
		for i = n, from, -1 do
			ids[i] = nil
		end
	end
	reply[c + 2] = {next_inherit, next_own, ids, values, more_inherit + more_own + n - from + 1}
end
return reply

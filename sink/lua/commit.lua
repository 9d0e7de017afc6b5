-- Commits one step of a partition: all of it, or nothing if the partition is not
-- as the step was computed from.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own
-- ARGV  1 version expected, 2 to 9 the fields of the state to set with their values
--       (version, offset, watermark, rebuild), 10 number of collections n, then the n
--       fields of the state with their sizes, then the number of configurations, then
--       pairs of collection and configuration ('' to remove it); then per collection:
--         drop (1: documents and index go first; 2: the index goes first),
--         whether the documents that are put must not be there (1),
--         and seven counts with their values, in this order:
--         documents put (id, value), headers renewed (id, header),
--         inherit added (score, id), own added (score, id),
--         ids removed from the documents, from inherit, from own
-- Returns  {1} done; {0} the version is another; {-1, n} the n-th key is not of
--          its type; {-2, n} the n-th collection, or with 0 the configuration, is
--          not as it was left, or has not a document whose header is to be renewed;
--          {-3, n} the n-th collection has a document that must not be there.
--
-- Most steps are small, and then a table or a function that is made here costs more
-- than a call: so there are few of them, and values are taken from ARGV as they stand.
local call, pcall = redis.call, redis.pcall
local state, config = KEYS[1], KEYS[2]
local collections = tonumber(ARGV[10])
local left = call('HMGET', state, 'version', 'configs', unpack(ARGV, 11, 10 + collections))
if left[1] ~= ARGV[1] then
	return {0}
end

-- Everything is checked before the first write: nothing is rolled back.
local configs = pcall('HLEN', config)
if type(configs) ~= 'number' then
	return {-1, 2}
end
if configs ~= tonumber(left[2] or 0) then
	return {-2, 0}
end
local first_config = 12 + collections
local first = first_config + 2 * tonumber(ARGV[first_config - 1]) -- of the collections' arguments
local grows = false -- whether the step adds anything
for i = first_config + 1, first - 1, 2 do
	grows = grows or ARGV[i] ~= ''
end
-- Says that no document has an id that is one of n pairs of values, of which the first
-- begins at from. What goes with an id in a pair is asked for as if it were one: it may
-- happen to be, which does no harm, and there is no table of ids.
local function none(docs, from, n)
	local last = from + 2 * n - 1
	while from <= last do
		local to = math.min(from + 3999, last)
		local there = call('HMGET', docs, unpack(ARGV, from, to))
		for i = 1, to - from + 1 do
			if there[i] then
				return false
			end
		end
		from = to + 1
	end
	return true
end
local renewed -- by their place in ARGV
local sizes = {} -- of documents, inherit and own, per collection
local at = first
for c = 1, collections do
	local k = 3 * c
	local docs, inherit, own = pcall('HLEN', KEYS[k]), pcall('ZCARD', KEYS[k + 1]), pcall('ZCARD', KEYS[k + 2])
	if type(docs) ~= 'number' then
		return {-1, k}
	elseif type(inherit) ~= 'number' then
		return {-1, k + 1}
	elseif type(own) ~= 'number' then
		return {-1, k + 2}
	end
	if docs .. ' ' .. inherit .. ' ' .. own ~= (left[2 + c] or '0 0 0') then
		return {-2, c}
	end
	local drop, puts = ARGV[at], tonumber(ARGV[at + 2])
	sizes[3 * c], sizes[3 * c + 1], sizes[3 * c + 2] = docs, inherit, own
	local fresh, first_put = ARGV[at + 1] == '1' and docs > 0, at + 3
	at = at + 3 + 2 * puts
	local renews = tonumber(ARGV[at])
	for i = at + 1, at + 2 * renews, 2 do
		-- A header is renewed in front of a body that is there, and whole.
		local old = drop ~= '1' and call('HGET', KEYS[k], ARGV[i]) or ''
		local header = string.byte(old, 1) or 0
		if header < 17 or header > #old then
			return {-2, c}
		end
		renewed = renewed or {}
		renewed[i] = ARGV[i + 1] .. string.sub(old, header + 1)
	end
	at = at + 1 + 2 * renews
	local inherits = tonumber(ARGV[at])
	at = at + 1 + 2 * inherits
	local owns = tonumber(ARGV[at])
	if fresh then
		local is
		if renews == 0 and inherits + owns == puts then -- all that is put goes to an index: shorter pairs
			is = none(KEYS[k], at - 2 * inherits, inherits) and none(KEYS[k], at + 1, owns)
		else
			is = none(KEYS[k], first_put, puts)
		end
		if not is then
			return {-3, c}
		end
	end
	at = at + 1 + 2 * owns
	for _ = 1, 3 do
		at = at + 1 + tonumber(ARGV[at])
	end
	grows = grows or puts + renews + inherits + owns > 0
end

-- A Redis that is full refuses a write that may take memory, if it is the first of
-- a script. What only removes must go through, or nothing would ever make room.
if not grows then
	call('HDEL', state, '')
end
call('HSET', state, unpack(ARGV, 2, 9))
for i = first_config, first - 1, 2 do
	if ARGV[i + 1] == '' then
		call('HDEL', config, ARGV[i])
	else
		call('HSET', config, ARGV[i], ARGV[i + 1])
	end
end
if first > first_config then
	call('HSET', state, 'configs', call('HLEN', config))
end

-- Runs a command on the values that begin at from, of which there are as many times
-- width as stands before them. Returns where the next count is, and how many fields or
-- members the command has added or removed.
local function on(command, key, from, width)
	local last, n = from + width * tonumber(ARGV[from - 1]) - 1, 0
	while from <= last do
		local to = math.min(from + 3999, last)
		n = n + call(command, key, unpack(ARGV, from, to))
		from = to + 1
	end
	return last + 1, n
end
at = first
for c = 1, collections do
	local docs, inherit, own = KEYS[3 * c], KEYS[3 * c + 1], KEYS[3 * c + 2]
	local docs_left, inherit_left, own_left = sizes[3 * c], sizes[3 * c + 1], sizes[3 * c + 2]
	if ARGV[at] == '1' then
		call('UNLINK', docs, inherit, own)
		docs_left, inherit_left, own_left = 0, 0, 0
	elseif ARGV[at] == '2' then
		call('UNLINK', inherit, own)
		inherit_left, own_left = 0, 0
	end
	local n
	at, n = on('HSET', docs, at + 3, 2)
	docs_left = docs_left + n
	local renews = tonumber(ARGV[at])
	for i = at + 1, at + 2 * renews, 2 do
		call('HSET', docs, ARGV[i], renewed[i])
	end
	at = at + 1 + 2 * renews
	at, n = on('ZADD', inherit, at + 1, 2)
	inherit_left = inherit_left + n
	at, n = on('ZADD', own, at + 1, 2)
	own_left = own_left + n
	at, n = on('HDEL', docs, at + 1, 1)
	docs_left = docs_left - n
	at, n = on('ZREM', inherit, at + 1, 1)
	inherit_left = inherit_left - n
	at, n = on('ZREM', own, at + 1, 1)
	own_left = own_left - n
	if docs_left + inherit_left + own_left == 0 then
		call('HDEL', state, ARGV[10 + c])
	else
		call('HSET', state, ARGV[10 + c], docs_left .. ' ' .. inherit_left .. ' ' .. own_left)
	end
end
return {1}

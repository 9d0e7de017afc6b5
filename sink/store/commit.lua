-- Commits one step of a shard: all of it, or nothing if the shard is not in the
-- state from which the step was computed.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own; then the property indexes
--       that change
-- ARGV  1 the expected version, 2 how many arguments follow that are pairs of field and value
--       to set in the state (version, offset, watermark, stamp, rebuild), then the number of
--       collections n, then n fields of the state that hold the sizes of the collections, then
--       the number of configurations, then pairs of collection and configuration ('' to remove
--       it); then per collection:
--         drop (1: remove the documents and the index first; 2: rename documents and index to
--         those of the next collection, which has none yet),
--         and seven lists, each with its length in front:
--         documents to put (id, value), headers to renew (id, header),
--         members to add to inherit (score, id), and to own (score, id),
--         ids to remove from the documents, from inherit, from own;
--       then, if there is something about property indexes: a list of fields to remove from the state,
--       with its length in front, and per property index:
--         the field of the state that holds how many entries it has, unlink (1: remove all of them
--         first), and two lists: entries to add (0, entry), entries to remove
-- Returns  {1, n, ...} committed, and the n-th collections are empty now;
--          {0} the shard is at another version; {-1, n} the n-th key is of another type;
--          {-2, n} the n-th collection, or with 0 the configuration, is not as the last commit
--          left it, or the collection lacks a document whose header is to be renewed;
--          {-3, n} the n-th key, a property index, is not as the last commit left it. Or an error,
--          before anything is written, while the slot is being moved to another master.
--
-- Most steps are small. In a small step, making a table or a function costs more than a
-- command. So there are few of them, and lists are passed on from ARGV without a copy.
local call, pcall = redis.call, redis.pcall
local state, config = KEYS[1], KEYS[2]
local expected, first_field, last_field = ARGV[1], 3, 2 + ARGV[2]
local collections, first_size = tonumber(ARGV[last_field + 1]), last_field + 2
local configs, first_config = tonumber(ARGV[first_size + collections]), first_size + collections + 1
local first_change = first_config + 2 * configs -- the arguments of the first collection

local at_once = 4000 -- unpack takes fewer than 5,113 values
local last_size = first_size + collections - 1
local left = call('HMGET', state, 'version', 'configs',
	unpack(ARGV, first_size, math.min(last_size, first_size + at_once - 1)))
for from = first_size + at_once, last_size, at_once do
	local more = call('HMGET', state, unpack(ARGV, from, math.min(last_size, from + at_once - 1)))
	for i = 1, #more do
		left[#left + 1] = more[i]
	end
end
local version, configs_left, first_left = left[1], tonumber(left[2] or 0), 3
if version ~= expected then
	return {0}
end

-- Part 1 checks everything and writes nothing, because Redis rolls nothing back.
local configs_now = pcall('HLEN', config)
if type(configs_now) ~= 'number' then
	return {-1, 2}
end
if configs_now ~= configs_left then
	return {-2, 0}
end
local grows = false -- the step adds something
local moves = false -- a collection is renamed, for which at most a configuration is added
for i = first_config + 1, first_change - 1, 2 do
	grows = grows or ARGV[i] ~= ''
end
local renewed -- whole documents with their new headers, by the position of the id in ARGV
local sizes = {} -- of documents, inherit and own, by the position of the key
local at = first_change
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
	if docs .. ' ' .. inherit .. ' ' .. own ~= (left[first_left + c - 1] or '0 0 0') then
		return {-2, c}
	end
	sizes[k], sizes[k + 1], sizes[k + 2] = docs, inherit, own
	local drop, puts = ARGV[at], tonumber(ARGV[at + 1])
	moves = moves or drop == '2'
	at = at + 2 + 2 * puts
	local renews, first_renew = tonumber(ARGV[at]), at + 1
	for i = first_renew, first_renew + 2 * renews - 1, 2 do
		-- A header is renewed in front of a body that exists and is whole.
		local old = drop ~= '1' and call('HGET', KEYS[k], ARGV[i]) or ''
		local header = string.byte(old, 1) or 0
		if header < 17 or header > #old then
			return {-2, c}
		end
		renewed = renewed or {}
		renewed[i] = ARGV[i + 1] .. string.sub(old, header + 1)
	end
	at = first_renew + 2 * renews
	local inherits = tonumber(ARGV[at])
	at = at + 1 + 2 * inherits
	local owns = tonumber(ARGV[at])
	at = at + 1 + 2 * owns
	for _ = 1, 3 do -- the ids to remove
		at = at + 1 + tonumber(ARGV[at])
	end
	grows = grows or puts + renews + inherits + owns > 0
end
local first_by, last_by, last_argument = 3 + 3 * collections, #KEYS, #ARGV
if at <= last_argument then
	at = at + 1 + tonumber(ARGV[at])
end
for k = first_by, last_by do
	local entries = pcall('ZCARD', KEYS[k])
	if type(entries) ~= 'number' then
		return {-1, k}
	end
	if entries ~= tonumber(call('HGET', state, ARGV[at]) or 0) then
		return {-3, k}
	end
	sizes[k] = entries
	local adds = tonumber(ARGV[at + 2])
	grows = grows or adds > 0
	at = at + 3 + 2 * adds
	at = at + 1 + tonumber(ARGV[at])
end

-- While the slot is being moved away, a command fails on a key that does not exist, or that the
-- script itself has emptied. So this asks for a key that never exists, before anything is written.
call('EXISTS', state .. '?')

-- Part 2 writes. A Redis that is full refuses a script whose first write may take memory. A
-- step that only removes must go through, or nothing would ever make room.
if moves or not grows then
	call('HDEL', state, '')
end
call('HSET', state, unpack(ARGV, first_field, last_field))
for i = first_config, first_change - 1, 2 do
	if ARGV[i + 1] == '' then
		call('HDEL', config, ARGV[i])
	else
		call('HSET', config, ARGV[i], ARGV[i + 1])
	end
end
if configs > 0 then
	call('HSET', state, 'configs', call('HLEN', config))
end

-- Runs a command on the list that begins at from, of entries of width values, and has its
-- length in front. Returns the position after it, and how many fields or members the command
-- added or removed.
local function on(command, key, from, width)
	local last, n = from + width * tonumber(ARGV[from - 1]) - 1, 0
	while from <= last do
		local to = math.min(from + at_once - 1, last)
		n = n + call(command, key, unpack(ARGV, from, to))
		from = to + 1
	end
	return last + 1, n
end
local reply = {1}
local more_sizes = 0 -- fields with sizes that the step adds, less those that it removes
at = first_change
for c = 1, collections do
	local k, size_field = 3 * c, ARGV[first_size + c - 1]
	local docs, inherit, own = KEYS[k], KEYS[k + 1], KEYS[k + 2]
	local docs_size, inherit_size, own_size = sizes[k], sizes[k + 1], sizes[k + 2]
	local drop, first_put = ARGV[at], at + 2
	if drop == '1' then
		call('UNLINK', docs, inherit, own)
		docs_size, inherit_size, own_size = 0, 0, 0
	elseif drop == '2' then
		for i = k, k + 2 do
			if sizes[i] > 0 then
				call('RENAME', KEYS[i], KEYS[i + 3])
			end
			sizes[i + 3] = sizes[i]
		end
		docs_size, inherit_size, own_size = 0, 0, 0
	end
	local n
	at, n = on('HSET', docs, first_put, 2)
	docs_size = docs_size + n
	local renews, first_renew = tonumber(ARGV[at]), at + 1
	for i = first_renew, first_renew + 2 * renews - 1, 2 do
		call('HSET', docs, ARGV[i], renewed[i])
	end
	at = first_renew + 2 * renews
	at, n = on('ZADD', inherit, at + 1, 2)
	inherit_size = inherit_size + n
	at, n = on('ZADD', own, at + 1, 2)
	own_size = own_size + n
	at, n = on('HDEL', docs, at + 1, 1)
	docs_size = docs_size - n
	at, n = on('ZREM', inherit, at + 1, 1)
	inherit_size = inherit_size - n
	at, n = on('ZREM', own, at + 1, 1)
	own_size = own_size - n
	if docs_size + inherit_size + own_size == 0 then
		more_sizes = more_sizes - call('HDEL', state, size_field)
		reply[#reply + 1] = c
	else
		more_sizes = more_sizes + call('HSET', state, size_field, docs_size .. ' ' .. inherit_size .. ' ' .. own_size)
	end
end
if at <= last_argument then
	at = on('HDEL', state, at + 1, 1)
end
for k = first_by, last_by do
	local by, field, entries, n = KEYS[k], ARGV[at], sizes[k]
	if ARGV[at + 1] == '1' then
		call('UNLINK', by)
		entries = 0
	end
	at, n = on('ZADD', by, at + 3, 2)
	entries = entries + n
	at, n = on('ZREM', by, at + 1, 1)
	entries = entries - n
	if entries == 0 then
		call('HDEL', state, field)
	else
		call('HSET', state, field, entries)
	end
end
if more_sizes ~= 0 then
	call('HSET', state, 'sizes', (tonumber(call('HGET', state, 'sizes') or 0) or 0) + more_sizes)
end
return reply

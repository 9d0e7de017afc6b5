-- Commits one step of a partition: all of it, or nothing if the partition is not
-- as the step was computed from.
--
-- KEYS  1 state, 2 config, then per collection: documents, inherit, own
-- ARGV  1 version expected, 2 version to set, 3 offset, 4 watermark,
--       5 rebuild ('' if none), 6 number of configurations n, then n pairs of
--       collection and configuration ('' to remove it); then per collection:
--         name, drop (1: documents and index go first; 2: the index goes first),
--         and seven counts with their values, in this order:
--         documents put (id, value), headers renewed (id, header),
--         inherit added (score, id), own added (score, id),
--         ids removed from the documents, from inherit, from own
-- Returns  {1} done; {0} the version is another; {-1, n} the n-th key is not of
--          its type; {-2, n} the n-th collection, or with 0 the configuration, is
--          not as it was left, or has not a document whose header is to be renewed.
local state, config = KEYS[1], KEYS[2]
local expected, version, offset, watermark, rebuild = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('HGET', state, 'version') ~= expected then
	return {0}
end

-- Everything is checked before the first write: nothing is rolled back.
local function kind(key)
	local t = redis.call('TYPE', key)
	return t.ok or t
end
local function size(k)
	return redis.call('HLEN', KEYS[k]) .. ' ' .. redis.call('ZCARD', KEYS[k + 1]) .. ' ' .. redis.call('ZCARD', KEYS[k + 2])
end
local t = kind(config)
if t ~= 'none' and t ~= 'hash' then
	return {-1, 2}
end
if redis.call('HLEN', config) ~= tonumber(redis.call('HGET', state, 'configs') or 0) then
	return {-2, 0}
end
local grows = false -- whether the step adds anything
for i = 8, 6 + 2 * tonumber(ARGV[6]), 2 do
	grows = grows or ARGV[i] ~= ''
end
local at = 7 + 2 * tonumber(ARGV[6])
local plan = {}
local c = 0
for k = 3, #KEYS, 3 do
	c = c + 1
	for j = 0, 2 do
		t = kind(KEYS[k + j])
		if t ~= 'none' and t ~= (j == 0 and 'hash' or 'zset') then
			return {-1, k + j}
		end
	end
	local name = ARGV[at]
	if size(k) ~= (redis.call('HGET', state, 'size:' .. name) or '0 0 0') then
		return {-2, c}
	end
	local p = {k = k, name = name, drop = ARGV[at + 1]}
	at = at + 2
	for part = 1, 7 do
		local count = tonumber(ARGV[at])
		local first = at + 1
		at = first + count * (part <= 4 and 2 or 1)
		grows = grows or part <= 4 and count > 0
		p[part] = {first, at - 1}
	end
	-- A header is renewed in front of a body that is there, and whole.
	p.renewed = {}
	for i = p[2][1], p[2][2], 2 do
		local old = p.drop ~= '1' and redis.call('HGET', KEYS[k], ARGV[i]) or ''
		local header = string.byte(old, 1) or 0
		if header < 17 or header > #old then
			return {-2, c}
		end
		p.renewed[i] = ARGV[i + 1] .. string.sub(old, header + 1)
	end
	plan[c] = p
end

-- A Redis that is full refuses a write that may take memory, if it is the first of
-- a script. What only removes must go through, or nothing would ever make room.
if not grows then
	redis.call('HDEL', state, '')
end
redis.call('HSET', state, 'version', version, 'offset', offset, 'watermark', watermark, 'rebuild', rebuild)
for i = 7, 6 + 2 * tonumber(ARGV[6]), 2 do
	if ARGV[i + 1] == '' then
		redis.call('HDEL', config, ARGV[i])
	else
		redis.call('HSET', config, ARGV[i], ARGV[i + 1])
	end
end
if ARGV[6] ~= '0' then
	redis.call('HSET', state, 'configs', redis.call('HLEN', config))
end

local function chunked(command, key, span)
	local from, last = span[1], span[2]
	while from <= last do
		local to = math.min(from + 3999, last)
		redis.call(command, key, unpack(ARGV, from, to))
		from = to + 1
	end
end
for _, p in ipairs(plan) do
	local docs, inherit, own = KEYS[p.k], KEYS[p.k + 1], KEYS[p.k + 2]
	if p.drop == '1' then
		redis.call('UNLINK', docs, inherit, own)
	elseif p.drop == '2' then
		redis.call('UNLINK', inherit, own)
	end
	for i = p[2][1], p[2][2], 2 do
		redis.call('HSET', docs, ARGV[i], p.renewed[i])
	end
	chunked('HSET', docs, p[1])
	chunked('ZADD', inherit, p[3])
	chunked('ZADD', own, p[4])
	chunked('HDEL', docs, p[5])
	chunked('ZREM', inherit, p[6])
	chunked('ZREM', own, p[7])
	local now = size(p.k)
	if now == '0 0 0' then
		redis.call('HDEL', state, 'size:' .. p.name)
	else
		redis.call('HSET', state, 'size:' .. p.name, now)
	end
end
return {1}

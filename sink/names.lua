-- Scans the names of collections: of those that have documents, or of those that are
-- configured. It leaves out names with a dot or a dollar sign, which clients cannot use.
--
-- KEYS  1 state, 2 config
-- ARGV  1 which names (state or config), 2 cursor, 3 how many fields to examine
-- Returns  {head, next cursor, the names with a space between, server}: head as in head.lua,
--          without a collection; server names the process of Redis that knows the cursor ('' if
--          unknown).
local state, config = KEYS[1], KEYS[2]
local which, cursor, count = ARGV[1], ARGV[2], ARGV[3]
local reply_head = head(state, config)
local key, match, skip = config, '*', 0
if which == 'state' then
	key, match, skip = state, 'size:*', 5
end
local page = redis.call('HSCAN', key, cursor, 'MATCH', match, 'COUNT', count)
local names, n = {}, 0
for i = 1, #page[2], 2 do
	local name = string.sub(page[2][i], skip + 1)
	if not string.find(name, '.', 1, true) and not string.find(name, '$', 1, true) then
		n = n + 1
		names[n] = name
	end
end
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
return {reply_head, page[1], table.concat(names, ' '), server}

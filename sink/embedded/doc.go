// Package embedded is a Redis inside this process: what lapse serve uses if it is given no
// other. It keeps everything in memory and forgets it at the end; lapse rebuilds it.
//
// It speaks the protocol of Redis, and answers the commands that lapse uses, its Lua scripts
// included, as Redis does: one after the other. It has some more commands, for people who look into it
// with redis-cli, but no expiry of keys, no transactions, no persistence and no users. Run the tests of the store on it
// and on a redis-server.
//
// It listens nowhere: [Server.Dial] connects within the process. [Server.Listen] opens an address to
// clients that give a password. For those it bounds their number, the time until they give the
// password, and, before it takes memory, what they announce. It closes the connection of an HTTP request.
//
//	server.go     accepts connections, and runs one command at a time
//	session.go    one connection: its password, its time limits, its commands
//	protocol.go   reads commands, within limits
//	pipe.go       the connection within the process
//	commands.go   the commands by name; hashes.go, sortedset.go, keys.go: what they do
//	scripts.go    runs Lua scripts
//	dict.go       a map that can be scanned in pages
//	sortedset.go  members in the order of their scores, and the commands on them
//	reply.go      what a command answers
//
// # What it costs
//
// Reading or changing a field or a member, counting a range of scores or names and finding its first
// member all take a number of steps that grows with the logarithm of the size.
//
// # Scans
//
// HSCAN and SCAN return as many entries as COUNT says, or fewer at the end. They go through
// the entries in the order of a hash of their names, and the cursor is the hash of the next
// one. So a scan returns each entry that is there from its beginning to its end exactly
// once, whatever else comes and goes. A cursor means nothing to another process: the
// run_id of INFO tells processes apart.
package embedded

// Package store writes documents to Redis. It is for the processor; an application only reads,
// with sink.Reader.
//
// The owner of a [Shard] loads its state, takes it over, and then commits steps. Each commit is
// fenced by the version of the state that the step was computed from:
//
//	store.go        New: the store of one shard; the errors
//	shard.go        Shard: what all calls share
//	load.go         Load: the state and the configurations
//	fence.go        Take, Refuse: a new version, so that commits of the former owner fail
//	clear.go        Leftovers, Clear: finds and removes all keys of a shard, before a rebuild
//	fill.go         Fill: writes documents of a snapshot into a shard that was cleared
//	count.go        Count: ends that, and notes the sizes of the collections
//	verify.go       Verify: the version, and whether Redis still has what was committed
//	read.go         Read: the documents that a batch of messages touches
//	due.go          Due: the documents that are due
//	between.go      Between: documents in the order of an index
//	changes.go      CollectionChanges: what a step does to a collection
//	commit.go       Commit: one step, all of it or nothing
//	copy.go         Copy: reads documents, some at a time, of a shard that goes on, for a snapshot
//	clock.go        Clock: an instant that the clock of the shard's server has reached
//	stamp.go        Stamp: when the log stored a message
//	identity.go     Identity: which Redis this is
//	server.go       Check, Ping, Time, Memory, Reads: the server of the shard
//	permissions.go  part of Check: whether lapse's user may run what lapse needs
//	rewrite.go      Rewrite: the servers write their files anew, and lose the bytes of what was removed
//
// A file that runs a Lua script has it beside it. A script compares the version and moves data; it
// knows no rule about TTLs. The layout in Redis is described in sink/internal/layout.
package store

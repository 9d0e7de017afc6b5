// Package store writes documents to Redis. It is for the processor; an application only reads,
// with sink.Reader.
//
// The owner of a [Shard] loads its state, takes it over, and then commits steps. Each commit is
// fenced by the version of the state that the step was computed from:
//
//	shard.go        New: the store of one shard; the errors; what all calls share
//	load.go         Load: the state and the configurations, with the stamps of the log. Take, Refuse: a new
//	                version, so that commits of the former owner fail
//	clear.go        Leftovers, Clear: finds and removes all keys of a shard, before a rebuild
//	fill.go         Fill: writes documents of a snapshot into a shard that was cleared. Count ends that
//	verify.go       Verify: the version, and whether Redis still has what was committed
//	read.go         ReadDocuments: the documents that a batch of messages touches
//	ranges.go       Due: the documents that are due. Between: documents in the order of an index
//	commit.go       Commit: one step, all of it or nothing. CollectionChanges: what it does to a collection
//	copy.go         Copy: reads documents, some at a time, of a shard that goes on, for a snapshot
//	clock.go        Clock: an instant that the clock of the shard's server has reached
//	server.go       Check, Ping, Time, Memory, Reads, Identity: the server of the shard, and what its user may run
//	rewrite.go      Rewrite: the servers write their files anew, and lose the bytes of what was removed
//
// A Lua script stands beside the file that runs it. A script compares the version and moves data; it
// knows no rule about TTLs. The layout in Redis is described in sink/internal/layout.
package store

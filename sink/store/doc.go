// Package store writes documents to Redis. It is for the processor; an application only reads,
// with sink.Reader.
//
// The owner of a [Shard] loads its state, takes it over, and then commits steps. Each commit is
// fenced by the version of the state that the step was computed from:
//
//	load.go    Load: the state and the configurations
//	fence.go   Take, Refuse: a new version, so that commits of the former owner fail
//	verify.go  Verify: the version, and whether Redis still has what was committed
//	read.go    Read: the documents that a batch of messages touches
//	due.go     Due: the documents that are due
//	scan.go    Scan: a part of a collection, to build its index
//	commit.go  Commit: one step, all of it or nothing
//	clear.go   Clear: removes a shard before a rebuild
//	copy.go    Copy: reads documents, some at a time, of a shard that goes on, for a snapshot
//	fill.go    Fill: writes documents of a snapshot into a shard that was cleared
//	count.go   Count: ends that, and notes the sizes of the collections
//
// rewrite.go lets the servers write their files anew, so that they lose the bytes of what was removed.
//
// Each file has its Lua script beside it. A script compares the version and moves data; it
// knows no rule about TTLs. The layout in Redis is described in sink/internal/layout.
package store

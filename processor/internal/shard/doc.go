// Package partition owns partitions: it takes a partition over, and then applies its part of the
// log to Redis, step by step.
//
//	partition.go  the loop: what the owner does next, and what it does after a failure
//	takeover.go   how a partition becomes this process's, step by step
//	examine.go    reads what tells from where the partition can go on
//	verdict.go    decides that, by pure functions: what is stored, a snapshot, the log, or not at all;
//	              verdict_events.go compares the stream of events with what is remembered of it
//	anew.go       carries out what a person has decided about a refusal, while no owner runs
//	step.go       reads the documents that a batch names, and decides
//	control.go    decides about configurations and drops
//	reap.go       looks up documents before they are due, and adds those that are
//	warn.go       publishes the warnings that are due
//	share.go      how much is reaped at once, beside the reads and writes that come
//	finish.go     finishes every decision: verify, publish, commit, send outcomes
//	settle.go     builds indexes, and ends what had to wait for due documents
//	recording.go  takes a snapshot beside all that, and reload.go loads one after a takeover
//	status.go     what the owners tell the rest of the process
//
// There is one pipeline: whatever changes the stored partition goes through finish. There is one way to
// recover: after any failure the owner forgets what it knew, and takes the partition over
// as if from another process.
//
// This package writes to Redis, and no other of the processor. It publishes through announce,
// and reads the log through the inboxes of package feed. Only a partition's own goroutine
// touches a [Partition].
package shard

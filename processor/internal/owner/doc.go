// Package owner folds one partition: it takes the partition over, and then applies its part
// of the log to Redis, step by step.
//
//	partition.go  the loop: what the owner does next, and what it does after a failure
//	takeover.go   how a partition becomes this process's, step by step
//	step.go       reads the documents that a batch names, and decides
//	control.go    decides about configurations and drops
//	reap.go       looks up documents before they are due, and adds those that are
//	finish.go     finishes every decision: verify, publish, commit, send outcomes
//	settle.go     builds indexes, and ends what had to wait for due documents
//	snapshot.go   takes a snapshot beside all that, and loads one after a takeover
//
// There is one pipeline: whatever a step decides goes through finish. There is one way to
// recover: after any failure the owner forgets what it knew, and takes the partition over
// as if from another process.
//
// This package, and reload for it, write to Redis, and no other. It publishes through announce,
// and reads the log through the inboxes of package feed. Only a partition's own goroutine
// touches a [Partition].
package owner

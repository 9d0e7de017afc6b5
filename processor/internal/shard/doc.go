// Package shard owns a shard: one loop reads its log, and applies it to Redis step by step. The files, in the order
// in which a message goes through them:
//
//	owner.go      the loop: what the owner does next, and what it does after a failure
//
//	read.go       reads the log once, decodes its messages, and puts them into the queue
//	pull.go       requests the messages from NATS, long before they are read
//	queue.go      holds the messages until the owner has applied them
//	clockguard.go holds the log up at a message whose stamp is too far ahead of other clocks
//	ticker.go     wakes the owner at a deadline, and appends a tick where the log is silent then
//	              (sleep_linux.go, sleep_other.go: for less than a millisecond)
//
//	lookup.go     reads the documents that a batch names, and looks up those that will be due next
//	step.go       one step: look up, decide (package fold), add what is due, publish, commit
//	control.go    does the same for a configuration or a drop; ends what waited until no document was due
//	publish.go    publishes each output once, behind a fence, and knows which may be published already; where this
//	              region follows the first one, waits for the outputs of that
//	commit.go     finishes every decision: verify, publish, commit, send the outcomes, trace
//	outcomes.go   sends clients the outcomes, and again what no subscriber got
//	checkpoint.go stores once a second up to where all outputs are published and committed
//
//	reap.go       adds the documents that are due to a step
//	pace.go       limits how many a step reaps of those that a configuration has made due
//	warn.go       publishes the warnings that are due
//	making.go     makes the property indexes that were declared when there were documents already
//
//	takeover.go   makes the shard this process's, at the start and after every failure
//	examine.go    reads what tells from where the shard can go on
//	verdict.go    decides that, by pure functions: from what is stored, a snapshot, the log, or not at all
//	verdict_events.go  compares the stream of events with what is remembered of it
//	beginanew.go  carries out what a person has decided about a refusal, while no owner runs
//
//	snapshot.go   takes and loads snapshots beside the steps: reload.go loads one
//	status.go     what the owner tells the rest of the process
//
// There is one pipeline: each message and each expiry goes through finish, which publishes before it commits. While
// many documents are due, the owner publishes a step beside the commit of the one before, and beside the look-up for
// the one after (following). There is one way to recover: after any failure the owner forgets what it knew, and takes
// the shard over as if from another process.
//
// No other package of the processor writes to Redis. Only the owner's goroutine touches an [Owner], but for its
// [Status] and its [Queue].
package shard

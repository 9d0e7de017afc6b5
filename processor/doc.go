// Package processor applies the log to Redis, and publishes the events that follow from it.
//
// A shard is a log and its fold. A Processor applies one shard: one loop reads the log, and what is in Redis
// (documents, index, configurations, and how far the log was applied) is a function of the log so far. Documents may be
// divided into several shards. Then NATS maps a write to the log of its shard, and every log sources the stream of
// configurations. So each shard has each configuration, in an order of its own, and decides alike: the etag of a
// configuration is its sequence in that stream. Shard 0 alone rejects a configuration, and answers its client when all
// shards have applied it (shard/outcomes.go).
//
// Call [New] and then [Processor.Run]. [Processor.Ready] tells whether the log is applied.
// This package only wires the rooms under processor/internal and watches them; the rooms do the work:
//
//	streams    provisions the log, the stream of events, the bucket of checkpoints; tells whether the
//	           log is the one that the stored state was computed from; makes requests over NATS
//	fold       decodes messages, and decides: message, state and log time → outputs, outcomes,
//	           changes; pure
//	snapshot   stores snapshots of the shard
//	shard      the flow: it reads, looks up, lets fold decide, publishes, commits and reaps; it takes the shard over
//	region     follows another region
//	retention  orders snapshots, and truncates the log behind them
//
// Beside them, backoff waits after failures, and crash names the points at which tests interrupt all that. Each room
// imports only rooms above it. Every rule about TTLs is in ttlrules, and Redis is behind sink.
//
// # What happens when a write arrives
//
// Each step has a file of its name in package shard, but for those of package fold:
//
//  1. read.go reads it from the log, and computes its log time: the greatest stamp of the log so far.
//  2. fold/decode.go decodes it, by its subject, which is parsed once (wire.LogSubject).
//  3. queue.go holds it until the owner takes a batch. Meanwhile the reader goes on, until the queue is full.
//  4. lookup.go reads in one round trip the stored documents that the batch names. Documents that will be due soon
//     were looked up before.
//  5. fold/decide.go applies the batch. Where a write finds an expired version, the event of that comes first.
//  6. reap.go adds the documents that are due by now.
//  7. publish.go publishes the outputs, in their order, behind the fence of the owner, and waits for the
//     acknowledgements. This comes before the commit, so an event is never lost. After a crash in between, the next
//     owner has the same outputs again, and leaves out those that the stream has (publish.go). If many more
//     documents are due, the step before is committed and the next ones are looked up meanwhile.
//  8. commit.go commits documents, index, offset, and the place of the last output in the stream of events, in one
//     script that checks the version. So each message takes effect once, and a former owner changes nothing.
//  9. outcomes.go sends the outcomes, and checkpoint.go stores a checkpoint once a second. Both may be lost: a client
//     can read, and without a checkpoint the next owner reads more of the stream.
//
// A configuration or a drop goes the same way, as a step of its own (control.go). So do the rules of the log: which
// collections exist, and where outcomes may go. They are a message of the log (wire.LogRules), which the owner appends
// after a takeover if the options differ from the last ones. So every replay decides by the rules that stood at that
// place of the log, and a region that follows another one has them with the messages that it decides. After a step the
// owner publishes the warnings that are due by then (warn.go). They follow from what is committed, so no commit comes
// after them; only a checkpoint waits for them. If the log is silent when a document is due, the ticker appends a tick,
// and the owner steps without messages (ticker.go). The steps of a takeover, and why they have that order, are at
// takeOver in takeover.go.
//
// # Invariants
//
//   - S1: The state of a shard at an offset, and its outputs up to there, follow from the log alone (fold).
//   - S2: Log time is the greatest stamp so far. No clock of a process decides anything;
//     clocks only stop a stamp that leads all of them (shard/read.go, clockguard.go).
//   - S3: An output is published before the commit of the step that it belongs to (shard/commit.go).
//   - S4: A commit takes effect as a whole, offset included, and only on the version that
//     its step was computed from (sink).
//   - S5: A publication is stored only behind the newest fence of the shard, and no output
//     without those before it (shard/publish.go, sink/events).
//   - S6: An output that may have been published before is published only if the stream does
//     not have it. For that the owner reads the tail of the stream once, from its checkpoint to
//     its fence (shard/publish.go, N1 to N3).
//   - S7: After any failure the owner takes the shard over anew. There is no other way
//     to recover, and no other way to begin (shard/takeover.go).
//   - S8: Nothing is removed unless the log is known to reach back to rebuild it, or to a
//     snapshot that was verified. A state that cannot be continued is refused and kept, until
//     a person decides (shard/verdict.go).
//   - S9: A document leaves the index only with the commit after its event. So the index
//     is the queue of the events to be published (shard/lookup.go).
//   - S10: An event is published only when readers have reached its deadline, so no reader
//     sees a document after its event (shard/lookup.go, readersAt).
//   - S12: A takeover compares Redis, the log, the stream of events, the checkpoint and the
//     snapshots with each other, and goes on only where what remains is the whole (shard/verdict.go).
//     Nobody applies the log over a gap in its middle before a person has decided (streams/gaps.go).
//
// # Property indexes
//
// A collection may declare property indexes. Their entries follow from the bodies of its documents (X1 and X2 in
// package fold), so nothing of them is in the log, in the events or in a snapshot. The commit that changes a document
// changes its entries: a write to such a collection reads the stored body, and so does the look-up of the documents
// that are due. The state has how many entries each index has; where that is not so, the shard is damaged as with the
// other indexes.
//
// An index that is declared while there are documents is made beside all else (shard/making.go): the owner passes the
// documents in the order of their indexes, some at a time, and commits their entries with the place up to which it has
// come. A takeover goes on from there. After the load of a snapshot, all indexes are made. What is written or renewed
// meanwhile gets its entries at once, as it may move past that place. The commit of a configuration without an index,
// or of a drop, removes its entries.
//
// # Another region
//
// A region may follow another one, which is the first ([Options].Follow). NATS mirrors the log, the events and the
// snapshots, and the owner here folds the mirrored log as that of the first region does, by S1 to the same state.
// It appends and publishes nothing: where the owner of the first region publishes, it waits until
// the mirror of the events has that output, and then commits (S3, shard/publish.go). What no mirror brings,
// the checkpoints and the records of snapshots, the follower adopts, once its mirrors have what they name (M1 to M3
// in processor/internal/region). So a promotion ([Promote]) only makes streams of the mirrors. It gives the log
// another identity, and notes in its metadata the logs that it continues (wire.Region); a region that was
// superseded refuses, until [Demote] has removed its streams. What one region has to change in another, it asks lapse
// there ([AnswerRegions]).
//
// Types have invariants of their own, with a name where the type stands; numbers have C of the reader and N of the
// publications (shard), O of the snapshots, T of the retention, X of the property indexes (fold), P of the stored shard
// (sink/store).
//
// # A refused shard
//
// An examination ends with a verdict, which is a value: to go on from a place, or to refuse (judge in
// shard/verdict.go). Run ends with a [Refusal] if it would be wrong to go on with the shard; by then it has
// written nothing that the refusal is about. Any other error is a failure, and may be over at the next try. The
// process stays up and calls Run again every few seconds.
// Such a Run examines before it writes: it appends no tick, stores no fence, and creates no stream
// that this Processor has seen before. (Where a log with replicas seems to lack its end, it asks the
// leader with a tick.) So the shard goes on as soon as a person has restored what is missing. Until
// then its owner keeps the lease, since the examination of another process would say the same. A person
// who gives up what is missing stops the processes, and runs [Processor.BeginAnew] with the [Loss] that the
// refusal names. A decision is one write, to the checkpoint or to the log, which the next takeover goes by.
//
// # Guarantees
//
// Where each guarantee of lapse is enforced, and tested beside the TestG… of package
// integration:
//
//	G1   acknowledged writes take effect once    S1 S4 S7   TestG1_G3_CrashAtEveryPoint
//	G2   no read after the deadline              S10        TestG2_ReadersAreNotBehindEvents
//	G3   one event per expired version           S3 S5 S6   TestG3_HeldUpOnTheWayToTheStream
//	G4   the log decides races                   S1 S2      TestG4_ClockLead, TestG4_LogTime
//	G5   expired is final                        S1         TestG5_ARaiseBringsNothingBack
//	G6   a configuration costs the same          fold       TestG9_VeryManyCollectionsCostAStepNothing
//	G7   Redis is disposable                     S7 S8      TestG7_Flushed, TestG7_DamagedAndTruncated,
//	                                                        TestG7_DamagedSnapshots
//	G8   bad input ends as a rejection           fold       TestG8_EveryKindOfBadInput
//	G9   traffic goes first                      pace.go    TestG9_DrainingHoldsUpNothing, TestG9_ReapingGivesWayToReads
//	G10  what has expired is gone                S9         TestG10_NothingIsLeftInAnyFile
//	G11  health tells the truth                  monitor.go TestKept (health-tells-the-truth.plan), TestG11_StreamGone
//	G12  what NATS loses is found                S12        TestG12_Matrix, TestG12_CrashAtEveryPoint,
//	                                                        TestG12_ARefusedShardHoldsUpNothingElse,
//	                                                        TestG12_AGapInTheLog
//
// The same with several shards: TestG1_Shards, TestG8_ShardsGetWhatIsNotMapped,
// TestG7_ConfigurationsLostTheirEnd, and TestAll_Faults in package integration.
//
// # Words
//
// Each is used in one sense:
//
//	log         the stream of writes and configurations of a shard. wire.Log has its names,
//	            streams.Log reads it and knows its identity, events.Source names it in its outputs
//	log time    the greatest stamp of the log so far
//	shard       a log, and its fold: documents, indexes and configurations in Redis
//	offset      the log sequence up to which the log is applied
//	watermark   log time at the offset
//	position    a sequence of the log, with the log time there
//	deadline    the instant from which a document is expired
//	due         past its deadline by log time, and not yet reaped
//	reap        remove a due document, after its event was published
//	event       the message that a document has expired
//	warning     the message that a document will expire
//	output      what the log makes lapse publish: an event, a warning or a rejection
//	outcome     the answer to the client that has published a message
//	publish     store an output in the stream of events
//	commit      change the stored shard and its offset in one script
//	fence       what refuses a former owner: the version in Redis, a message in the events
//	checkpoint  a position up to which all outputs are published, and places in the stream of events
//	place       a sequence of the stream of events, and which message is there
//	tail        what the stream of events has behind a place
//	take over   become the owner of a shard
//	rebuild     apply the log again, because the stored shard lacks documents; they are
//	            complete again at the offset Rebuild
//	owner       the process, and in it the goroutine, that applies a shard
//	region      servers of NATS and Redis with a JetStream domain of their own, and the processes on them
//	first       of several regions the one that has the log; the others follow it and have mirrors
//	lease       which process is to own; see Lease, and package lease
//	entry       a value of a document and its id, in one of the property indexes of its collection
//	generation  a dropped collection whose due documents still need their events
package processor

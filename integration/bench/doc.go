// Command bench compares lapse with alternatives, on one machine and in one run.
//
//	make bench                                        # the table, three rounds, 20 minutes
//	go run ./integration/bench -rows ingest,due -n 30000 -rounds 1
//	go run ./integration/bench -json > figures.json   # with the figures of each round
//	go run ./integration/bench -scale                 # and the cost as the work grows
//	go run ./integration/bench -rows design           # the rows that show what a change of the design gains
//	go run ./integration/bench -rows ingest -profile profiles
//
// Run it from the folder of the module. It needs Go and redis-server; the rows late and messages need
// beanstalkd (Debian package beanstalkd) too.
//
// With -lapse it measures a binary that is already built. It reads what that stores with the package sink
// that it was built with, so build both from the same commit. To compare two commits, build both programs of
// each, and let the two take turns:
//
//	go build -o before/ ./cmd/lapse ./integration/bench       # at the one commit
//	go build -o after/ ./cmd/lapse ./integration/bench        # at the other one
//	for round in 1 2 3; do
//		before/bench -lapse before/lapse -rows design -rounds 1
//		after/bench -lapse after/lapse -rows design -rounds 1
//	done
//
// # What holds for all rows
//
// Each figure has servers of its own: nats-server (built from the version in go.mod, with
// JetStream on disk and no other settings), redis-server (without persistence) and lapse
// serve, each a process on 127.0.0.1. This program is the only client.
//
// In each round every side has its turn, and each round begins with another side. The
// table has the medians over the rounds, of the ratios too. A ratio above one means that
// lapse is better, except where the goal is an upper limit: there it is lapse's figure
// divided by the other. Up to 5,000 documents are written to the same servers first, as a
// warm-up.
//
// A document is a JSON object of exactly 256 bytes with random text from a fixed seed, the
// same bytes for every side. Messages go to lapse and to NATS KV in the same way, unless a
// row says otherwise: asynchronously on one connection, at most 8,192 without an
// acknowledgement, and each acknowledgement is checked.
//
// The bench verifies the work that it times. lapse must store all documents: they are
// counted, counted in the index, and one in a hundred is read and compared. Each event must
// come once, with its document, and not before its deadline. If lapse fails that, the run
// fails after the table; if another side does, a note says so. Notes go to standard error
// and into the JSON. They also have the CPU time of each process.
//
// # Row by row
//
// ingest: documents a second, from the first publication until the last is readable and in
// the index. For that the bench calls sink.Reader.Count every 5 ms once all are stored.
// They are published in one fast batch (the server acknowledges 500 messages at a time),
// and in a second figure with an acknowledgement each. NATS KV: from the first publication
// to the last acknowledgement, after which a key is readable. The bench publishes what
// KeyValue.Put publishes, with the Nats-TTL header, since that function is synchronous; a
// bucket does not allow fast batches. Every document has a TTL.
//
// byhand: as ingest, beside what a person would write by hand for the same job, without the guarantees of
// lapse: a stream on disk, and one consumer in Go that acknowledges all messages up to one (AckAll). For each
// 500 messages, or what came within 10 ms, it sends a pipeline with an HSET of each document and a ZADD of its
// deadline (the message's stamp plus the TTL in the document), and then acknowledges the last. The figure ends
// when the hash and the sorted set have all documents. The publisher is the same for both.
//
// late: as lateness, for 10 s at 5,000 and at 500 a second, beside beanstalkd without its log on disk: a worker
// reserves and deletes jobs one at a time, and a job is late from the instant of its put plus its delay. The row
// also has the CPU time of a document that is written and expires, of each process of lapse, and how many
// scripts ran in Redis for it.
//
// lateness: documents with a TTL of 5 s are written at 5,000 a second for 20 s, so that most
// of the time as many expire as are written. lapse: when a subscriber (an ordered JetStream
// consumer) has the event, less the event's expiredAt, both by the clock of this machine.
// NATS KV: when a watcher has the marker, less the server's stamp of the key plus the TTL.
// Redis: when a subscriber has the notification of __keyevent@0__:expired, less the
// deadline. Redis does not report when it stored a key, so keys are set with PXAT. The tuned
// Redis has hz 500 and active-expire-effort 10. "The best of the three" is the side with
// the lowest p99 of the round. After two minutes an event counts as missing, not as late.
//
// due: TTLs are whole seconds from the write, in lapse and in NATS KV, so two documents
// that are written at different times do not fall due at one instant. Therefore 10,000
// documents are written at the beginning of each second, with a TTL that is one second
// shorter each time. All deadlines then lie within the time that 10,000 writes take (see
// the notes). The rate is all events over the time from the first deadline until the
// subscriber has the last event.
//
// changed: as due, but lapse's documents never expire until a changed default makes all of them
// due. The rate is all events over the time from that instant.
//
// change: from the publication of a default TTL until reads of eight documents, one after the other, show it.
// Twenty changes move the deadlines. The first five are the warm-up, and the median of the
// others counts. A last change makes every document expired, and has its own figure, as
// reaping begins at the same moment. Redis: PEXPIRE of every key, 500 in a pipeline and
// four pipelines at a time, until the last reply.
//
// reads: sink.Reader.Get against HGET of go-redis on one hash with the same documents, 64
// at a time, ids at random, and every body is compared. The bench repeats and counts a read
// that is not available, and one of them fails the run.
//
// reaping: 16 readers make 2,000 reads a second of documents that do not expire: first
// alone, then while a changed default makes 300,000 others due, until the last of their
// events is stored. If one read delays the next, that delay counts too. lapse is compared
// with itself.
//
// memory: the growth of used_memory for each document, after lapse has stopped, against
// SET key value PX with the key orders:<id>.
//
// rebuild: FLUSHALL while lapse runs, until all documents are counted again. The rate counts
// from lapse's first write, since lapse checks an idle Redis only once a second. lapse must
// publish no event again.
//
// startup: lapse serve with embedded servers on the data of an earlier run, from the start
// of the process until /readyz answers 200. Then all documents must be there.
// With -gone so many other documents have come and expired before, and lapse has taken a
// snapshot since.
//
// shards: the CPU time of a document, of lapse and its servers together, with four shards against one: written
// as fast as NATS acknowledges them, and written and expired at 5,000 a second. With -masters 3 they are on a
// Redis Cluster.
//
// queries: documents in groups of 100, with an index of the group. As ingest in a fast batch, with that index and
// without one; the growth of used_memory for each of these documents. Then, with 10 documents for 3 of -n: pages of 100 by
// the list by deadline, from the first on, in turn with queries for all documents of a group at random; and how many
// documents a second come into an index that is declared once they are all there.
//
// messages: as lateness, with documents that have a target, from which each subscriber receives the
// document at its time; and the resident memory of all processes of a side with -n messages that wait, less
// that without. beanstalkd (Debian package beanstalkd, without its log on disk): a worker reserves and
// deletes jobs one at a time. NATS schedules: Nats-Schedule with @at, and an ordered consumer of the
// target.
//
// cost: the CPU time of each process for a document that is written and expires, at some rates, sizes and
// numbers of shards, beside the formula of deploy/docs/scale.md.
//
// snapshots: as lateness, beside 300,000 documents that do not expire, while lapse takes one
// snapshot after another. lapse is compared with itself.
//
// scale: ingest, due and lateness for a tenth of the documents, for all, and for ten times
// as many (lateness: beside so many that do not expire); for bodies of 100 B to 100 kB, fewer
// if they are larger. One round, lapse alone.
//
// design: stands for the rows late, ingest, byhand, due, changed, reaping, rebuild and shards, each with a size
// of its own, which -n changes in proportion. Three rounds take about 20 minutes.
//
// # Profiles
//
// With -profile the processor runs in a child of this program, without the rest of lapse
// serve. For each round of ingest, lateness, due, reaping and rebuild the folder then has a
// CPU profile of the timed part: go tool pprof -top folder/ingest-1.pprof.
package main

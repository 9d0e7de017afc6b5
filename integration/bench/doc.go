// Command bench holds lapse against what is used instead: both on the same machine, in
// the same run, in turn.
//
//	make bench                                        # the table, three rounds
//	go run ./integration/bench -rows ingest,due -n 30000 -rounds 1
//	go run ./integration/bench -json > figures.json   # with the figures of every round
//	go run ./integration/bench -scale                 # and the cost as work grows
//	go run ./integration/bench -rows ingest -profile profiles
//
// It needs Go and redis-server, is run from the folder of the module, and takes about
// twenty minutes as it comes.
//
// # What all rows have in common
//
// Every figure is of servers that were started for it and for nothing else:
// nats-server (built from the module's own dependency, JetStream on disk, otherwise as
// shipped), redis-server (nothing on disk, otherwise as shipped unless said), and
// lapse serve; each a process of its own on 127.0.0.1. This program is the load client,
// and the only one. The sides have their turns within a round, another one first each
// time; what is printed is the median over the rounds, of the ratio too: it is not the
// ratio of the medians. A ratio above one means that lapse is the better, except where
// the goal is an upper limit: there it is lapse's figure over the other's. Before what
// is timed there is a warm-up on the same servers, up to 5,000 documents that are
// written (and, where that is timed, expire).
//
// Documents are JSON objects of exactly 256 bytes with random text from a fixed seed,
// the same bytes on every side. Messages are published in the same way to lapse and
// to NATS KV, unless said: asynchronously, one connection, at most 8,192 on their way,
// every acknowledgement looked at.
//
// What is timed is verified. Everything written has to be stored: lapse's documents
// are counted, counted in the index, and one in a hundred read and compared. Every
// event has to come, with its document in it, once, and not before its deadline. Where
// lapse fails that, the run fails, after the table; where another side does, it is noted.
// Notes, which go to standard error (and into the JSON), also have the CPU time
// that each process took.
//
// # Row by row
//
// ingest: documents a second, from the first publish until the last is readable
// and in the index, as sink.Reader.Count says, which is asked every 5 ms once all are
// stored. They are published in the best way that lapse's log offers, one fast batch
// (of which the server acknowledges 500 messages at a time), and besides, as a figure of
// its own, as to NATS KV: each with an acknowledgement. NATS KV: from the first publish to the last
// acknowledgement, with which a key is readable. It is given what KeyValue.Put publishes
// plus the Nats-TTL header, since its own API is synchronous, and with Create checks the
// revision besides; the stream of a bucket takes no fast batches. Both have a TTL on each
// document.
//
// lateness: documents are written at 5,000 a second for 20 s with one TTL of 5 s, so that
// for most of the time as many expire as are written. For lapse, an event's lateness is
// the instant at which a subscriber (an ordered JetStream consumer, so what it
// gets is stored) has it, less the event's expiredAt; both are of this machine's
// clock. For NATS KV, it is the instant at which a watcher has the marker, less
// the server's own stamp of the put and the TTL. Redis does not say when it took a key,
// so keys are set with PXAT, which is what PX becomes inside the server: its deadline is
// known exactly. The notification is that of __keyevent@0__:expired. The tuned Redis
// has hz 500 and active-expire-effort 10. "The best of the three" is that of the
// round with the lowest p99. What has not come after two minutes counts as missing,
// not as late.
//
// due: TTLs are whole seconds from the write, in lapse as in NATS KV, so no two
// documents written at different times fall due at one instant. Therefore all sides
// write 10,000 documents at the beginning of each second, with a TTL that is shorter by a
// second each time; all deadlines then lie within as long as 10,000 writes take
// (the notes say how long that was). The rate is all events over the time from the first
// deadline to the last event at the subscriber. Redis gets one deadline per burst. Its
// notifications are of the key alone, and are lost on whoever is not connected.
//
// change: the default TTL is published (that is the beginning), and one document of each
// partition is read, over and over, until all go by it. Twenty changes move the
// deadlines, the first five of which are the warm-up; the median counts. A last one
// makes every document expired, and is reported by itself, as reaping begins at the
// same moment. Plain Redis: PEXPIRE of every key, 500 in a pipeline and four pipelines at
// a time, until the last reply.
//
// reads: sink.Reader.Get against HGET of go-redis on one hash with the same documents,
// 64 at a time, ids at random, every body compared. A read that is refused (not
// available) is repeated, counted, and fails the run at its end.
//
// reaping: 2,000 reads a second by 16 readers, of documents that do not expire; at first
// alone, then while a changed default makes 300,000 others due, until the last of their
// events is stored (lapse takes its time over that, as somebody reads). A read's time
// runs from when it was to begin, if the one before has held it up. There is no other
// side: it is about one and the same lapse.
//
// memory: the growth of used_memory over the number of documents, after lapse has been
// stopped; against SET key value PX with the key orders:<id>.
//
// rebuild: FLUSHALL under a running lapse, until all documents are counted again. The
// rate is from when lapse has begun to write, as it looks at an idle Redis once a second;
// the whole time stands beside it. Events that were sent before must not be sent again.
//
// startup: lapse serve without --nats and --redis, on the data of a run before, from the
// start of the process until /readyz says so; then everything has to be there.
//
// scale: the first three rows for a tenth of the documents, for all, for ten times as
// many (lateness: beside as many that do not expire); for 1, 16 and 64 partitions; for
// bodies of 100 B to 100 kB, fewer of them the larger they are. One round, against
// nothing.
//
// # Profiles
//
// With -profile lapse's processor runs in a child of this program, without the rest of
// lapse serve, and a CPU profile of each timed part of ingest, lateness, due, reaping
// and rebuild is left in the folder: go tool pprof -top folder/ingest-1.pprof.
package main

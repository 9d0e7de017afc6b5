// Package backup takes and restores backups: [Take], [Scan], [Contents.Restore]. A backup is one file with everything
// that lapse keeps in JetStream. Redis is not in it, because lapse builds that from the log; nor are
// the members and their leases.
//
//	file.go      the format of the file: a tar archive whose entries have hashes, so that an error says
//	             where a file is damaged
//	server.go    the requests to JetStream. nats-server sends a stream as an archive, and makes a
//	archive.go   stream of one: with the same sequences and stamps, but a new time of creation
//	take.go      takes a backup while lapse runs
//	scan.go      verifies a file, and finds out where each log is to end
//	until.go     rewrites a stream so that it has what its log has caused up to its end
//	checkpoint.go what a backup needs of checkpoints and of the records of snapshots
//	restore.go   restores a file into empty servers
//
// # A backup is the state at the end of its logs
//
// Its parts are read one after the other, while clients write and lapse works:
//
//  1. The snapshots. The records of the shards are read before and after. Objects that both
//     name were there all the time. What they name is not later than the logs, which come next.
//  2. The logs. NATS sends a log as it was at an instant: let L be its last sequence then.
//  3. The stream of configurations, which the logs source: so it has all that they have.
//  4. The checkpoints, once those of all shards have reached L.
//  5. The stream of events.
//
// So everything that messages up to L have caused is in the events (4 before 5). A restore
// makes three changes. It moves each checkpoint back to L, and has it name the place in the stream
// of events behind which lapse looks up what comes after L: sequences stay. It leaves out the events, warnings and
// rejections of messages after L. And the restored log, whose messages end with L, goes on
// with a sequence that the original has not used.
//
// Then each output is in the stream of events once:
//
//   - An output that was caused at or before L is there, and the checkpoint says so.
//   - An output that the original has published of a version at or before L, but that was
//     caused later, may be there. lapse looks up each output that was caused between the
//     checkpoint and its takeover, and the takeover's first message is stamped after the restore.
//     Where a configuration after L may have caused it, it is left out too: the restored lapse
//     applies that configuration later, or not at all.
//   - An output of a message after L is not there, and its version is not in the log either.
//     Its etag never comes back: an event of a new version has another ce-id.
//
// What expired between the backup and the restore has its event after the restore, once.
//
// A backup cannot know what the original did after it. Subscribers may have seen events that the
// restored lapse publishes too. They have the same ce-source and ce-id, because the identity of the
// log stays. The etags and the sequences that follow leave room ([margin]) for those that the
// original has used after the backup.
//
// If no process of lapse runs, the checkpoints stand still where they are, and nobody publishes.
// The same holds for them: what follows a checkpoint is looked up.
//
// # Until
//
// A restore until a message or an instant makes the log end before that. It is as if the backup
// had been taken then: the checkpoint goes back to there, events of later messages are left out,
// and snapshots of later offsets are removed from the records.
//
// A configuration that is left out may have made a version expire that comes back to life. So where a
// collection was configured after that moment, events that were caused after it are left out too.
// Subscribers may then see events of that collection again, with the same ce-id.
//
// # A restore that is interrupted
//
// Each stream is restored under a mark (wire.Restoring), which lapse refuses, and the logs without
// the subjects on which clients write. Only when all streams are complete and compared does the restore
// commit: it notes that in the metadata of the root of the prefix. Then each stream loses its mark, the root last.
// A restore that fails removes its streams. One that was killed is done again by the same command: it
// removes what has the mark or, if that restore has committed, goes on to take the marks away.
//
// Two restores at once exclude each other: one that removes streams claims the root first, and a root that is
// claimed cannot be committed, nor the reverse. NATS cannot delete a stream on a condition, so one limit stays: do not
// run a restore again while a former one may be about to delete a stream. If a process stood still
// right before it deletes a stream, and another restore makes all streams and completes them meanwhile, the former
// process deletes a stream of that.
package backup

// Package retention lets go of what lapse need not keep: it orders snapshots, truncates the log behind
// them, and sees to it that the servers give up the bytes.
//
// The promise is --forget-within D: the bytes of a document are nowhere later than D after it has
// expired, or was deleted or overwritten. A [Keeper] keeps it for a shard. Every [Keeper.interval], a
// fifth of D less the sync interval, it takes a snapshot, until nothing is left that
// should be gone:
//
//   - The snapshots of the last two generations count. A document that dies at an instant is in no
//     snapshot that was begun after it. So it is in none after two of these.
//   - The log is truncated to the offsets of the older generation, when both are on disk, and were read
//     again and are whole (truncate.go).
//   - The NATS server keeps the bytes of a removed message while its file has others. The keeper ends
//     the files of log and snapshots by a filling, twice in an interval. What is in a file then dies
//     within that time, and the file goes (record.go). A filling stays in the log until that is truncated:
//     a sequence that is missing from its middle is a loss. Where a maximum size leaves no room for it,
//     there is none, and the file ends when the log has stored as much by itself.
//   - Events are kept for 7/8 of D at most. Their files are ended every sixteenth of D.
//   - Redis keeps the bytes in its files until it writes them anew: the keeper asks it to (truncate.go).
//
// For each place there is an instant, Clean (report.go): bytes of a document that died before it are
// not there. It is a bound by what lapse has done and was acknowledged. If it is older than D, the
// promise is broken, and /readyz says so. A document cannot die while the log is silent, everything is
// applied and nothing is due. So when Clean is later than the last instant at which that was not so,
// everything is clean, and the keeper rests. What it has done is in the bucket of checkpoints, for the
// next owner of the shard (record.go).
//
// Snapshots are also taken when the log has grown by more than they cost, so that a start need not
// read it, and when a client asks ([Keeper.Ask], orders.go).
//
//   - T1: The log is truncated only where two generations, verified just before,
//     continue: never past what is applied, what the checkpoints need, or the message at the offset of
//     the older generation, with which its stamp is compared.
//   - T2: One snapshot of a shard is taken at a time, and only by the owner of the shard.
//   - T3: A failure costs nothing but time. The keeper tries again, later each time.
//   - T4: One generation is on disk that continues the log, whatever the server loses
//     with its power. The server takes up to the sync interval to have on disk what it has acknowledged. So
//     a generation counts as on disk once this process has known it for as long. The log is truncated only
//     behind two that are, and a snapshot begins, which takes the place of the older one, only once the
//     newest is.
package retention

// Package snapshot stores snapshots of shards.
//
// A snapshot is the state of a shard at one offset. It is taken while the shard goes on:
// its owner scans the documents, some at a time, and beside that records every change that it
// commits. The scan finds each document in one of the versions that it had meanwhile; the changes,
// applied after it and in their order, make all of them those of the last commit. So the offset
// of the snapshot is that of the end of the scan, and nothing is read that the scan would not read.
//
// So a snapshot is a list of entries ([Entry]): what the scan found, and what was committed
// meanwhile, in the order in which it came. Applied one after the other to an empty shard
// they give the state.
//
// Entries are packed into chunks, which are compressed, hashed and stored in an object store. The
// manifest, which names the chunks, is stored after them. Only when all of that was read back does
// the record of the shard name the manifest: by compare-and-set, so a former owner cannot name
// an older one. What no record names does not count, and is removed.
package snapshot

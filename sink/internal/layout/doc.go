// Package layout defines how a shard is stored in Redis, for the two packages that
// use it: sink, which reads, and sink/store, which writes.
//
// All keys of a shard share a hash tag, and so one slot of a Redis Cluster ([Keys]):
//
//	<prefix>:{tag}:state                 hash: version (the fence), offset, watermark, log, format,
//	                                     the stamp of the message at the offset, where the stream
//	                                     of events has the last output, the number
//	                                     of shards, and the size of each collection after the
//	                                     last commit
//	<prefix>:{tag}:config                hash: collection → history of its default TTL, indexing mode ([Config])
//	<prefix>:{tag}:docs:<collection>     hash: id → header ([Header]) and body
//	<prefix>:{tag}:inherit:<collection>  sorted set: ids that inherit the default, by the beginning of their clock
//	                                     (_ts, unless a write kept it);
//	                                     in bands: each begins [ttlrules.BandWidth] above the one before
//	<prefix>:{tag}:own:<collection>      sorted set: ids with a TTL or an instant of their own, by the later of the
//	                                     deadline and _ts; those
//	                                     that never expire by [NeverScore]
//	<prefix>:{tag}:by<slot>:<collection> sorted set: the entries of one of the property indexes
//	                                     ([PropertyIndex]), which package
//	                                     entries writes: a value and an id, all of score 0
//
// Each document is in exactly one of the two sorted sets, whatever the configuration is. They do not depend on the
// configuration. Which documents are due is a cut through each of them, which package ttlrules computes. So a change of
// the default TTL rewrites nothing.
//
// The entries of a property index follow from the bodies of the documents: for each stored document, and each value
// that it has at the pointer, there is one entry, and there is no other. The commit that changes a document changes its
// entries. The state has how many an index has, as it has the sizes of the collections. While an index is being made
// ([Making]), entries are missing, and there is still no other.
//
// Scripts run through a [Runner] and answer with a [Reply]. Its head, which scripts share, is decoded
// in one place ([Head], head.lua).
package layout

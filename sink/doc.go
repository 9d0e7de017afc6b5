// Package sink keeps documents in Redis under an index of what expires when, and
// reads them.
//
// To read, make a [Reader]: that is all an application needs. The rest is for the
// processor: a [Store] of partitions, each loaded, taken over and then changed by
// commits that are fenced by its version ([Partition]).
//
// A partition's keys share a hash tag, and so a slot of a Redis Cluster:
//
//	<prefix>:{tag}:state                 hash: version (the fence), offset, watermark, log, format,
//	                                     and what each collection was left with
//	<prefix>:{tag}:config                hash: collection → history of its default TTL, indexing mode
//	<prefix>:{tag}:docs:<collection>     hash: id → header ([Header]) and body
//	<prefix>:{tag}:inherit:<collection>  sorted set: ids that inherit the default, by _ts
//	<prefix>:{tag}:own:<collection>      sorted set: ids with a TTL of their own, by deadline
//
// The index does not know the configuration: what is due is a cut through the two
// sorted sets, which package ttlrules computes. So a change of the default rewrites
// nothing. The scripts in lua check the fence and move data; no rule is in them.
package sink

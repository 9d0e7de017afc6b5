// Package bulk reads and writes the documents of whole partitions in Redis. It is for the
// processor, which takes snapshots of partitions, and loads them.
//
//	copy.go   Copy: reads documents, some at a time, of a partition that goes on
//	fill.go   Fill: writes documents into a partition that was cleared
//	count.go  Count: ends that, and notes the sizes of the collections
//
// Each file has its Lua script beside it, which compares the version of the partition as those
// of package store do. The layout in Redis is described in sink/internal/layout.
package bulk

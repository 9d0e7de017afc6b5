// Package crash names the places in the protocol at which tests let a process die, stop, or
// fail an operation.
package crash

// Point is a place at which a test may let the process die, or let an operation fail.
type Point string

const (
	AfterTake        Point = "after the fence was taken"
	AfterRead        Point = "after the read of a batch"
	AfterFind        Point = "after a reap found what is due"
	AfterWarn        Point = "after warnings were published"
	BeforeFence      Point = "before the stream of events is fenced"
	AfterFence       Point = "after the stream of events was fenced"
	BeforePublish    Point = "before outputs are published"
	AfterPublish     Point = "after outputs were published"
	BeforeCommit     Point = "before the commit"
	AfterCommit      Point = "after the commit"
	AfterControl     Point = "after the commit of a configuration"
	AfterDrain       Point = "after a chunk was drained for a configuration"
	AfterPass        Point = "after documents were read for a property index"
	AfterMade        Point = "after entries of a property index were made"
	BeforeFinish     Point = "before what has drained is removed"
	AfterFinish      Point = "after what had drained was removed"
	BeforeCheckpoint Point = "before a checkpoint"
	AfterCheckpoint  Point = "after a checkpoint"
	AfterCopy        Point = "after documents were scanned for a snapshot"
	BeforeSnapshot   Point = "before the scan of a snapshot ends"
	AfterClear       Point = "after a shard was cleared to load a snapshot"
	AfterFill        Point = "after a part of a snapshot was loaded"
	BeforeLoaded     Point = "before the commit that ends the load of a snapshot"
	AfterLoaded      Point = "after the commit that ends the load of a snapshot"
	BeforeChunk      Point = "before a chunk of a snapshot is stored"
	AfterChunk       Point = "after a chunk of a snapshot was stored"
	BeforeManifest   Point = "before the manifest of a snapshot is stored"
	AfterManifest    Point = "after the manifest of a snapshot was stored"
	BeforeRecord     Point = "before a snapshot is recorded"
	AfterRecord      Point = "after a snapshot was recorded"
	BeforePurge      Point = "before the log is truncated"
	AfterPurge       Point = "after the log was truncated"
)

// Hook decides what happens at a point; a test sets it. In production it is nil.
type Hook func(Point) error

// At calls the hook. The owner does not go on if it returns an error.
func (h Hook) At(here Point) error {
	if h == nil {
		return nil
	}
	return h(here)
}

package processor

// point is a place on the path at which a test may let the process die, or what is
// being done fail.
type point string

const (
	afterTake        point = "after the fence was taken"
	afterRead        point = "after the read of a batch"
	afterFind        point = "after a reap found what is due"
	afterScan        point = "after the scan of an index build"
	beforeFence      point = "before the stream of events is fenced"
	afterFence       point = "after the stream of events was fenced"
	beforePublish    point = "before outputs are published"
	afterPublish     point = "after outputs were published"
	beforeCommit     point = "before the commit"
	afterCommit      point = "after the commit"
	afterControl     point = "after the commit of a configuration"
	afterDrain       point = "after a chunk was drained for a configuration"
	beforeCheckpoint point = "before a checkpoint"
	afterCheckpoint  point = "after a checkpoint"
)

// at is called at a point of the path. In production it does nothing.
func (s *shared) at(here point) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(here)
}

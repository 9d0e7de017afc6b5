package backoff

import (
	"testing"
	"time"
)

// TestAfterFailures: the shards of a process wait differently after a failure, longer after
// more of them, and never longer than failureAtMost.
func TestAfterFailures(t *testing.T) {
	const shards = 16
	for failures := 1; failures < 10; failures++ {
		seen := map[time.Duration]bool{}
		for shard := range shards {
			wait := AfterFailures(failures, shard, shards)
			if most := min(failureAfter<<min(failures-1, 4), failureAtMost); seen[wait] || wait < most/2 || wait >= most {
				t.Errorf("shard %d waits %s after %d failures, of %s at most", shard, wait, failures, most)
			}
			seen[wait] = true
		}
	}
}

package lease

import (
	"slices"
	"sync"
	"time"
)

// owners is who owns each shard, as a process knows it from leases and beats. It is safe for
// concurrent use. Times are those of one clock, from any beginning.
type owners struct {
	mu      sync.Mutex
	ids     []string
	changed time.Duration // when one of them changed last
	taking  int           // shards that the process is about to take, and may not get
}

// newOwners makes the Owners of so many shards. Nobody owns one.
func newOwners(shards int) *owners { return &owners{ids: make([]string, shards)} }

// Set notes the owner of a shard; empty if nobody owns it, or nobody knows who does.
func (o *owners) Set(shard int, id string, now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids[shard] != id {
		o.ids[shard], o.changed = id, now
	}
}

// Take notes that the process is about to take a shard, so that its other shards do not count it
// as free for more. Until it calls done, nobody knows who the owner will be; nor afterwards, if
// another process was quicker, or the answer was lost.
func (o *owners) Take(shard int, id string, now func() time.Duration) (done func(taken bool)) {
	o.Set(shard, id, now())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taking++
	return func(taken bool) {
		if !taken {
			o.Set(shard, "", now())
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.taking--
	}
}

// Known returns the owners, and for how long none has changed, nor was about to.
func (o *owners) Known(now time.Duration) (ids []string, calm time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taking == 0 {
		calm = now - o.changed
	}
	return slices.Clone(o.ids), calm
}

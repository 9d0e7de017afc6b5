package region

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/seed18712806/lapse/processor/internal/shard"
)

// waits lets the owner wait until the first region has published an output. It implements
// [shard.Mirror].
type waits struct {
	mu      sync.Mutex
	point   *shard.Checkpoint // that was adopted; nil if none was
	news    chan struct{}     // closed when a checkpoint is adopted
	reached atomic.Bool
	ended   context.Context // done when the session ends
}

// Published is the newest checkpoint that was adopted; nil if none was. news is closed when there
// may be a newer one.
func (w *waits) Published() (c *shard.Checkpoint, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.news == nil {
		w.news = make(chan struct{})
	}
	return w.point, w.news
}

// Reached reports whether the mirrors have reached a cut of the first region in this session.
func (w *waits) Reached() bool { return w.reached.Load() }

// Ended is done when nobody is to wait any longer.
func (w *waits) Ended() context.Context { return w.ended }

func (w *waits) advance(c *shard.Checkpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := w.point; have != nil && have.Seq >= c.Seq && have.Watermark >= c.Watermark {
		return
	}
	w.point = c
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
}

var _ shard.Mirror = (*waits)(nil)

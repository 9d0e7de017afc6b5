package region

import (
	"context"
	"sync"

	"github.com/seed18712806/lapse/processor/internal/announce"
)

// waits lets partitions wait until the first region has published their outputs. It implements
// [announce.Mirror].
type waits struct {
	mu     sync.Mutex
	points map[int]*announce.Checkpoint // that were adopted, of each partition
	news   chan struct{}                // closed when a checkpoint is adopted
	ended  context.Context              // done when the session ends
}

// Published is the newest checkpoint of a partition that was adopted; nil if none was. news is closed when there
// may be a newer one.
func (w *waits) Published(partition int) (c *announce.Checkpoint, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.news == nil {
		w.news = make(chan struct{})
	}
	return w.points[partition], w.news
}

// Ended is done when nobody is to wait any longer.
func (w *waits) Ended() context.Context { return w.ended }

func (w *waits) advance(partition int, c *announce.Checkpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := w.points[partition]; have != nil && have.Seq >= c.Seq && have.Watermark >= c.Watermark {
		return
	}
	w.points[partition] = c
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
}

var _ announce.Mirror = (*waits)(nil)

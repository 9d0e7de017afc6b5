package processor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/wire"
)

var errCut = errors.New("the connection was cut")

// replyCutter dials connections of which one in so many requests is answered by a
// cut: the server has done what was asked, and nobody is told.
type replyCutter struct {
	dial   dialer
	every  int64
	on     atomic.Bool
	writes atomic.Int64
	cuts   atomic.Int64
}

func (c *replyCutter) connect(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &cutReplies{Conn: conn, cutter: c}, nil
}

type cutReplies struct {
	net.Conn
	cutter *replyCutter
	cut    atomic.Bool
}

func (c *cutReplies) Write(b []byte) (int, error) {
	if c.cutter.on.Load() && c.cutter.writes.Add(1)%c.cutter.every == 0 {
		c.cut.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutReplies) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b) // so it was done
	if err == nil && c.cut.Load() {
		c.cutter.cuts.Add(1)
		_ = c.Conn.Close()
		return 0, errCut
	}
	return n, err
}

// TestG1_RepliesLost cuts the connection to Redis before every fifteenth reply, also of
// commits: each commit takes effect once. It fails if a command is repeated, or if a step
// whose commit may have taken effect is repeated with documents that were read before.
func TestG1_RepliesLost(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		cutter := &replyCutter{dial: r.dial, every: 15}
		client := newClient(cutter.connect)
		t.Cleanup(func() { _ = client.Close() })
		s := &survivor{r: r, client: client}
		s.alive()
		s.p.ready(t)
		cutter.on.Store(true)
		s.happens(300, 10)
		for more := uint64(1); cutter.cuts.Load() < 10 && more <= 40; more++ { // a busy machine sends fewer requests
			s.happens(300+more, 5)
		}
		cutter.on.Store(false) // else all shards and Redis are rarely well at once
		s.settles()
		r.agrees()
		if n := cutter.cuts.Load(); n < 10 {
			t.Errorf("%d cuts, want 10 at least", n)
		}
	})
}

// TestBacklogAfterALostReply: the step that reaps the last due document takes effect, and
// its reply is lost. No document is due then, and nothing is left to commit.
//
// Goes red if only a commit clears the status.
func TestBacklogAfterALostReply(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const many = 2 * shard.ReapChunk // more than one step reaps
		before := r.start(nil)
		before.ready(t) // so the streams are there
		before.stop(t)
		for i := range many {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
		}
		r.flush()
		// The configuration makes all documents due at once, so that the last step is not the
		// only one that finds some.
		written := time.Now()
		eventually(t, "the documents are older than a second", func() bool { return time.Since(written) > time.Second })
		r.sendAsync(prefix.Config("c"), `{"defaultTtl":1}`)
		r.flush()
		var p *process
		var cut atomic.Bool
		started := make(chan struct{})
		p = r.start(func(here crash.Point) error {
			<-started
			if here != crash.AfterCommit || p.current().status.Due.Load() == 0 {
				return nil // nothing was left by the step before
			}
			n, err := r.reader.Count(context.Background(), "c")
			if err != nil || n.Live+n.Expired > 0 || cut.Swap(true) {
				return err
			}
			return errCut
		})
		close(started)
		r.waitEvents("c", many)
		eventually(t, "the last reply is lost", cut.Load)
		eventually(t, "nothing is due", func() bool { return p.current().status.Due.Load() == 0 })
		p.stop(t)
	})
}

package processor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

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

// TestG1_RepliesLost cuts the connection to Redis before every fifteenth reply, that of
// commits among them: each takes effect once all the same. It fails if a command is
// repeated, or if a step whose commit is not known to have failed is done again
// from what was read before.
func TestG1_RepliesLost(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		cutter := &replyCutter{dial: r.dial, every: 15}
		client := newClient(cutter.connect)
		t.Cleanup(func() { _ = client.Close() })
		s := &survivor{r: r, client: client}
		s.alive()
		s.p.ready(t)
		cutter.on.Store(true)
		s.history(300, 10)
		cutter.on.Store(false)
		s.settles()
		r.agrees()
		if n := cutter.cuts.Load(); n < 10 {
			t.Errorf("%d cuts, want 10 at least", n)
		}
	})
}

// TestBacklogAfterALostReply: the step that reaps the last of what is due takes effect,
// and nobody is told. Nothing is due any more then, and nothing is left to be committed.
//
// Goes red if only a commit says so.
func TestBacklogAfterALostReply(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const many = 2 * reapChunk // more than one step reaps
		r.opts.Partitions = 1
		r.reader = r.newReader()
		before := r.start(nil)
		before.ready(t) // so the streams are there
		before.stop(t)
		r.sendAsync(prefix.Config("c"), `{"defaultTtl":1}`)
		for i := range many {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
		}
		r.flush()
		var p *process
		var cut atomic.Bool
		started := make(chan struct{})
		p = r.start(func(here point) error {
			<-started
			if here != afterCommit || p.partitions[0].due.Load() == 0 {
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
		eventually(t, "nothing is due", func() bool { return p.partitions[0].due.Load() == 0 })
		p.stop(t)
	})
}

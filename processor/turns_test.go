package processor

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/partition"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG9_ReapingGivesWayToReads: the documents that a configuration makes due are reaped
// in small chunks, by one partition at a time; all of them, once.
//
// Goes red if a partition reaps all at once, or waits for ever.
func TestG9_ReapingGivesWayToReads(t *testing.T) {
	t.Parallel()
	const many = 1200
	r := newRigOn(t, backends[1], Options{Partitions: 4})
	var publications atomic.Int64
	p := r.start(func(here crash.Point) error {
		if here == crash.AfterPublish {
			publications.Add(1)
		}
		return nil
	})
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	for i := range many {
		r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
	}
	r.caughtUp(p)
	written := time.Now()
	eventually(t, "all are older than the next TTL", func() bool { return time.Since(written) > 1100*time.Millisecond })
	r.config("c", `{"defaultTtl":1}`)
	events := r.waitEvents("c", many)
	if n := publications.Load(); n < many/partition.Chunk {
		t.Errorf("%d events in %d chunks: more than %d at once", many, n, partition.Chunk)
	}
	ids := make(map[string]bool)
	for _, e := range events {
		ids[e.stored.subject] = true
	}
	if len(ids) != many {
		t.Errorf("%d documents have an event, want %d", len(ids), many)
	}
	eventually(t, "no partition has the turn", func() bool { return !p.session.turns.Taken() })
	r.caughtUp(p)
	p.stop(t)
}

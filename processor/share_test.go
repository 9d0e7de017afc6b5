package processor

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/crash"
)

// reading is a store of which very many reads are made.
type reading struct {
	Store
	reads *atomic.Int64
}

func (s reading) Reads(context.Context) (int64, error) { return s.reads.Add(10_000), nil }

// TestG9_ReapingGivesWayToReads: while there are reads, the documents that a configuration makes
// due are reaped in small chunks; without reads, in larger ones. All
// of them are, once.
//
// Goes red if a step reaps all at once beside reads, if it never does without, or waits for ever.
func TestG9_ReapingGivesWayToReads(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reads: %t", b.name, reads), func(t *testing.T) { reapsBesideReads(t, b, reads) })
		}
	}
}

func reapsBesideReads(t *testing.T, b backend, reads bool) {
	t.Parallel()
	const many = 6000
	r := newRigOn(t, b, Options{})
	if reads {
		r.store = func(s Store) Store { return reading{s, &atomic.Int64{}} }
	}
	var publications atomic.Int64
	p := r.start(func(here crash.Point) error {
		if here == crash.AfterPublish {
			publications.Add(1)
		}
		return nil
	})
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	r.backlog("c", many, `{}`)
	r.caughtUp(p)
	r.config("c", `{"defaultTtl":1}`)
	events := r.waitEvents("c", many)
	if n := publications.Load(); (n >= many/32) != reads {
		t.Errorf("%d events in %d chunks, of which the smallest have %d", many, n, 32)
	}
	ids := make(map[string]bool)
	for _, e := range events {
		ids[e.stored.subject] = true
	}
	if len(ids) != many {
		t.Errorf("%d documents have an event, want %d", len(ids), many)
	}
	r.caughtUp(p)
	p.stop(t)
}

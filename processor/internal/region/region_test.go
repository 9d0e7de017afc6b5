package region

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

func newFollower(t *testing.T) *Follower {
	t.Helper()
	board := health.New(slog.New(slog.DiscardHandler))
	return New(Parts{Origin: &streams.Origin{Domain: "a"}, Status: shard.NewStatus(board), Health: board,
		Logger: slog.New(slog.DiscardHandler)})
}

// A follower is as the first region was when that was asked last, among the answers whose messages are all applied.
func TestFollowing(t *testing.T) {
	t.Parallel()
	f := newFollower(t)
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	for i, end := range []uint64{10, 20, 20, 30} {
		c := &cut{asked: at(int64(i)), ends: ends{log: end},
			log: &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: end + 2}}}
		f.seen(c)
		f.note(c)
		if !f.asked.Equal(c.asked) {
			t.Errorf("the last cut was taken at %s, want %s", f.asked, c.asked)
		}
	}
	for _, one := range []struct {
		applied uint64
		behind  uint64
		asOf    time.Time
	}{
		{9, 23, time.Time{}},
		{10, 22, at(0)},
		{20, 12, at(2)},
		{30, 2, at(3)},
		{33, 0, at(3)},
	} {
		f.Status.Applied.Store(one.applied)
		is := f.Following()
		if got := time.UnixMilli(int64(is.AsOf)); is.Behind != one.behind || is.AsOf == 0 != one.asOf.IsZero() ||
			is.AsOf != 0 && !got.Equal(one.asOf) {
			t.Errorf("applied %v: %+v, want %d behind, as of %s", one.applied, is, one.behind, one.asOf)
		}
	}
}

// The owner waits until the first region has published as much as it itself has: a checkpoint that is older, which a
// deposed leader may answer with, changes nothing.
func TestWaitsAdvance(t *testing.T) {
	t.Parallel()
	w := newFollower(t).waits
	news := func() <-chan struct{} { _, news := w.Published(); return news }
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	point := func(seq uint64, watermark int64) *shard.Checkpoint {
		return &shard.Checkpoint{Seq: seq, Watermark: watermark}
	}
	for _, one := range []struct {
		point *shard.Checkpoint
		newer bool
	}{{point(5, 100), true}, {point(5, 100), false}, {point(4, 90), false}, {point(5, 110), true}, {point(6, 110), true}} {
		heard := news()
		w.advance(one.point)
		if c, _ := w.Published(); closed(heard) != one.newer || one.newer && c != one.point {
			t.Errorf("after %+v: %+v, news %t, want %t", one.point, c, closed(heard), one.newer)
		}
	}
}

package processor

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// endsAt is a stream that was last seen to end at a sequence.
type endsAt struct {
	jetstream.Stream
	seq *uint64
}

func (s endsAt) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: *s.seq}}
}

// TestG11_ConfigurationsAreNotApplied: a shard that does not apply the configurations is told within 10 s,
// a shard that applies them slowly or has nothing to apply never. Other problems are in the plan
// health-tells-the-truth of the simulation, which has one shard.
//
// It fails if that is told later, or of a shard that goes on.
func TestG11_ConfigurationsAreNotApplied(t *testing.T) {
	last := uint64(5)
	status := shard.NewStatus(health.New(slog.New(slog.DiscardHandler)))
	applied := &status.Configured
	m := &monitor{
		session: &session{status: status}, names: prefix.Log(0, 2),
		log: streams.NewLog(&streams.Streams{Configs: endsAt{seq: &last}}, nil),
	}
	now := time.Now()
	check := func() error { now = now.Add(monitorEvery); return m.checkConfigs(now) }
	for range 20 { // one a second, and one is always left
		last, _ = last+1, applied.Add(1)
		if err := check(); err != nil {
			t.Fatalf("it goes on: %v", err)
		}
	}
	applied.Store(last)
	for range 20 {
		if err := check(); err != nil {
			t.Fatalf("it has applied all: %v", err)
		}
	}
	last++
	began := now
	for check() == nil && now.Sub(began) < time.Minute {
	}
	if took := now.Sub(began); took > 10*time.Second {
		t.Errorf("it is told after %s", took)
	}
	applied.Store(last)
	if err := check(); err != nil {
		t.Errorf("it is over: %v", err)
	}
}

// TestG12_TheMonitorWatchesTheEvents: an event is gone from the middle of the stream, and somebody limits the log,
// while lapse runs. Both are told, and lapse stays ready.
//
// It fails if the monitor does not ask.
func TestG12_TheMonitorWatchesTheEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	board := health.New(slog.New(slog.DiscardHandler))
	r.opts.Health = board
	p := r.run()
	r.config("c", `{"defaultTtl":-1}`)
	for _, id := range []string{"a", "b", "c"} {
		r.must(400, prefix.Write(wire.Upsert, "c", id), `{`)
	}
	told := func(what string) {
		t.Helper()
		eventually(t, what+" is told", func() bool {
			err := board.Minor().Err()
			return err != nil && strings.Contains(err.Error(), what)
		})
	}
	outputs, err := r.js.Stream(t.Context(), prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := outputs.DeleteMsg(t.Context(), outputs.CachedInfo().State.LastSeq-1); err != nil {
		t.Fatal(err)
	}
	told("lacks what neither its limits nor lapse have removed")
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	c := log.CachedInfo().Config
	c.MaxMsgs = 1_000_000
	if _, err := r.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	told("max_msgs is 1000000, and was -1")
	if err := p.Ready(); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
}

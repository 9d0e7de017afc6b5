package processor

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
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
	sealed := outputs.CachedInfo().Config
	sealed.Sealed = true
	if _, err := r.js.UpdateStream(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is told that no event can be published", func() bool {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), problemEvents.Name)
	})
}

// TestFull: a log is full at its limits, if it refuses new messages there.
func TestFull(t *testing.T) {
	limited := jetstream.StreamConfig{Name: "S", Discard: jetstream.DiscardNew, MaxMsgs: 10, MaxBytes: 1000}
	discards := limited
	discards.Discard = jetstream.DiscardOld
	for name, c := range map[string]struct {
		config jetstream.StreamConfig
		state  jetstream.StreamState
		want   string
	}{
		"room for one":    {limited, jetstream.StreamState{Msgs: 9, Bytes: 999}, ""},
		"messages":        {limited, jetstream.StreamState{Msgs: 10, Bytes: 999}, "is full (10 messages, 999 bytes)"},
		"bytes":           {limited, jetstream.StreamState{Msgs: 9, Bytes: 1000}, "is full (9 messages, 1000 bytes)"},
		"no limits":       {jetstream.StreamConfig{Discard: jetstream.DiscardNew}, jetstream.StreamState{Msgs: 1 << 20}, ""},
		"it discards old": {discards, jetstream.StreamState{Msgs: 10, Bytes: 1000}, ""},
		"sealed":          {jetstream.StreamConfig{Sealed: true}, jetstream.StreamState{}, "is sealed"},
	} {
		err := full(&jetstream.StreamInfo{Config: c.config, State: c.state})
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAsRefusal: an error about what is stored is a refusal, which a person has to resolve; another one stays as it is.
func TestAsRefusal(t *testing.T) {
	for _, kind := range []error{store.ErrForeign, store.ErrServer, wire.ErrFormat} {
		err := asRefusal(fmt.Errorf("read the shard: %w", kind))
		if r := streams.AsRefusal(err); r == nil || r.Kind != kind || asRefusal(err) != err {
			t.Errorf("%v is not a refusal of its kind", err)
		}
	}
	if failed := errors.New("i/o timeout"); asRefusal(failed) != failed || asRefusal(nil) != nil {
		t.Errorf("%v, %v", asRefusal(failed), asRefusal(nil))
	}
}

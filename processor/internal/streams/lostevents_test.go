package streams

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// The stream of events loses a message of its middle, and its beginning. That is named, also by a process that starts
// later. What lapse removes of a filling is no loss, nor what a filling has left that was interrupted.
//
// It fails if only the end of the stream is compared (G12).
func TestG12_EventsLostElsewhereThanAtTheEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js := natstest.Connect(t, natstest.Options{})
	o := options()
	s, err := Provision(ctx, js, o)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		t.Helper()
		for range n {
			if _, err := js.Publish(ctx, o.Prefix.Rejected("x"), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(w *EventsWatch, want string) {
		t.Helper()
		info, err := s.Events.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		switch err := w.Check(ctx, info); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("it says %v, want %q", err, want)
		}
	}
	remove := func(seq uint64) {
		t.Helper()
		if err := s.Events.DeleteMsg(ctx, seq); err != nil {
			t.Fatal(err)
		}
	}
	w := s.NewEventsWatch()
	check(w, "")
	publish(10)
	check(w, "")
	f := s.EventsFilling(o.Prefix, false)
	if _, err := f.Fill(ctx, js); err != nil {
		t.Fatal(err)
	}
	publish(2)
	check(w, "")
	last := s.Events.CachedInfo().State.LastSeq
	if err := f.note(ctx, js, Gap{last + 1, endless}); err != nil { // a filling is interrupted
		t.Fatal(err)
	}
	publish(2)
	remove(last + 1)
	check(w, "")
	if _, err := f.Fill(ctx, js); err != nil {
		t.Fatal(err)
	}
	publish(2)
	check(s.NewEventsWatch(), "")
	remove(5)
	check(w, "1 messages are missing (sequences 5)")
	if err := s.Events.Purge(ctx, jetstream.WithPurgeSequence(3)); err != nil {
		t.Fatal(err)
	}
	const both = "3 messages are missing (sequences 1 to 2, 5)"
	check(s.NewEventsWatch(), both) // it was stored where the stream began
	check(s.NewEventsWatch(), both)
}

// The limits of a stream remove its beginning. That is no loss.
func TestLostBeginning(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(age time.Duration) int64 { return now.Add(-age).UnixNano() }
	for _, c := range []struct {
		name          string
		before, after begin
		config        jetstream.StreamConfig
		lost          bool
	}{
		{"nothing is removed", begin{First: 4, At: at(0)}, begin{First: 4}, jetstream.StreamConfig{}, false},
		{"the first one is not old enough", begin{First: 4, At: at(time.Hour)}, begin{First: 9}, jetstream.StreamConfig{MaxAge: 2 * time.Hour}, true},
		{"it is", begin{First: 4, At: at(2 * time.Hour)}, begin{First: 9}, jetstream.StreamConfig{MaxAge: 2 * time.Hour}, false},
		{"there is no limit", begin{First: 4, At: at(time.Hour)}, begin{First: 9}, jetstream.StreamConfig{}, true},
		{"there are too many bytes", begin{First: 4, At: at(0), Bytes: 100 << 20}, begin{First: 9}, jetstream.StreamConfig{MaxBytes: 101 << 20}, false},
		{"there are few bytes", begin{First: 4, At: at(0), Bytes: 50 << 20}, begin{First: 9}, jetstream.StreamConfig{MaxBytes: 101 << 20}, true},
		{"it is a filling", begin{First: 4, At: at(0)}, begin{First: 9}, jetstream.StreamConfig{Metadata: map[string]string{gapsKey: `[{"first":3,"last":8}]`}}, false},
		{"it is another stream", begin{First: 4, At: at(0), Made: 1}, begin{First: 9, Made: 2}, jetstream.StreamConfig{}, false},
		{"it was empty", begin{}, begin{First: 9}, jetstream.StreamConfig{}, false},
	} {
		info := &jetstream.StreamInfo{Config: c.config, TimeStamp: now}
		if got := lostBeginning(c.before, c.after, info); (got.First != 0) != c.lost {
			t.Errorf("%s: lost %v", c.name, got)
		}
	}
}

package streams

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG12_GapsThatAreNoted: a gap is told until it is noted, which a change of the metadata keeps. No single message
// of the log can be deleted, which cannot be taken back.
//
// It fails if lapse asks twice for what a person has given up.
func TestG12_GapsThatAreNoted(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	o := options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	log := s.Log
	for n := range 10 {
		if _, err := js.Publish(t.Context(), wire.DefaultPrefix.Write(wire.Upsert, "c", fmt.Sprint(n+1)), nil); err != nil {
			t.Fatal(err)
		}
	}
	gaps := func(want ...Gap) {
		t.Helper()
		info, err := s.Log.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Gaps(t.Context(), info)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("the gaps are %v, %v, want %v", got, err, want)
		}
		for _, gap := range want {
			if knows, err := Knows(info, gap); knows || err != nil {
				t.Errorf("the gap %v is known: %v", gap, err)
			}
		}
	}
	gaps()
	if err := log.DeleteMsg(t.Context(), 5); err == nil {
		t.Error("a message of the log could be deleted")
	}
	free := s.Log.CachedInfo().Config
	free.DenyDelete = false
	if _, err := js.UpdateStream(t.Context(), free); err == nil {
		t.Error("deletions could be allowed again")
	}
	for _, id := range []string{"6", "8", "9"} {
		if err := log.Purge(t.Context(), jetstream.WithPurgeSubject(wire.DefaultPrefix.Write(wire.Upsert, "c",
			id))); err != nil {
			t.Fatal(err)
		}
	}
	gaps(Gap{6, 6}, Gap{8, 9})
	if err := s.NoteGaps(t.Context(), []Gap{{6, 6}, {8, 9}}); err != nil {
		t.Fatal(err)
	}
	if s, err = Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	gaps()
}

// TestG12_AServerPassesOverMessages: a reader gets a message, and not the one before it. It learns why: its server lacks
// it, the log has lost it or was truncated, or the leader cannot read it in its file. It goes on only without what a
// person has given up.
//
// It goes red if a message that the server leaves out counts as one that was never there.
func TestG12_AServerPassesOverMessages(t *testing.T) {
	t.Parallel()
	server := natstest.NewServer(t, "")
	server.Start()
	js, o := connected(t, server.URL), options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int) string { return o.Prefix.Write(wire.Upsert, "c", fmt.Sprint(n)) }
	for n := range 12 {
		if _, err := js.Publish(t.Context(), write(n+1), fmt.Appendf(nil, "body %d;", n+1)); err != nil {
			t.Fatal(err)
		}
	}
	lose := func(n int) {
		t.Helper()
		if err := s.Log.Purge(t.Context(), jetstream.WithPurgeSubject(write(n))); err != nil {
			t.Fatal(err)
		}
	}
	lose(3)
	lose(4)
	if err := s.NoteGaps(t.Context(), []Gap{{3, 4}}); err != nil {
		t.Fatal(err)
	}
	js.Conn().Close()
	server.Stop()
	streams := server.Copy()
	block := filepath.Join(streams, "jetstream", "$G", "streams", o.Root(), "msgs", "1.blk")
	content, err := os.ReadFile(block)
	if err == nil {
		err = os.WriteFile(block, bytes.Replace(content, []byte("body 9;"), []byte("body 8;"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	server = natstest.NewServer(t, streams)
	server.Start()
	js = connected(t, server.URL)
	if s, err = Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	link, stop := WatchLink(js.Conn())
	defer stop()
	log := NewLog(s, link)
	info, err := log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	jump := func(after, before uint64, kind error, says string) {
		t.Helper()
		err := log.CheckJump(t.Context(), info, "nats-7", after, before)
		if (err == nil) != (kind == nil && says == "") || kind != nil && !errors.Is(err, kind) ||
			err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("message %d came after %d: %v, want %v, %q", before, after, err, kind, says)
		}
	}
	jump(1, 3, nil, "NATS server nats-7 has sent message 3 of the log after message 1, and the leader of the log has "+
		"message 2")
	jump(2, 5, nil, "")
	jump(8, 10, events.ErrLeftOut, "message 9 of stream "+o.Root())
	lose(7)
	if info, err = log.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	jump(2, 5, nil, "")
	jump(6, 8, ErrLogGap, "1 messages are missing (sequences 7), message 6 before it was stored at ")
	jump(8, 10, events.ErrLeftOut, "message 9 of stream "+o.Root())
	if err := s.Log.Purge(t.Context(), jetstream.WithPurgeSequence(12)); err != nil {
		t.Fatal(err)
	}
	jump(10, 12, ErrLogTruncated, "the log begins at sequence 12, and was applied up to 10")
	c := info.Config
	setMetadata(&c, gapsKey, "rubbish")
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if info, err = log.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	jump(10, 12, ErrMismatch, gapsKey)
	if err := js.DeleteStream(t.Context(), o.Root()); err != nil {
		t.Fatal(err)
	}
	jump(10, 12, ErrStreamGone, "")
}

// connected is JetStream of a server, until the test ends.
func connected(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, natstest.Patient, nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return natstest.JetStream(t, nc)
}

// TestNoteGaps: notes of what the log no longer reaches back to are left out, those that overlap are one, and very many
// gaps are joined, so that they fit into the metadata.
func TestNoteGaps(t *testing.T) {
	c := jetstream.StreamConfig{Metadata: map[string]string{gapsKey: `[{"first":2,"last":8},{"first":9,"last":9}]`,
		"x": "y"}}
	add := func(gaps []Gap, first uint64) error {
		all, err := noted(c)
		return errors.Join(err, setNoted(&c, append(all, gaps...), first))
	}
	if err := add([]Gap{{20, 21}, {12, 12}}, 9); err != nil ||
		c.Metadata[gapsKey] != `[{"first":9,"last":9},{"first":12,"last":12},{"first":20,"last":21}]` ||
		c.Metadata["x"] != "y" {
		t.Errorf("noted %v, %v", c.Metadata, err)
	}
	var many []Gap
	for n := range uint64(100_000) {
		many = append(many, Gap{1_000_000 + 3*n, 1_000_000 + 3*n})
	}
	if err := add(many, 10); err != nil || len(c.Metadata[gapsKey]) > 64<<10 {
		t.Errorf("%d bytes of metadata, %v", len(c.Metadata[gapsKey]), err)
	}
	all, err := known(c)
	if err != nil || all[0] != (Gap{12, 12}) || all[len(all)-1].Last != many[len(many)-1].Last {
		t.Errorf("noted %v, %v", all, err)
	}
	c.Metadata[wire.RestoredKey] = wire.Restored{Identity: 1, End: 500, Next: 600}.String()
	for gap, want := range map[Gap]bool{{501, 599}: true, {500, 599}: false, {501, 600}: false, {20, 21}: true,
		{20, 22}: false} {
		if knows, err := Knows(&jetstream.StreamInfo{Config: c}, gap); knows != want || err != nil {
			t.Errorf("%v is known: %v, %v", gap, knows, err)
		}
	}
	c.Metadata = nil
	for range 2 { // two processes carry out one decision
		if err := add([]Gap{{12, 14}, {30, 31}}, 5); err != nil {
			t.Fatal(err)
		}
	}
	if err := add([]Gap{{13, 16}, {17, 17}}, 5); err != nil {
		t.Fatal(err)
	}
	if all, err := known(c); err != nil || !slices.Equal(all, []Gap{{12, 16}, {17, 17}, {30, 31}}) {
		t.Errorf("messages that are missing count twice, and would hide others: %v, %v", all, err)
	}
	if text := Text([]Gap{{1, 1}, {3, 5}, {7, 7}, {9, 9}, {11, 11}, {13, 13}}); !strings.Contains(text,
		"8 messages are missing (sequences 1, 3 to 5, 7, 9, 11 and so on in 6 places, the last of them at 13)") {
		t.Error(text)
	}
}

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
		{"the first one is not old enough", begin{First: 4, At: at(time.Hour)}, begin{First: 9},
			jetstream.StreamConfig{MaxAge: 2 * time.Hour}, true},
		{"it is", begin{First: 4, At: at(2 * time.Hour)}, begin{First: 9}, jetstream.StreamConfig{MaxAge: 2 * time.Hour},
			false},
		{"there is no limit", begin{First: 4, At: at(time.Hour)}, begin{First: 9}, jetstream.StreamConfig{}, true},
		{"there are too many bytes", begin{First: 4, At: at(0), Bytes: 100 << 20}, begin{First: 9},
			jetstream.StreamConfig{MaxBytes: 101 << 20}, false},
		{"there are few bytes", begin{First: 4, At: at(0), Bytes: 50 << 20}, begin{First: 9},
			jetstream.StreamConfig{MaxBytes: 101 << 20}, true},
		{"it is a filling", begin{First: 4, At: at(0)}, begin{First: 9},
			jetstream.StreamConfig{Metadata: map[string]string{gapsKey: `[{"first":3,"last":8}]`}}, false},
		{"it is another stream", begin{First: 4, At: at(0), Made: 1}, begin{First: 9, Made: 2}, jetstream.StreamConfig{},
			false},
		{"it was empty", begin{}, begin{First: 9}, jetstream.StreamConfig{}, false},
	} {
		info := &jetstream.StreamInfo{Config: c.config, TimeStamp: now}
		if got := lostBeginning(c.before, c.after, info); (got.First != 0) != c.lost {
			t.Errorf("%s: lost %v", c.name, got)
		}
	}
}

package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
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
		if err := log.Purge(t.Context(), jetstream.WithPurgeSubject(wire.DefaultPrefix.Write(wire.Upsert, "c", id))); err != nil {
			t.Fatal(err)
		}
	}
	gaps(Gap{6, 6}, Gap{8, 9})
	if err := s.NoteGaps(t.Context(), []Gap{{6, 6}, {8, 9}}); err != nil {
		t.Fatal(err)
	}
	o.ReplyPrefixes = []string{"_INBOX_x"}
	if err := s.AllowReplies(t.Context(), js, o, 10); err != nil {
		t.Fatal(err)
	}
	if s, err = Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	gaps()
}

// TestNoteGaps: notes of what the log no longer reaches back to are left out, and very many gaps are joined,
// so that they fit into the metadata.
func TestNoteGaps(t *testing.T) {
	c := jetstream.StreamConfig{Metadata: map[string]string{gapsKey: `[{"first":2,"last":3},{"first":9,"last":9}]`, "x": "y"}}
	if err := note(&c, []Gap{{20, 21}, {12, 12}}, 5); err != nil || c.Metadata[gapsKey] != `[{"first":9,"last":9},{"first":12,"last":12},{"first":20,"last":21}]` || c.Metadata["x"] != "y" {
		t.Errorf("noted %v, %v", c.Metadata, err)
	}
	var many []Gap
	for n := range uint64(100_000) {
		many = append(many, Gap{1_000_000 + 3*n, 1_000_000 + 3*n})
	}
	if err := note(&c, many, 10); err != nil || len(c.Metadata[gapsKey]) > 64<<10 {
		t.Errorf("%d bytes of metadata, %v", len(c.Metadata[gapsKey]), err)
	}
	all, err := known(c)
	if err != nil || all[0] != (Gap{12, 12}) || all[len(all)-1].Last != many[len(many)-1].Last {
		t.Errorf("noted %v, %v", all, err)
	}
	c.Metadata[wire.RestoredKey] = wire.Restored{Identity: 1, End: 500, Next: 600}.String()
	for gap, want := range map[Gap]bool{{501, 599}: true, {500, 599}: false, {501, 600}: false, {20, 21}: true, {20, 22}: false} {
		if knows, err := Knows(&jetstream.StreamInfo{Config: c}, gap); knows != want || err != nil {
			t.Errorf("%v is known: %v, %v", gap, knows, err)
		}
	}
	if text := Text([]Gap{{1, 1}, {3, 5}, {7, 7}, {9, 9}, {11, 11}, {13, 13}}); !strings.Contains(text, "8 messages are missing (sequences 1, 3 to 5, 7, 9, 11 and so on in 6 places, the last of them at 13)") {
		t.Error(text)
	}
}

package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG12_TheEmbeddedLogHasAGap: the log of an embedded NATS server has lost a message, and Redis is embedded too, so
// the next start would go on without it. It refuses that, with what to do, and goes on once a person has decided. No
// later start asks again. Nobody can delete a single message of the log.
//
// It fails if a start goes on without a decision, or asks twice.
func TestG12_TheEmbeddedLogHasAGap(t *testing.T) {
	t.Parallel()
	w := &world{t: t, lapse: harness.EmbeddedLapse(t)}
	w.connectEmbedded()
	for _, id := range []string{"a", "lost", "b"} {
		w.Want(201, wire.Upsert, "c", id, `{}`)
	}
	log, err := w.JS.Stream(t.Context(), w.Prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.DeleteMsg(t.Context(), 3); err == nil {
		t.Error("a message of the log could be deleted")
	}
	if err := log.Purge(t.Context(), jetstream.WithPurgeSubject(w.Prefix.Write(wire.Upsert, "c", "lost"))); err != nil {
		t.Fatal(err)
	}
	w.lapse.Kill()
	why := w.lapse.Refuses()
	for _, part := range []string{"refused: ",
		"the log has lost messages from its middle: 1 messages are missing (sequences ",
		"restore the log from a backup; or go on without them"} {
		if !strings.Contains(why, part) {
			t.Errorf("/readyz does not say %q: %s", part, why)
		}
	}
	if !strings.Contains(w.lapse.Metrics(), `lapse_problem{problem="refused"} 1`) {
		t.Error("the metric is not set")
	}
	last := w.stateOf(w.Prefix.LogStream()).LastSeq
	w.attempts(2)
	if now := w.stateOf(w.Prefix.LogStream()).LastSeq; now != last {
		t.Errorf("an attempt has written: the log ended at %d, and ends at %d", last, now)
	}
	flags := w.lapse.FlagsIn(why)
	if said := w.lapse.BeginAnew(flags, 1); !strings.Contains(said, "a lapse serve is using it: stop it") {
		t.Errorf("while lapse runs: %s", said)
	}
	w.lapse.Terminate()
	for _, others := range [][]string{nil, {"--accept-lost-log-end", "--accept-lost-log-beginning",
		"--accept-lost-documents", "--accept-lost-events", "--redis-is-saved"}} {
		if said := w.lapse.BeginAnew(others, 1); !strings.Contains(said, "refused, and nothing was changed") ||
			!slices.Equal(w.lapse.FlagsIn(said), flags) {
			t.Errorf("with %s: %s", others, said)
		}
	}
	if said := w.lapse.BeginAnew(flags, 0); !strings.Contains(said,
		"the log goes on without messages: 1 messages are missing (sequences ") {
		t.Errorf("with %s: %s", flags, said)
	}
	w.lapse.Start()
	for range 2 {
		w.connectEmbedded()
		for id, there := range map[string]bool{"a": true, "lost": false, "b": true} {
			if found := w.readable("c", id); found != there {
				t.Errorf("c/%s is found: %v, want %v", id, found, there)
			}
		}
		w.lapse.Kill()
		w.lapse.Start()
	}
}

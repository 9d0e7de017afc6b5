package integration

import (
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG5_NothingComesBack: a document that was expired when the configuration changed stays expired, reaped or not,
// whatever the change. Its event has the deadline under the old configuration.
//
// It fails if lapse judges by the current default alone; if it forgets the history of the
// default before all due documents are reaped; if turning TTL off drops the index entries
// of expired documents.
func TestG5_NothingComesBack(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	changes := map[string]string{
		"raised": `{"defaultTtl":100}`, "without": `{"defaultTtl":-1}`, "off": `{}`, "unindexed": `{}`, "twice": `{}`,
	}
	expired := map[string]wire.Outcome{}
	for c := range changes {
		w.Configure(c, `{"defaultTtl":1}`)
		for i := range 20 {
			id := fmt.Sprint(i)
			expired[c] = w.Want(201, wire.Create, c, id, map[bool]string{true: `{}`, false: `{"ttl":1}`}[i%2 == 0])
		}
		w.Want(201, wire.Create, c, "alive", `{"ttl":3600}`)
	}
	// No processor reaps between the deadline and the change.
	w.stopProcessor()
	latest := wire.Time(0)
	for _, o := range expired {
		latest = max(latest, *o.ExpiresAt)
	}
	after(t, latest)
	for c, change := range changes {
		w.Send(w.Prefix.Config(c), change, nil)
	}
	w.Send(w.Prefix.Config("unindexed"), `{"indexingMode":"none"}`, nil)
	w.Send(w.Prefix.Config("twice"), `{"defaultTtl":200}`, nil)
	w.startProcessor()

	for c, last := range expired {
		for i := range 20 {
			if id := fmt.Sprint(i); w.readable(c, id) {
				t.Errorf("%s/%s came back", c, id)
			}
		}
		if !w.readable(c, "alive") {
			t.Errorf("%s/alive is not found", c)
		}
		w.ExpiryOf(c, "19", last.Etag, harness.Limit)
	}
	// Now they are reaped. TTL is turned on again, and still none comes back.
	for c := range changes {
		if c == "unindexed" {
			w.Configure(c, `{}`)
		}
		w.Configure(c, `{"defaultTtl":300}`)
		if w.readable(c, "0") {
			t.Errorf("%s/0 came back", c)
		}
	}
	result := w.verify()
	if n := len(result.Model.Expiries); n < 100 {
		t.Errorf("%d expirations, want at least 100", n)
	}
}

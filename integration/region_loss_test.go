package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRegion_UnplannedLosesTheTailAlone: the link is down, and the first region goes on; then its servers are killed,
// and the other region is promoted. It has everything up to the message that the command names. When the first region
// comes back, it refuses and does nothing until lapse demote has saved what only it has; then it follows.
//
// It fails if a write that was mirrored is lost, or has no event or two; if the region that comes back publishes or
// appends anything; if lapse demote loses a write that only it has, or saves another one.
func TestRegion_UnplannedLosesTheTailAlone(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	for i := range 3 {
		r.a.Configure(fmt.Sprintf("c%d", i), `{"defaultTtl":2}`)
	}
	l := startLoad(t, r.a.Client, 41)
	l.wait(t, 300)
	if out := r.command(r.b, 1, "promote"); !strings.Contains(out, "--from") {
		t.Errorf("lapse promote while the first region answers: %s", out)
	}
	l.wait(t, 100)
	r.Link.Down()
	l.wait(t, 500)
	gone := r.a.Want(201, wire.Upsert, "tail", "gone", `{}`)
	l.end()
	r.a.lapse.Kill()
	r.a.nats.Kill()

	last := named(t, r.command(r.b, 0, "promote"))
	began := time.Now()
	r.b.lapse.Ready()
	t.Logf("region b is ready %v after the command", time.Since(began))
	mirrored := r.b.Log()[:last]
	if last < 400 || last >= uint64(gone.Etag) || r.b.Found("tail", "gone") {
		t.Errorf("region b has everything up to %d, and of %d messages of the other region", last, gone.Etag)
	}
	later := startLoad(t, r.b.Client, 42)
	later.wait(t, 200)
	later.end()
	lateness(t, r.b.verify())

	r.b.lapse.Kill() // which would make region a refuse; region a finds out by itself
	r.a.nats.Start()
	r.Link.Up()
	r.Linked(t)
	inA, inB := r.endsOf(r.a), r.endsOf(r.b)
	if why := r.a.lapse.Refuses(); !strings.Contains(why, "another region was promoted") {
		t.Errorf("it refuses for another reason: %s", why)
	}
	after(t, now()+2000) // documents are due
	if a, b := r.endsOf(r.a), r.endsOf(r.b); a != inA || b != inB {
		t.Errorf("the streams end at %v and %v, and ended at %v and %v before lapse started in region a", a, b, inA,
			inB)
	}
	r.b.lapse.Start()
	r.b.verify()
	r.tail(r.a.Log(), mirrored)
	r.follow(r.a, r.b)
	r.same()
	r.sameStreams()
	r.a.verify()
	later.verifyStored(t)
}

// named is the message that lapse promote names.
func named(t *testing.T, out string) uint64 {
	t.Helper()
	t.Log(out)
	m := regexp.MustCompile(`up to message ([0-9]+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal("the command names no message")
	}
	seq, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// endsOf are the last sequences of the log and of the events of a region.
func (r *twoRegions) endsOf(w *inRegion) (ends [2]uint64) {
	r.t.Helper()
	harness.Until(r.t, harness.Limit, "JetStream of region "+w.Name+" tells the ends of its streams",
		func(ctx context.Context) error {
			for i, name := range []string{w.Prefix.LogStream(), w.Prefix.EventsStream()} {
				info, err := stored.Info(ctx, w.JS, name)
				if err != nil {
					return err
				}
				ends[i] = info.State.LastSeq
			}
			return nil
		})
	return ends
}

// tail demotes region a, and checks that this saves exactly what follows in its log behind what the other region has of
// it.
func (r *twoRegions) tail(log, mirrored []oracle.Message) {
	r.t.Helper()
	for i, m := range mirrored {
		if n := log[i]; n.Seq != m.Seq || n.At != m.At || n.Subject != m.Subject || string(n.Data) != string(m.Data) {
			r.t.Fatalf("message %d is %s in a, and %s in b", m.Seq, n.Subject, m.Subject)
		}
	}
	var want []oracle.Message
	for _, m := range log[len(mirrored):] {
		if m.Subject != r.a.Prefix.Log(0, 1).Tick() {
			want = append(want, m)
		}
	}
	if code := r.a.lapse.Terminate(); code != 0 {
		r.t.Errorf("exit code %d", code)
	}
	if out := r.demote(r.a, 1); !strings.Contains(out, fmt.Sprintf(" %d messages ", len(want))) {
		r.t.Errorf("lapse demote is to name %d messages: %s", len(want), out)
	}
	file := filepath.Join(r.t.TempDir(), "saved")
	r.t.Log(r.demote(r.a, 0, "--save", file))
	content, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(lines) != len(want) {
		r.t.Fatalf("%d messages are saved, want %d", len(lines), len(want))
	}
	for i, line := range lines {
		var saved processor.Unmirrored
		if err := json.Unmarshal([]byte(line), &saved); err != nil {
			r.t.Fatal(err)
		}
		body := saved.Body
		if saved.Bytes != nil {
			body = string(saved.Bytes)
		}
		if m := want[i]; saved.Seq != m.Seq || saved.Subject != m.Subject || body != string(m.Data) {
			r.t.Fatalf("saved is %s, want message %d %s", line, m.Seq, m.Subject)
		}
	}
}

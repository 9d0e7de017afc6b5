package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/integration/oracle"
	lapseclient "github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// command runs lapse with arguments on the servers of a region. It has to end with a code.
func (r *twoRegions) command(w *inRegion, code int, args ...string) string {
	r.t.Helper()
	out, errOut, ended := harness.Run(r.t, "lapse", nil, append(args, "--server", w.URL())...)
	if ended != code {
		r.t.Fatalf("lapse %s ended with code %d, want %d: %s%s", strings.Join(args, " "), ended, code, out, errOut)
	}
	return out + errOut
}

// handOver lets the first region hand over to another one, and makes it a follower.
func (r *twoRegions) handOver(from, to *inRegion, meanwhile ...func()) {
	r.t.Helper()
	r.t.Log(r.command(to, 0, "promote", "--from", from.Name))
	for _, do := range meanwhile {
		do()
	}
	if why := from.lapse.Refuses(); !strings.Contains(why, "another region was promoted") {
		r.t.Errorf("region %s refuses for another reason: %s", from.Name, why)
	}
	to.lapse.Ready()
	r.comeBack(from, to)
}

// comeBack makes a region that was superseded a follower of the one that is the first now.
func (r *twoRegions) comeBack(w, first *inRegion, flags ...string) {
	r.t.Helper()
	if code := w.lapse.Terminate(); code != 0 {
		r.t.Errorf("exit code %d", code)
	}
	r.demote(w, 0, flags...)
	r.follow(w, first)
}

// demote runs lapse demote in a region, once no process is remembered there that was killed. It has to end with a code.
func (r *twoRegions) demote(w *inRegion, code int, flags ...string) (text string) {
	r.t.Helper()
	harness.Until(r.t, harness.Limit, "lapse demote ends with "+fmt.Sprint(code), func(context.Context) error {
		out, errOut, ended := harness.Run(r.t, "lapse", nil,
			append([]string{"demote", "--server", w.URL()}, flags...)...)
		if text = out + errOut; ended != code || strings.Contains(text, "runs here") {
			return fmt.Errorf("code %d: %s", ended, text)
		}
		return nil
	})
	return text
}

// lateness logs how late the events were.
func lateness(t *testing.T, result oracle.Result) {
	t.Helper()
	late := slices.Sorted(slices.Values(result.Lateness))
	if len(late) == 0 {
		t.Error("there are no events")
		return
	}
	t.Logf("%d events, late: median %v, 99%% %v, longest %v", len(late), late[len(late)/2], late[len(late)*99/100],
		late[len(late)-1])
}

// patient are writers by the Go client, of documents that live for some seconds. They repeat what they do not know
// the outcome of.
type patient struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	acked map[string]uint64 // sequences by id
	alive []alive           // those that were acknowledged with a deadline, in the order in which they were
	again int               // repetitions
	last  time.Time
	gap   time.Duration // the longest between two acknowledgements
}

// alive is a version of a document, and its deadline.
type alive struct {
	id   string
	etag wire.Etag
	ends wire.Time
}

// startPatient starts writers in some regions. each is what distinguishes their documents from those of others.
func startPatient(t *testing.T, each string, in ...*inRegion) *patient {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &patient{stop: stop, acked: map[string]uint64{}, last: time.Now()}
	for _, w := range in {
		c, err := lapseclient.Connect(lapseclient.Options{Server: w.URL(), Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for n := range 2 {
			p.done.Go(func() { p.write(ctx, c, fmt.Sprintf("%s %s%d", each, w.Name, n)) })
		}
	}
	t.Cleanup(p.end)
	return p
}

func (p *patient) end() { p.stop(); p.done.Wait() }

func (p *patient) write(ctx context.Context, c *lapseclient.Client, name string) {
	for i := 0; pause(ctx, 20*time.Millisecond); i++ {
		id := fmt.Sprintf("%s %d", name, i)
		m := lapseclient.Message{Subject: wire.DefaultPrefix.Write(wire.Upsert, "patient", id),
			Body: fmt.Appendf(nil, `{"ttl":%d}`, 1+i%5), ID: id}
		for {
			result, err := c.Write(context.WithoutCancel(ctx), m)
			p.mu.Lock()
			if err == nil {
				now := time.Now()
				p.acked[id], p.gap, p.last = result.Seq, max(p.gap, now.Sub(p.last)), now
				if o := result.Outcome; o.ExpiresAt != nil {
					p.alive = append(p.alive, alive{id, o.Etag, *o.ExpiresAt})
				}
				p.mu.Unlock()
				break
			}
			p.again++
			p.mu.Unlock()
			if !pause(ctx, 10*time.Millisecond) {
				return
			}
		}
	}
}

// verifyStored checks that a log has every write that was acknowledged, at its sequence.
func (p *patient) verifyStored(t *testing.T, log []oracle.Message) {
	t.Helper()
	at := map[uint64]oracle.Message{}
	for _, m := range log {
		at[m.Seq] = m
	}
	for id, seq := range p.acked {
		if m, ok := at[seq]; !ok || m.Subject != wire.DefaultPrefix.Write(wire.Upsert, "patient", id) {
			t.Errorf("write %s was acknowledged at %d, where the log has %q", id, seq, m.Subject)
		}
	}
	t.Logf("%d writes by the Go client, %d repetitions, the longest time without an acknowledgement %v", len(p.acked),
		p.again, p.gap)
}

// TestAll_RegionPlannedChangeOver: under writes through both regions the first region hands over to the other one,
// becomes its follower, and takes over again in the same way.
//
// It fails if an acknowledged write is lost; if a version that expires has no event in the region that is the first
// at the end, or has two; if a former first region goes on; if it has another state as a follower.
func TestAll_RegionPlannedChangeOver(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	r.a.Configure("patient", `{"defaultTtl":3}`)
	a, b := startLoad(t, r.a.Client, 31), startLoad(t, r.b.Client, 32)
	writers := startPatient(t, "w", r.a, r.b)
	go1 := func() { a.wait(t, 200); b.wait(t, 200) }
	go1()
	r.handOver(r.a, r.b, go1)
	go1()
	r.handOver(r.b, r.a, go1)
	writers.end()
	a.end()
	b.end()
	lateness(t, r.a.verify())
	r.b.verify()
	r.same()
	r.sameStreams()
	a.verifyStored(t)
	b.verifyStored(t)
	writers.verifyStored(t, r.a.Log())
}

package browser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// rows are the ids in the table of what is live, the oldest first.
func (b *tab) rows() []string {
	b.t.Helper()
	ids := eval[[]string](b, `[...document.querySelectorAll("#messages tbody tr")].map(e => e.cells[3].innerText)`)
	slices.Reverse(ids)
	return ids
}

// expire writes documents and waits until all of them have expired, with their events.
func expire(t *testing.T, c *client.Collection[document], ids ...string) {
	t.Helper()
	for _, id := range ids {
		put(t, c, id, document{"id": id}, client.TTL(time.Second))
	}
	gone(t, c)
}

// gone waits until all documents have expired, with their events.
func gone(t *testing.T, c *client.Collection[document]) {
	t.Helper()
	harness.Until(t, harness.Limit, "all documents have expired", func(ctx context.Context) error {
		n, err := c.Count(ctx)
		if err == nil && n.Live+n.Expired > 0 {
			err = fmt.Errorf("%d are left", n.Live+n.Expired)
		}
		return err
	})
}

// live: events come while a person looks; they can be filtered, and a pause loses nothing.
func (r *rig) live(t *testing.T) {
	ticks, other := r.collection(t, "ticks", client.Never), r.collection(t, "other", client.Never)
	b := r.tab(t)
	b.open("/console/live")
	b.untilText("#connection", "Live")
	put(t, other, "elsewhere", document{"id": "elsewhere"}, client.TTL(time.Second))
	expire(t, ticks, "a", "b")
	b.untilText("#messages", "elsewhere")
	b.untilText("#messages", "ticks")
	b.inspect("live")

	b.typeIn("#collection", "ticks")
	b.clickTo(`form[action="/console/live"] button`)
	b.untilText("#connection", "Live")
	if got := b.rows(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b"}) {
		t.Errorf("the filter leaves %v", got)
	}
	b.click("#pause")
	b.untilText("#connection", "Paused")
	expire(t, ticks, "c")
	put(t, other, "hidden", document{"id": "hidden"}, client.TTL(time.Second))
	expire(t, ticks, "d")
	gone(t, other)
	if got := b.rows(); len(got) != 2 {
		t.Errorf("while it is paused, the page shows %v", got)
	}
	b.glance("live-paused")
	b.click("#pause")
	b.until("what was missed is there", `document.querySelectorAll("#messages tbody tr").length >= 4`)
	expire(t, ticks, "e")
	b.untilText("#messages tbody tr", "e")
	if got := b.rows(); len(got) != 5 || !slices.Equal(got[2:], []string{"c", "d", "e"}) {
		t.Errorf("after the pause, the page shows %v", got)
	}

	// Of some ids, with their pace.
	b.typeIn("#ids", "q")
	b.clickTo(`form[action="/console/live"] button`)
	b.untilText("#connection", "Live")
	expire(t, ticks, "r", "q1")
	b.untilText("#messages tbody tr", "q1")
	if got := b.rows(); !slices.Equal(got, []string{"q1"}) {
		t.Errorf("the filter of ids shows %v", got)
	}
	b.untilText("#pace", "0.1 a second")
	b.untilText("#lateness", " ms (p99)")
	b.inspect("live-ids")
	b.open("/console/live?collection=ticks")

	// The rate is right at once.
	harness.Until(t, harness.Limit, "the page begins with the rate", b.once(func() bool {
		expire(t, ticks, "s", "u", "v")
		b.open("/console/live?collection=ticks")
		b.untilText("#pace", "a second")
		return b.text("#pace") != "0.0 a second"
	}))

	// Warnings.
	b.clickTo(`nav[aria-label="What to follow"] a[href*="warnings"]`)
	b.untilText("#connection", "Live")
	e := wire.Expiring{ID: "soon", Collection: "ticks", Document: []byte(`{"n":7}`), Etag: 7, Ts: 1769860800000,
		TTL: 90, ExpiresAt: 1769860830000, Before: 5}
	if err := harness.Warn(t.Context(), r.client.Conn(), e, ""); err != nil {
		t.Fatal(err)
	}
	b.untilText("#messages tbody tr", "soon")
	b.untilText("#messages tbody tr", "12:00:25")
	b.untilText("#messages tbody tr", "12:00:30")
	b.inspect("live-warnings")

	// Rejections.
	b.clickTo(`nav[aria-label="What to follow"] a[href*="rejections"]`)
	b.untilText("#connection", "Live")
	if _, err := ticks.Upsert(t.Context(), "bad", document{"ttl": 0}); !errors.Is(err, client.ErrRejected) {
		t.Fatalf("a TTL of 0: %v", err)
	}
	b.untilText("#messages tbody tr", "400")
	b.untilText("#messages tbody tr .reason", "ttl")
	b.inspect("live-rejections")
	b.clickTo("#messages tbody a")
	b.untilText("h1", "Rejected")
	b.untilText(".state", "400: ttl 0 is not valid")
	b.glance("rejection")
}

// changes: what is written while a person looks is shown, with what it did.
func (r *rig) changes(t *testing.T) {
	b := r.tab(t)
	c, err := client.Open[document](r.client, "changing")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Configure(t.Context(), client.Config{DefaultTTL: client.Never, Changes: true}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "first", document{"n": 1})
	b.open("/console/live?collection=changing")
	b.clickTo(`nav[aria-label="What to follow"] a[href*="changes"]`)
	b.untilText("#messages", "first")
	b.untilText("#connection", "Live")
	put(t, c, "second", document{"n": 2}, client.TTL(time.Hour))
	b.untilText("#messages tbody tr", "created")
	put(t, c, "second", document{"n": 3}, client.TTL(time.Second))
	b.untilText("#messages", "updated")
	b.untilText("#messages tbody tr", "expired")
	if _, err := c.Delete(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	b.untilText("#messages tbody tr", "deleted")
	if got := b.rows(); !slices.Equal(got, []string{"first", "second", "second", "second", "first"}) {
		t.Errorf("the page shows %v", got)
	}
	b.inspect("live-changes")
	b.open("/console/live?collection=ticks&kind=changes")
	b.untilText("#no-changes", "does not publish")
	b.glance("live-no-changes")
}

// leave: documents that expire leave their list while a person looks; one that was renewed stays.
func (r *rig) leave(t *testing.T) {
	c := r.collection(t, "leaving", client.Never)
	b := r.tab(t)
	b.expect("status of 404")
	put(t, c, "stays", document{"n": 0}, client.TTL(time.Hour))
	// until they live longer than the page takes
	for ttl := 2 * time.Second; b.count(`tr[data-id="renewed"]`) == 0; ttl *= 2 {
		for _, id := range []string{"1", "2", "renewed"} {
			put(t, c, id, document{"n": 1}, client.TTL(ttl))
		}
		b.open("/console/collections/leaving")
	}
	put(t, c, "renewed", document{"n": 2}, client.TTL(time.Hour))
	b.until("those that have expired leave", `!document.querySelector('tr[data-id="1"], tr[data-id="2"]')`)
	b.untilText(`tr[data-id="renewed"]`, "in 59 min")
	b.untilText(`tr[data-id="stays"]`, "in 59 min")
}

// killed: lapse is killed and started again; the pages say so, go on by themselves, and miss
// nothing.
func (r *rig) killed(t *testing.T) {
	const n = 20
	c := r.collection(t, "killed", client.Never)
	live, overview := r.tab(t), r.tab(t)
	for _, b := range []*tab{live, overview} {
		b.expect("net::ERR_|status of 503")
	}
	overview.open("/")
	live.open("/console/live?collection=killed")
	live.untilText("#connection", "Live")
	for i := range n {
		put(t, c, fmt.Sprint(i), document{"n": i}, client.TTL(time.Duration(1+i%3)*time.Second))
	}
	live.until("the first have expired", `document.querySelectorAll("#messages tbody tr").length > 0`)
	r.lapse.Kill()
	live.untilText("#connection", "No connection")
	overview.untilText("#health", "No answer")
	r.lapse.Start()
	live.untilText("#connection", "Live")
	overview.untilText("#health", "Ready")
	gone(t, c)
	live.until("all events are there", fmt.Sprintf(`document.querySelectorAll("#messages tbody tr").length >= %d`, n))
	got := live.rows()
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(got)) != n {
		t.Errorf("the page shows %v", got)
	}
}

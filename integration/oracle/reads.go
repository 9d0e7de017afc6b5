package oracle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// CompareReads reads everything and compares it with the model: each document that was
// ever written, by Get; every live document, by List; those that will expire, by Expiring; and each
// collection's count and configuration. A document that expires meanwhile may be found or not. now is the clock.
func (m *Model) CompareReads(ctx context.Context, reads readers.Reads, now func() wire.Time) Diff {
	c := comparison{m: m, reads: reads, now: now, live: m.Live(now())}
	work := make(chan Name)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for name := range work {
				c.get(ctx, name)
			}
		})
	}
	for _, name := range m.Names() {
		work <- name
	}
	close(work)
	workers.Wait()
	for _, collection := range m.Collections() {
		if !m.exists(collection) {
			c.absent(ctx, collection)
			continue
		}
		c.list(ctx, collection)
		c.expiring(ctx, collection)
		c.count(ctx, collection)
		c.config(ctx, collection)
	}
	return c.diff
}

// comparison is one run of CompareReads.
type comparison struct {
	m     *Model
	reads readers.Reads
	now   func() wire.Time
	live  map[Name]Live // at the start of the run

	mu   sync.Mutex
	diff Diff
}

func (c *comparison) add(kind Kind, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diff.add(kind, c.reads.String()+": "+format, args...)
}

// still reports whether a document that was live at the start is live now.
func (c *comparison) still(live Live) bool { return live.ExpiresAt == nil || *live.ExpiresAt > c.now() }

// absent compares what is read of a collection that does not exist.
func (c *comparison) absent(ctx context.Context, collection string) {
	_, listed := c.reads.List(ctx, collection)
	_, expiring := c.reads.Expiring(ctx, collection)
	_, counted := c.reads.Count(ctx, collection)
	_, config := c.reads.Config(ctx, collection)
	for what, err := range map[string]error{"list": listed, byDeadline: expiring, "count": counted, "config": config} {
		if !errors.Is(err, sink.ErrNotFound) {
			c.add(Unexpected, "%s %s: %v, want an error, as the collection does not exist", what, collection, err)
		}
	}
}

func (c *comparison) get(ctx context.Context, name Name) {
	want, live := c.live[name]
	live = live && c.m.exists(name.Collection)
	began := c.now()
	got, err := c.reads.Get(ctx, name.Collection, name.ID)
	switch {
	case errors.Is(err, sink.ErrNotFound):
		if live && c.still(want) {
			c.add(Missing, "get %s: not found, want version %s", name, want.Etag)
		}
	case err != nil:
		c.add(Missing, "get %s: %v", name, err)
	case !live:
		c.add(Unexpected, "get %s: version %s, which is %s", name, got.Etag, c.m.fate("/"+got.Etag.String()))
	default:
		c.document("get", name, got, want, began)
	}
}

// document compares a document that was read by a read that began at an instant.
func (c *comparison) document(how string, name Name, got sink.Document, want Live, began wire.Time) {
	what := how + " " + name.String()
	if got.Etag != want.Etag {
		c.add(Wrong, "%s: version %s, want %s", what, got.Etag, want.Etag)
		return
	}
	if want.ExpiresAt != nil && *want.ExpiresAt <= began {
		c.add(Unexpected, "%s: read at %s, but expired at %s", what, began, want.ExpiresAt)
	}
	if got.ID != name.ID {
		c.add(Wrong, "%s: id %q", what, got.ID)
	}
	if got.Ts != want.Ts {
		c.add(Wrong, "%s: ts %s, want %s", what, got.Ts, want.Ts)
	}
	if !equal(got.ExpiresAt, want.ExpiresAt) {
		c.add(Wrong, "%s: expires at %v, want %v", what, got.ExpiresAt, want.ExpiresAt)
	}
	_, service := c.reads.(readers.Service)
	born := want.Born
	if born == want.Begin {
		born = 0
	}
	if clock := !service || how != "get"; clock && (got.Clock != want.Begin || got.Created != born ||
		!equal(got.Deadline, want.End) || !equal(got.NotAfter, want.Last)) {
		c.add(Wrong, "%s: created at %s, clock from %s to %v, at most %v; want %s, %s, %v, %v", what, got.Created,
			got.Clock, got.Deadline, got.NotAfter, born, want.Begin, want.End, want.Last)
	}
	if got.Target != want.Target {
		c.add(Wrong, "%s: target %q, want %q", what, got.Target, want.Target)
	}
	same := want.sameBody
	if service && how != "get" {
		same = patch.Same // the page is one JSON text, so the bytes of a document may change
	}
	if !same(got.Body, want.Body) {
		c.add(Wrong, "%s: body %s, want %s", what, abbreviate(got.Body), abbreviate(want.Body))
	}
}

func (c *comparison) list(ctx context.Context, collection string) {
	began := c.now()
	got, err := c.reads.List(ctx, collection)
	c.listed("list", collection, began, got, err)
}

// expiring compares the list by deadline.
func (c *comparison) expiring(ctx context.Context, collection string) {
	began := c.now()
	got, err := c.reads.Expiring(ctx, collection)
	c.listed(byDeadline, collection, began, got, err)
	for i, d := range got {
		if d.ExpiresAt == nil {
			c.add(Unexpected, "%s %s: %s, which never expires", byDeadline, collection, d.ID)
		} else if i > 0 && got[i-1].ExpiresAt != nil && cmp.Or(cmp.Compare(*got[i-1].ExpiresAt, *d.ExpiresAt),
			cmp.Compare(got[i-1].ID, d.ID)) >= 0 {
			c.add(Order, "%s %s: %s of %s comes after %s of %s", byDeadline, collection, d.ID, d.ExpiresAt, got[i-1].ID,
				got[i-1].ExpiresAt)
		}
	}
}

// byDeadline is the kind of list that has only documents that will expire.
const byDeadline = "list by deadline"

// listed compares the documents of a list that began at an instant.
func (c *comparison) listed(how, collection string, began wire.Time, got []sink.Document, err error) {
	if err != nil {
		c.add(Missing, "%s %s: %v", how, collection, err)
		return
	}
	seen := map[Name]bool{}
	for _, d := range got {
		name := Name{collection, d.ID}
		if seen[name] {
			c.add(Twice, "%s %s: %s", how, collection, name)
			continue
		}
		seen[name] = true
		if want, live := c.live[name]; live {
			c.document(how, name, d, want, began)
		} else {
			c.add(Unexpected, "%s %s: %s version %s, which is %s", how, collection, name, d.Etag,
				c.m.fate("/"+d.Etag.String()))
		}
	}
	for name, want := range c.live {
		if name.Collection == collection && !seen[name] && c.still(want) &&
			(how != byDeadline || want.ExpiresAt != nil) {
			c.add(Missing, "%s %s: %s is not in it, want version %s", how, collection, name, want.Etag)
		}
	}
}

func (c *comparison) count(ctx context.Context, collection string) {
	got, err := c.reads.Count(ctx, collection)
	if err != nil {
		c.add(Missing, "count %s: %v", collection, err)
		return
	}
	var least, most int64
	for name, live := range c.live {
		if name.Collection == collection {
			most++
			if c.still(live) {
				least++
			}
		}
	}
	kind := Unexpected
	if got.Live < least {
		kind = Missing
	}
	if got.Live < least || got.Live > most {
		c.add(kind, "count %s: %d live, want %d to %d", collection, got.Live, least, most)
	}
}

func (c *comparison) config(ctx context.Context, collection string) {
	got, err := c.reads.Config(ctx, collection)
	if err != nil {
		c.add(Missing, "config %s: %v", collection, err)
		return
	}
	want := c.m.Config(collection)
	gotText, _ := json.Marshal(got)
	wantText, _ := json.Marshal(want)
	if string(gotText) != string(wantText) {
		c.add(Wrong, "config %s: %s, want %s", collection, gotText, wantText)
	}
}

// equal compares two values of which both or none must be there.
func equal[T comparable](a, b *T) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

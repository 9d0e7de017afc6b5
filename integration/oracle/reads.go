package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Reads is one way to read documents. Get returns sink.ErrNotFound for a document that
// is expired or absent.
type Reads interface {
	Get(ctx context.Context, collection, id string) (sink.Document, error)
	// List returns a whole collection.
	List(ctx context.Context, collection string) ([]sink.Document, error)
	Count(ctx context.Context, collection string) (wire.CountReply, error)
	Config(ctx context.Context, collection string) (wire.Config, error)
	String() string
}

// ByService reads through the read service on NATS.
func ByService(nc *nats.Conn, prefix wire.Prefix) Reads { return service{nc, prefix} }

// ByReader reads from Redis through a sink.Reader.
func ByReader(r *sink.Reader) Reads { return reader{r} }

type reader struct{ *sink.Reader }

func (reader) String() string { return "sink.Reader" }

// The first page is small, so that a list needs continuations; later pages are larger.
const firstPage, largestPage = 50, 1000

func (r reader) List(ctx context.Context, collection string) ([]sink.Document, error) {
	return pages(func(limit int, continuation string) ([]sink.Document, string, error) {
		page, err := r.Reader.List(ctx, collection, sink.ListOptions{Limit: limit, Continuation: continuation})
		return page.Documents, page.Continuation, err
	})
}

// pages reads all pages of a list.
func pages(read func(limit int, continuation string) ([]sink.Document, string, error)) (all []sink.Document, err error) {
	limit, continuation := firstPage, ""
	for first := true; first || continuation != ""; first = false {
		var page []sink.Document
		if page, continuation, err = read(limit, continuation); err != nil {
			return nil, err
		}
		all = append(all, page...)
		limit = min(2*limit, largestPage)
	}
	return all, nil
}

type service struct {
	nc     *nats.Conn
	prefix wire.Prefix
}

func (service) String() string { return "the read service" }

func (s service) request(ctx context.Context, subject string, request, reply any) (*nats.Msg, error) {
	data := []byte{}
	if request != nil {
		var err error
		if data, err = json.Marshal(request); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	msg, err := s.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	switch code := msg.Header.Get("Nats-Service-Error-Code"); code {
	case "":
	case "404":
		return nil, sink.ErrNotFound
	default:
		return nil, fmt.Errorf("%s: error %s: %s", subject, code, msg.Header.Get("Nats-Service-Error"))
	}
	if reply != nil {
		if err := json.Unmarshal(msg.Data, reply); err != nil {
			return nil, fmt.Errorf("%s: reply %s: %w", subject, abbreviate(msg.Data), err)
		}
	}
	return msg, nil
}

func (s service) Get(ctx context.Context, collection, id string) (sink.Document, error) {
	msg, err := s.request(ctx, s.prefix.ReadGet(collection, id), nil, nil)
	if err != nil {
		return sink.Document{}, err
	}
	d := sink.Document{ID: id, Body: msg.Data}
	if d.Etag, err = wire.ParseEtag(msg.Header.Get(wire.HeaderEtag)); err != nil {
		return d, err
	}
	if err := d.Ts.UnmarshalText([]byte(msg.Header.Get(wire.HeaderTs))); err != nil {
		return d, err
	}
	if text := msg.Header.Get(wire.HeaderExpiresAt); text != "" {
		d.ExpiresAt = new(wire.Time)
		if err := d.ExpiresAt.UnmarshalText([]byte(text)); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (s service) List(ctx context.Context, collection string) ([]sink.Document, error) {
	return pages(func(limit int, continuation string) (page []sink.Document, next string, err error) {
		var reply wire.ListReply
		_, err = s.request(ctx, s.prefix.Read("list", collection), wire.ListRequest{Limit: limit, Continuation: continuation}, &reply)
		for _, d := range reply.Documents {
			page = append(page, sink.Document{ID: d.ID, Etag: d.Etag, Ts: d.Ts, ExpiresAt: d.ExpiresAt, Body: d.Document})
		}
		return page, reply.Continuation, err
	})
}

func (s service) Count(ctx context.Context, collection string) (reply wire.CountReply, err error) {
	_, err = s.request(ctx, s.prefix.Read("count", collection), nil, &reply)
	return reply, err
}

func (s service) Config(ctx context.Context, collection string) (reply wire.Config, err error) {
	_, err = s.request(ctx, s.prefix.Read("config", collection), nil, &reply)
	return reply, err
}

// CompareReads reads everything and compares it with the model: each document that was
// ever written, by Get; every live document, by List; and each collection's count and
// configuration. A document that expires meanwhile may be found or not. now is the clock.
func (m *Model) CompareReads(ctx context.Context, reads Reads, now func() wire.Time) Diff {
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
		c.list(ctx, collection)
		c.count(ctx, collection)
		c.config(ctx, collection)
	}
	return c.diff
}

// comparison is one run of CompareReads.
type comparison struct {
	m     *Model
	reads Reads
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

func (c *comparison) get(ctx context.Context, name Name) {
	want, live := c.live[name]
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
	same := want.sameBody
	if _, ok := c.reads.(service); ok && how == "list" {
		same = patch.Same // the page is one JSON text, so the bytes of a document may change
	}
	if !same(got.Body, want.Body) {
		c.add(Wrong, "%s: body %s, want %s", what, abbreviate(got.Body), abbreviate(want.Body))
	}
}

func (c *comparison) list(ctx context.Context, collection string) {
	began := c.now()
	got, err := c.reads.List(ctx, collection)
	if err != nil {
		c.add(Missing, "list %s: %v", collection, err)
		return
	}
	seen := map[Name]bool{}
	for _, d := range got {
		name := Name{collection, d.ID}
		if seen[name] {
			c.add(Twice, "list %s: %s", collection, name)
			continue
		}
		seen[name] = true
		if want, live := c.live[name]; live {
			c.document("list", name, d, want, began)
		} else {
			c.add(Unexpected, "list %s: %s version %s, which is %s", collection, name, d.Etag, c.m.fate("/"+d.Etag.String()))
		}
	}
	for name, want := range c.live {
		if name.Collection == collection && !seen[name] && c.still(want) {
			c.add(Missing, "list %s: %s is not in it, want version %s", collection, name, want.Etag)
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
	if got.IndexingMode != want.IndexingMode || got.Etag != want.Etag || !equal(got.DefaultTTL, want.DefaultTTL) {
		gotText, _ := json.Marshal(got)
		wantText, _ := json.Marshal(want)
		c.add(Wrong, "config %s: %s, want %s", collection, gotText, wantText)
	}
}

// equal compares two values of which both or none must be there.
func equal[T comparable](a, b *T) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

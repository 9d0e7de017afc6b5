package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Reads is a way to read documents. An expired or absent document is
// sink.ErrNotFound, whatever the way.
type Reads interface {
	Get(ctx context.Context, collection, id string) (sink.Document, error)
	// List reads a whole collection.
	List(ctx context.Context, collection string) ([]sink.Document, error)
	Count(ctx context.Context, collection string) (wire.CountReply, error)
	Config(ctx context.Context, collection string) (wire.Config, error)
	String() string
}

// ByService reads through the NATS service.
func ByService(nc *nats.Conn, prefix wire.Prefix) Reads { return service{nc, prefix} }

// ByReader reads Redis through a sink.Reader.
func ByReader(r *sink.Reader) Reads { return reader{r} }

type reader struct{ *sink.Reader }

func (reader) String() string { return "sink.Reader" }

// Pages are small at first, so that continuations are used, and then become larger.
const firstPage, largestPage = 50, 1000

func (r reader) List(ctx context.Context, collection string) ([]sink.Document, error) {
	var all []sink.Document
	opts := sink.ListOptions{Limit: firstPage}
	for {
		page, err := r.Reader.List(ctx, collection, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Documents...)
		if opts.Continuation = page.Continuation; opts.Continuation == "" {
			return all, nil
		}
		opts.Limit = min(2*opts.Limit, largestPage)
	}
}

type service struct {
	nc     *nats.Conn
	prefix wire.Prefix
}

func (service) String() string { return "the read service" }

func (s service) ask(ctx context.Context, subject string, request, reply any) (*nats.Msg, error) {
	data := []byte{}
	if request != nil {
		var err error
		if data, err = json.Marshal(request); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
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
	msg, err := s.ask(ctx, s.prefix.ReadGet(collection, id), nil, nil)
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
	var all []sink.Document
	request := wire.ListRequest{Limit: firstPage}
	for {
		var reply wire.ListReply
		if _, err := s.ask(ctx, s.prefix.Read("list", collection), request, &reply); err != nil {
			return nil, err
		}
		for _, d := range reply.Documents {
			all = append(all, sink.Document{ID: d.ID, Etag: d.Etag, Ts: d.Ts, ExpiresAt: d.ExpiresAt, Body: d.Document})
		}
		if request.Continuation = reply.Continuation; request.Continuation == "" {
			return all, nil
		}
		request.Limit = min(2*request.Limit, largestPage)
	}
}

func (s service) Count(ctx context.Context, collection string) (reply wire.CountReply, err error) {
	_, err = s.ask(ctx, s.prefix.Read("count", collection), nil, &reply)
	return reply, err
}

func (s service) Config(ctx context.Context, collection string) (reply wire.Config, err error) {
	_, err = s.ask(ctx, s.prefix.Read("config", collection), nil, &reply)
	return reply, err
}

// CompareReads reads everything and holds it against the model: every live
// document by Get and by List, every document that was ever written to and is
// not live by Get, and every collection's count and configuration. A document
// that expires while it reads may be there or not. now is the clock.
func (m *Model) CompareReads(ctx context.Context, reads Reads, now func() wire.Time) Diff {
	c := comparison{m: m, reads: reads, now: now, live: m.Live(now())}
	names := m.Names()
	work := make(chan Name)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for name := range work {
				c.get(ctx, name)
			}
		})
	}
	for _, name := range names {
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
	live  map[Name]Live // when it began

	mu   sync.Mutex
	diff Diff
}

func (c *comparison) note(kind func(*Diff) *[]string, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	note(kind(&c.diff), c.reads.String()+": "+format, args...)
}

func missing(d *Diff) *[]string    { return &d.Missing }
func unexpected(d *Diff) *[]string { return &d.Unexpected }
func wrong(d *Diff) *[]string      { return &d.Wrong }

// must says whether a document that was live at the beginning must still be so.
func (c *comparison) must(live Live) bool { return live.ExpiresAt == nil || *live.ExpiresAt > c.now() }

func (c *comparison) get(ctx context.Context, name Name) {
	want, live := c.live[name]
	began := c.now()
	got, err := c.reads.Get(ctx, name.Collection, name.ID)
	switch {
	case errors.Is(err, sink.ErrNotFound):
		if live && c.must(want) {
			c.note(missing, "get %s: not found, want version %s", name, want.Etag)
		}
	case err != nil:
		c.note(missing, "get %s: %v", name, err)
	case !live:
		c.note(unexpected, "get %s: version %s, which is %s", name, got.Etag, c.m.fate("/"+got.Etag.String()))
	default:
		c.document("get", name, got, want, began)
	}
}

// document compares one that was read, by a read that began at an instant.
func (c *comparison) document(how string, name Name, got sink.Document, want Live, began wire.Time) {
	what := how + " " + name.String()
	if got.Etag != want.Etag {
		c.note(wrong, "%s: version %s, want %s", what, got.Etag, want.Etag)
		return
	}
	if want.ExpiresAt != nil && *want.ExpiresAt <= began {
		c.note(unexpected, "%s: read at %s, but expired at %s", what, began, want.ExpiresAt)
	}
	if got.ID != name.ID {
		c.note(wrong, "%s: id %q", what, got.ID)
	}
	if got.Ts != want.Ts {
		c.note(wrong, "%s: ts %s, want %s", what, got.Ts, want.Ts)
	}
	if (got.ExpiresAt == nil) != (want.ExpiresAt == nil) || got.ExpiresAt != nil && *got.ExpiresAt != *want.ExpiresAt {
		c.note(wrong, "%s: expires at %v, want %v", what, got.ExpiresAt, want.ExpiresAt)
	}
	same := want.sameBody
	if _, embedded := c.reads.(service); embedded && how == "list" {
		same = sameValue // a page is one JSON text, the documents are part of it
	}
	if !same(got.Body, want.Body) {
		c.note(wrong, "%s: body %s, want %s", what, abbreviate(got.Body), abbreviate(want.Body))
	}
}

func (c *comparison) list(ctx context.Context, collection string) {
	began := c.now()
	got, err := c.reads.List(ctx, collection)
	if err != nil {
		c.note(missing, "list %s: %v", collection, err)
		return
	}
	seen := map[Name]bool{}
	for _, d := range got {
		name := Name{collection, d.ID}
		if seen[name] {
			c.note(func(d *Diff) *[]string { return &d.Twice }, "list %s: %s", collection, name)
			continue
		}
		seen[name] = true
		if want, live := c.live[name]; live {
			c.document("list", name, d, want, began)
		} else {
			c.note(unexpected, "list %s: %s version %s, which is %s", collection, name, d.Etag, c.m.fate("/"+d.Etag.String()))
		}
	}
	for name, want := range c.live {
		if name.Collection == collection && !seen[name] && c.must(want) {
			c.note(missing, "list %s: not there: %s, want version %s", collection, name, want.Etag)
		}
	}
}

func (c *comparison) count(ctx context.Context, collection string) {
	got, err := c.reads.Count(ctx, collection)
	if err != nil {
		c.note(missing, "count %s: %v", collection, err)
		return
	}
	var least, most int64
	for name, live := range c.live {
		if name.Collection == collection {
			most++
			if c.must(live) {
				least++
			}
		}
	}
	if got.Live < least || got.Live > most {
		c.note(wrong, "count %s: %d live, want %d to %d", collection, got.Live, least, most)
	}
}

func (c *comparison) config(ctx context.Context, collection string) {
	got, err := c.reads.Config(ctx, collection)
	if err != nil {
		c.note(missing, "config %s: %v", collection, err)
		return
	}
	want := c.m.Config(collection)
	same := got.IndexingMode == want.IndexingMode && (got.DefaultTTL == nil) == (want.DefaultTTL == nil) &&
		(got.DefaultTTL == nil || *got.DefaultTTL == *want.DefaultTTL)
	if !same {
		gotText, _ := json.Marshal(got)
		wantText, _ := json.Marshal(want)
		c.note(wrong, "config %s: %s, want %s", collection, gotText, wantText)
	}
}

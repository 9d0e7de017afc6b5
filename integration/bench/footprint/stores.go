package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

const (
	collection = "orders"
	far        = 4_102_444_800_000 // 2100-01-01: documents are judged by the watermark, not by the clock
	bodyBytes  = 256
	perCommit  = 500
	patience   = time.Minute // for one operation
	least      = time.Second // for which an operation is repeated
	most       = 1000        // times that it is repeated at most
)

// candidate is a store that can stand in for Redis.
type candidate struct {
	name  string
	start func() (at *redis.Options, stop func(), err error)
}

var candidates = []candidate{
	{"miniredis", func() (*redis.Options, func(), error) {
		m, err := miniredis.Run()
		if err != nil {
			return nil, nil, err
		}
		return &redis.Options{Addr: m.Addr()}, m.Close, nil
	}},
	{"embedded", func() (*redis.Options, func(), error) {
		s := embedded.New(nil)
		return &redis.Options{Dialer: s.Dial}, s.Close, nil
	}},
}

// measureStores prints what the embedded Redis costs, beside what miniredis does.
func measureStores(ctx context.Context, out io.Writer, counts []int) error {
	for _, n := range counts {
		figures := map[string]string{} // by candidate and operation
		var order []string             // of the operations
		for _, c := range candidates {
			all, err := measureStore(ctx, c, n)
			if err != nil {
				return fmt.Errorf("%s with %d documents: %w", c.name, n, err)
			}
			for _, f := range all {
				figures[c.name+f.what] = f.value
				if !slices.Contains(order, f.what) {
					order = append(order, f.what)
				}
			}
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "%d documents of %d B", n, bodyBytes)
		for _, c := range candidates {
			fmt.Fprintf(w, "\t%s", c.name)
		}
		fmt.Fprintln(w)
		for _, what := range order {
			fmt.Fprintf(w, "%s", what)
			for _, c := range candidates {
				fmt.Fprintf(w, "\t%s", figures[c.name+what])
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

type figure struct{ what, value string }

// measured is a store with documents in one shard.
type measured struct {
	client *redis.Client
	shard  *store.Shard
	reader *sink.Reader
	at     store.Progress
	next   int // number of the next document
}

func measureStore(ctx context.Context, c candidate, n int) (all []figure, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at, stop, err := c.start()
	if err != nil {
		return nil, err
	}
	defer stop()
	m, err := fill(ctx, at, n, &all)
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.client.Close() }()
	runtime.GC()
	runtime.ReadMemStats(&after)
	all = append(all, figure{"heap a document", fmt.Sprintf("%d B", (after.HeapAlloc-before.HeapAlloc)/uint64(n))})
	for _, op := range []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"step: one write", m.write},
		{"step: one due document", m.reap},
		{"count", func(ctx context.Context) error { _, err := m.reader.Count(ctx, collection); return err }},
		{"forecast, 60 buckets", func(ctx context.Context) error {
			_, err := m.reader.Forecast(ctx, collection, sink.ForecastOptions{Buckets: 60, Within: time.Hour})
			return err
		}},
		{"get", func(ctx context.Context) error {
			_, err := m.reader.Get(ctx, collection, id(m.next-1))
			return err
		}},
		{"list of 100", func(ctx context.Context) error {
			_, err := m.reader.List(ctx, collection, sink.ListOptions{Limit: 100})
			return err
		}},
	} {
		cost, err := repeat(ctx, op.do)
		if silent := net.Error(nil); errors.As(err, &silent) && silent.Timeout() {
			all = append(all, figure{op.what, "over " + patience.String()})
			break // it is still busy with that
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.what, err)
		}
		all = append(all, figure{op.what, cost})
	}
	return all, nil
}

// repeat returns the CPU time of an operation, that of the client in it.
func repeat(ctx context.Context, do func(ctx context.Context) error) (string, error) {
	if err := do(ctx); err != nil { // its script is loaded
		return "", err
	}
	began, from, n := time.Now(), cpu(), 0
	for ; n < most && time.Since(began) < least; n++ {
		if err := do(ctx); err != nil {
			return "", err
		}
	}
	return ((cpu() - from) / time.Duration(n)).Round(time.Microsecond).String(), nil
}

// cpu is the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func id(i int) string { return fmt.Sprintf("%036d", i) }

// fill writes n documents, of which the first expires at far and each one a millisecond after
// the one before.
func fill(ctx context.Context, at *redis.Options, n int, all *[]figure) (*measured, error) {
	at.MaxRetries, at.ReadTimeout = -1, patience
	client := redis.NewClient(at)
	reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: wire.DefaultPrefix, Shards: 1})
	if err != nil {
		return nil, err
	}
	m := &measured{client: client, reader: reader, shard: store.New(client, wire.DefaultPrefix, 0, 1),
		at: store.Progress{Version: "v0", Watermark: far - 60_000}}
	if err := m.shard.Take(ctx, store.State{Log: "log", Watermark: m.at.Watermark}, m.at.Version, 0); err != nil {
		return nil, err
	}
	config := store.Config{History: ttlrules.History{}.With(1, 1, -1)}
	if err := m.commit(ctx, []store.ConfigChange{{Collection: collection, Config: &config}}); err != nil {
		return nil, err
	}
	from := cpu()
	for m.next < n {
		if err := m.put(ctx, perCommit); err != nil {
			return nil, err
		}
	}
	*all = append(*all, figure{"step: 500 writes", ((cpu() - from) / time.Duration(n/perCommit)).Round(time.Microsecond).String()})
	return m, nil
}

func (m *measured) commit(ctx context.Context, configs []store.ConfigChange, changes ...store.CollectionChanges) error {
	m.at.Offset++
	m.at.Next = "v" + strconv.FormatUint(m.at.Offset, 10)
	err := m.shard.Commit(ctx, m.at, configs, changes)
	m.at.Version = m.at.Next
	return err
}

func header(i int) *store.Header {
	return &store.Header{Ts: far - 60_000 + int64(i), Etag: uint64(i + 1), TTL: 60}
}

func (m *measured) put(ctx context.Context, n int) error {
	c := store.CollectionChanges{Collection: collection}
	body := make([]byte, bodyBytes)
	for ; n > 0; n, m.next = n-1, m.next+1 {
		c.Changes = append(c.Changes, store.Change{ID: id(m.next), New: header(m.next), Body: body})
	}
	return m.commit(ctx, nil, c)
}

func (m *measured) write(ctx context.Context) error { return m.put(ctx, 1) }

// reap finds one due document, and removes it.
func (m *measured) reap(ctx context.Context) error {
	cuts := []store.Cut{{Collection: collection, Cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: far + int64(m.next)}}}
	due, err := m.shard.Due(ctx, m.at.Version, cuts, 1, 1<<20, true)
	if err != nil {
		return err
	}
	if len(due[0].IDs) != 1 {
		return fmt.Errorf("%d documents are due", len(due[0].IDs))
	}
	h := due[0].Documents[0].Header
	return m.commit(ctx, nil, store.CollectionChanges{Collection: collection, Changes: []store.Change{{ID: due[0].IDs[0], Old: &h}}})
}

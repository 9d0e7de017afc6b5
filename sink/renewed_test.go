package sink_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// meanwhile calls do after each reply of a script, one at a time.
type meanwhile struct {
	mu sync.Mutex
	do func()
}

func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		m.mu.Lock() // no script may run while it is done
		defer m.mu.Unlock()
		err := next(ctx, cmd)
		if err == nil {
			m.do()
		}
		return err
	}
}

// readerMeanwhile is another reader, with something done after each of its scripts.
func (r *rig) readerMeanwhile(t *testing.T, do func()) *sink.Reader {
	t.Helper()
	client := redis.NewClient(r.Client.Options())
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(&meanwhile{do: do})
	reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: r.Prefix, Shards: r.N})
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

// TestRenewedWhileAPageIsMade: documents are renewed after each script of a reader. No page has one of them twice, and
// those that nobody renews are on exactly one page.
//
// It fails if a page takes a document at its former place and at its present one.
func TestRenewedWhileAPageIsMade(t *testing.T) {
	const shards, limit = 4, 40
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for name, order := range map[string]entries.Order{"list": {}, "by deadline": {ByDeadline: true}, "by pointer": {Pointer: "/n"}} {
			r := newRig(t, s, shards, far)
			r.WithDefault("orders", 0, -1)
			header := func(seconds int) *store.Header {
				return &store.Header{Ts: far, Etag: 1, TTL: ttlrules.TTL(seconds)}
			}
			var changes []store.Change
			var renewed []string
			for i := range 400 { // those of the first shard come first, so that it is asked several times for a page
				id := fmt.Sprintf("%03d", i)
				at := 100 + i
				if wire.ShardOf(shards, "orders", id) == 0 {
					if at = 1 + i/8; i%2 == 0 {
						renewed = append(renewed, id)
					}
				}
				changes = append(changes, r.Change("orders", id, header(at), fmt.Appendf(nil, `{"n":%d,"kind":1}`, at)))
			}
			r.Write("orders", changes...)
			r.declare("/n")
			turn := 0
			reader := r.readerMeanwhile(t, func() {
				for range 5 {
					id := renewed[turn%len(renewed)]
					at := 1 + turn*7%60
					r.Write("orders", r.Change("orders", id, header(at), fmt.Appendf(nil, `{"n":%d,"kind":1}`, at)))
					turn++
				}
				r.makeIndexes()
			})
			times := map[string]int{}
			visit := func(documents []sink.Document) {
				page := map[string]bool{}
				for _, d := range documents {
					if page[d.ID] {
						t.Errorf("%s: a page has %s twice", name, d.ID)
					}
					page[d.ID] = true
					times[d.ID]++
				}
			}
			if name == "list" {
				for opts := (sink.ListOptions{Order: wire.ByDeadline, Limit: limit}); ; {
					page, err := reader.List(ctx, "orders", opts)
					if err != nil {
						t.Fatal(err)
					}
					visit(page.Documents)
					if opts.Continuation = page.Continuation; opts.Continuation == "" {
						break
					}
				}
			} else {
				r.queryPages(reader, sink.QueryOptions{Limit: limit, Where: r.where("kind=1"), Order: order}, func(_ int, page sink.QueryPage) { visit(page.Documents) })
			}
			for i := range 400 {
				if id := fmt.Sprintf("%03d", i); !slices.Contains(renewed, id) && times[id] != 1 {
					t.Errorf("%s: %s is returned %d times", name, id, times[id])
				}
			}
		}
	})
}

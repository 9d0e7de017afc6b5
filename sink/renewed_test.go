package sink_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
		for name, order := range map[string]entries.Order{"list": {}, "by deadline": {ByDeadline: true},
			"by pointer": {Pointer: "/n"}} {
			r := newRig(t, s, shards, far)
			r.WithDefault("orders", 0, -1)
			header := func(seconds int) *store.Header {
				return &store.Header{Ts: far, Etag: 1, TTL: ttlrules.TTL(seconds)}
			}
			body := func(at int) []byte { return fmt.Appendf(nil, `{"n":%d,"kind":%d}`, at, at%3) }
			var changes []store.Change
			places := map[string]int{} // of those that are renewed
			for i := range 400 {       // those of the first shard come first, so that it is asked several times for a page
				id := fmt.Sprintf("%03d", i)
				at := 1000 + i
				if wire.ShardOf(shards, "orders", id) == 0 {
					if at = 1 + i/8; i%2 == 0 {
						places[id] = at
					}
				}
				changes = append(changes, r.Change("orders", id, header(at), body(at)))
			}
			r.Write("orders", changes...)
			r.declare("/n")
			renewals := 0
			reader := r.readerMeanwhile(t, func() {
				for ; renewals < 1000 && (renewals+1)%8 != 0; renewals++ { // the first one goes behind some others
					id := slices.MinFunc(slices.Sorted(maps.Keys(places)), func(a, b string) int {
						return cmp.Compare(places[a],
							places[b])
					})
					places[id] += 9
					r.Write("orders", r.Change("orders", id, header(places[id]), body(places[id])))
				}
				renewals++
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
				r.queryPages(reader, sink.QueryOptions{Limit: limit, Where: r.where("kind>=1"), Order: order},
					func(_ int, page sink.QueryPage) { visit(page.Documents) })
			}
			for i := range 400 {
				id := fmt.Sprintf("%03d", i)
				_, renewed := places[id]
				if selected := name == "list" || !strings.Contains(r.Docs["orders"][id].Body, `"kind":0`); !renewed &&
					selected != (times[id] == 1) {
					t.Errorf("%s: %s is returned %d times", name, id, times[id])
				}
			}
		}
	})
}

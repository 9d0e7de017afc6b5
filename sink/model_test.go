package sink_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestRandomHistories takes partitions through random steps, and a plain map with
// them: whatever is read is what the map has and the rules make of it.
func TestRandomHistories(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		rapid.Check(t, func(t *rapid.T) {
			const start = far
			r := newRig(t, s, rapid.IntRange(1, 3).Draw(t, "partitions"), start)
			now := int64(start)
			collections := []string{"a", "b"}
			etag := uint64(0)
			header := func() *sink.Header {
				etag++
				return &sink.Header{
					Ts: now, Etag: etag,
					TTL:   ttlrules.TTL(rapid.SampledFrom([]int{0, 0, -1, 1, 5, 20}).Draw(t, "ttl")),
					Trace: rapid.SampledFrom([]string{"", "trace"}).Draw(t, "trace"),
				}
			}
			steps := rapid.IntRange(1, 25).Draw(t, "steps")
			for range steps {
				now += rapid.Int64Range(0, 7000).Draw(t, "passes")
				for p := range r.n {
					r.state[p].Watermark = now
				}
				collection := rapid.SampledFrom(collections).Draw(t, "collection")
				config := r.configs[collection]
				switch rapid.SampledFrom([]string{"write", "write", "write", "reap", "default", "drop", "none"}).Draw(t, "op") {
				case "write":
					changed := map[string]bool{}
					var changes []sink.Change
					for range rapid.IntRange(1, 6).Draw(t, "changes") {
						id := fmt.Sprint("id", rapid.IntRange(0, 15).Draw(t, "id"))
						if changed[id] {
							continue
						}
						changed[id] = true
						_, exists := r.docs[collection][id]
						switch body := []byte(fmt.Sprintf(`{"etag":%d}`, etag)); {
						case exists && rapid.Bool().Draw(t, "renew"):
							changes = append(changes, r.change(collection, id, header(), nil))
						case exists && rapid.Bool().Draw(t, "delete"):
							changes = append(changes, r.change(collection, id, nil, nil))
						default:
							changes = append(changes, r.change(collection, id, header(), body))
						}
					}
					r.write(collection, changes...)
				case "reap":
					r.reap(collection, now, rapid.IntRange(1, 8).Draw(t, "limit"))
				case "default":
					if config.NoIndex {
						config = sink.Config{}
						r.configure(collection, &sink.Config{Building: true})
						r.build(collection)
					}
					config.History = config.History.With(now, 1, ttlrules.Default(rapid.SampledFrom([]int{0, -1, 1, 10, 60}).Draw(t, "default")))
					r.configure(collection, &config)
				case "drop":
					for p := range r.n {
						r.commit(p, []sink.ConfigChange{{Collection: collection}}, sink.CollectionChanges{Collection: collection, Drop: sink.DropAll})
					}
				case "none":
					if config.History.Current() != ttlrules.Off {
						break
					}
					for r.reap(collection, now, 100) > 0 {
					}
					for p := range r.n {
						r.commit(p, []sink.ConfigChange{{Collection: collection, Config: &sink.Config{NoIndex: true}}},
							sink.CollectionChanges{Collection: collection, Drop: sink.DropIndex})
					}
				}
			}
			for p := range r.n { // the log time of all
				r.state[p].Watermark = now
				r.commit(p, nil)
			}
			for _, c := range collections {
				r.compare(c, now)
				for p := range r.n {
					if err := r.store.Partition(p).Verify(ctx, r.state[p].Version, collections); err != nil {
						t.Errorf("verify: %v", err)
					}
				}
			}
		})
	})
}

// reap removes a chunk of what is due from every partition, and says how much it
// was. What is due is what the rules say is expired.
func (r *rig) reap(collection string, now int64, limit int) (n int) {
	r.t.Helper()
	config := r.configs[collection]
	if config.NoIndex {
		return 0
	}
	for p := range r.n {
		due, err := r.store.Partition(p).Due(ctx, r.state[p].Version,
			[]sink.Cut{{Collection: collection, Cuts: config.History.Cuts(now)}}, limit, 1<<20, true)
		if err != nil {
			r.t.Fatalf("due: %v", err)
		}
		var changes []sink.Change
		for i, id := range due[0].IDs {
			d := due[0].Documents[i]
			if d != r.docs[collection][id] || !config.History.Expired(d.Header.Ts, d.Header.TTL, now) {
				r.t.Fatalf("%s is due: %+v", id, d)
			}
			changes = append(changes, sink.Change{ID: id, Old: &d.Header})
		}
		expired := 0
		for id, d := range r.docs[collection] {
			if wire.Partition(r.n, collection, id) == p && config.History.Expired(d.Header.Ts, d.Header.TTL, now) {
				expired++
			}
		}
		if len(changes) != min(expired, limit) {
			r.t.Fatalf("%d are due, want %d", len(changes), min(expired, limit))
		}
		r.commit(p, nil, sink.CollectionChanges{Collection: collection, Changes: changes})
		n += len(changes)
	}
	return n
}

// build builds the index of a collection.
func (r *rig) build(collection string) {
	r.t.Helper()
	for p := range r.n {
		for cursor := "0"; ; {
			found, next, _, err := r.store.Partition(p).Scan(ctx, r.state[p].Version, collection, cursor, 5)
			if err != nil {
				r.t.Fatalf("scan: %v", err)
			}
			r.commit(p, nil, sink.CollectionChanges{Collection: collection, Index: found})
			if cursor = next; cursor == "0" {
				break
			}
		}
	}
}

package sink_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestRandomHistories applies random steps to shards and to a plain map. Every read must
// return what the map and the rules say.
func TestRandomHistories(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		check(t, func(t *rapid.T) {
			const start = far
			r := newRig(t, s, rapid.IntRange(1, 3).Draw(t, "shards"), start)
			now := int64(start)
			collections := []string{"a", "b"}
			etag := uint64(0)
			header := func(collection string) *store.Header {
				etag++
				h := &store.Header{
					Ts: now, Etag: etag,
					TTL:    ttlrules.TTL(rapid.SampledFrom([]int{0, 0, -1, 1, 5, 20}).Draw(t, "ttl")),
					Trace:  rapid.SampledFrom([]string{"", "trace"}).Draw(t, "trace"),
					Target: rapid.SampledFrom([]string{"", "", "mail.send"}).Draw(t, "target"),
				}
				switch after := rapid.Int64Range(-5, 5).Draw(t, "clock"); {
				case after > 2:
					h.Absolute = now + 1000*after
				case after < -2:
					h.Kept = now + 1000*after*rapid.Int64Range(1, 15).Draw(t, "longer")
					config := r.Configs[collection]
					in, band, ok := config.Admit(h.Clock())
					if h.Band = band; !ok {
						h.Kept = 0
					}
					if len(in.Bands) > len(config.Bands) {
						r.Configure(collection, &in)
					}
				}
				return h
			}
			steps := rapid.IntRange(1, 25).Draw(t, "steps")
			for range steps {
				now += rapid.Int64Range(0, 7000).Draw(t, "passes")
				for p := range r.N {
					r.At[p].Watermark = now
				}
				collection := rapid.SampledFrom(collections).Draw(t, "collection")
				config := r.Configs[collection]
				switch rapid.SampledFrom([]string{"write", "write", "write", "reap", "default", "drop", "none"}).Draw(t, "op") {
				case "write":
					changed := map[string]bool{}
					var changes []store.Change
					for range rapid.IntRange(1, 6).Draw(t, "changes") {
						id := fmt.Sprint("id", rapid.IntRange(0, 15).Draw(t, "id"))
						if changed[id] {
							continue
						}
						changed[id] = true
						_, exists := r.Docs[collection][id]
						switch body := []byte(fmt.Sprintf(`{"etag":%d}`, etag)); {
						case exists && rapid.Bool().Draw(t, "renew"):
							changes = append(changes, r.Change(collection, id, header(collection), nil))
						case exists && rapid.Bool().Draw(t, "delete"):
							changes = append(changes, r.Change(collection, id, nil, nil))
						default:
							changes = append(changes, r.Change(collection, id, header(collection), body))
						}
					}
					r.Write(collection, changes...)
				case "reap":
					r.reap(collection, now, rapid.IntRange(1, 8).Draw(t, "limit"))
				case "default":
					config.NoIndex = false
					etag++
					config.History = config.History.With(now, etag, ttlrules.Default(rapid.SampledFrom([]int{0, -1, 1, 10, 60}).Draw(t,
						"default")))
					r.Configure(collection, &config)
				case "drop":
					for p := range r.N {
						r.Commit(p, []store.ConfigChange{{Collection: collection}}, store.CollectionChanges{Collection: collection,
							Drop: store.DropAll})
					}
				case "none":
					if config.History.Current() == ttlrules.Off {
						config.NoIndex = true
						r.Configure(collection, &config)
					}
				}
			}
			for p := range r.N { // the log time of all
				r.At[p].Watermark = now
				r.Commit(p, nil)
			}
			for _, c := range collections {
				r.compare(c, now)
				for p := range r.N {
					if err := r.Shards[p].Verify(ctx, r.At[p].Version, collections); err != nil {
						t.Errorf("verify: %v", err)
					}
					k := layout.NewKeys(r.Prefix, p, r.N)
					docs, indexed := s.Client.HLen(ctx, k.Docs(c)).Val(), s.Client.ZCard(ctx, k.Inherit(c)).Val()+s.Client.ZCard(ctx,
						k.Own(c)).Val()
					if docs != indexed {
						t.Errorf("%d documents, and %d entries in the two indexes", docs, indexed)
					}
				}
			}
		})
	})
}

// reap removes some of the due documents from every shard, and returns how many. The rules
// say which documents are expired.
func (r *rig) reap(collection string, now int64, limit int) (n int) {
	r.T.Helper()
	config := r.Configs[collection]
	for p := range r.N {
		var cuts []store.Cut
		for band := range 1 + len(config.Bands) {
			cuts = append(cuts, store.Cut{Collection: collection, Band: band, Cuts: config.Band(band).Cuts(now)})
			if band > 0 {
				cuts[band].Cuts.Own = ttlrules.NoCut
			}
		}
		due, err := r.Shards[p].Due(ctx, r.At[p].Version, cuts, limit, 1<<20, true)
		if err != nil {
			r.T.Fatalf("due: %v", err)
		}
		var changes []store.Change
		for _, part := range due {
			for i, id := range part.IDs {
				d := part.Documents[i]
				if d != r.Docs[collection][id] || !config.History.Expired(d.Header.Clock(), now) {
					r.T.Fatalf("%s is due: %+v", id, d)
				}
				changes = append(changes, store.Change{ID: id, Old: &d.Header})
			}
		}
		expired := 0
		for id, d := range r.Docs[collection] {
			if wire.ShardOf(r.N, collection, wire.EscapeID(id)) == p && config.History.Expired(d.Header.Clock(), now) {
				expired++
			}
		}
		if len(changes) != min(expired, limit) {
			r.T.Fatalf("%d are due, want %d", len(changes), min(expired, limit))
		}
		r.Commit(p, nil, store.CollectionChanges{Collection: collection, Changes: changes})
		n += len(changes)
	}
	return n
}

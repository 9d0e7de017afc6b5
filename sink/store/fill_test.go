package store_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// TestFill: fills put documents, renew the headers of those that exist, remove some, drop what a collection had and move
// it. Each document is then as it was put, and in the index of its deadline alone.
//
// It fails if a fill loses a document, a body or a deadline: what was loaded would never expire, or too early.
func TestFill(t *testing.T) {
	const never = "9007199254740991" // the score of what never expires
	inherits, own, kept := store.Header{Ts: 1000, Etag: 1}, store.Header{Ts: 1000, Etag: 2, TTL: 5},
		store.Header{Ts: 1000, Etag: 3, TTL: -1}
	document := func(id string, h store.Header, body string) store.Document {
		return store.Document{ID: id, Value: string(h.Append(nil)) + body}
	}
	type row struct {
		collection, id string
		header         store.Header
		body           string
		inherit, own   string
	}
	steps := []struct {
		name    string
		changes []store.CollectionFill
		want    []row
		gone    [][2]string
		full    []string
	}{{
		"put", []store.CollectionFill{
			{Collection: "a", Put: []store.Document{document("x", inherits, "{}"), document("y", own, `{"v":1}`),
				document("z", kept, `{"v":2}`)}},
			{Collection: "b", Put: []store.Document{document("x", own, `{"v":3}`)}},
		}, []row{
			{"a", "x", inherits, "{}", "1000", "-"}, {"a", "y", own, `{"v":1}`, "-", "6000"},
			{"a", "z", kept, `{"v":2}`, "-", never}, {"b", "x", own, `{"v":3}`, "-", "6000"},
		}, nil, []string{"a", "b"},
	}, {
		"put again with other deadlines", []store.CollectionFill{
			{Collection: "a", Put: []store.Document{document("x", own, `{"v":4}`), document("y", inherits, `{"v":5}`)}},
		}, []row{
			{"a", "x", own, `{"v":4}`, "-", "6000"}, {"a", "y", inherits, `{"v":5}`, "1000", "-"},
			{"a", "z", kept, `{"v":2}`, "-", never}, {"b", "x", own, `{"v":3}`, "-", "6000"},
		}, nil, []string{"a", "b"},
	}, {
		"renew", []store.CollectionFill{
			{Collection: "a", Renew: []store.Document{document("absent", own, ""), document("x", kept, ""),
				document("y", own, ""), document("z", inherits, "")}},
		}, []row{
			{"a", "x", kept, `{"v":4}`, "-", never}, {"a", "y", own, `{"v":5}`, "-", "6000"},
			{"a", "z", inherits, `{"v":2}`, "1000", "-"}, {"b", "x", own, `{"v":3}`, "-", "6000"},
		}, [][2]string{{"a", "absent"}}, []string{"a", "b"},
	}, {
		"remove, drop and put", []store.CollectionFill{
			{Collection: "a", Remove: []string{"x", "absent"}},
			{Collection: "b", Drop: true, Put: []store.Document{document("y", inherits, "{}")}},
		}, []row{
			{"a", "y", own, `{"v":5}`, "-", "6000"}, {"a", "z", inherits, `{"v":2}`, "1000", "-"},
			{"b", "y", inherits, "{}", "1000", "-"},
		}, [][2]string{{"a", "x"}, {"b", "x"}}, []string{"a", "b"},
	}, {
		"move, and put behind it", []store.CollectionFill{
			{Collection: "a", MoveTo: "c"}, {Collection: "b", Remove: []string{"y"}},
			{Collection: "a", Put: []store.Document{document("x", own, "{}")}},
		}, []row{
			{"c", "y", own, `{"v":5}`, "-", "6000"}, {"c", "z", inherits, `{"v":2}`, "1000", "-"},
			{"a", "x", own, "{}", "-", "6000"},
		}, [][2]string{{"a", "y"}, {"a", "z"}, {"b", "y"}}, []string{"a", "c"},
	}}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for last, step := range steps {
			r := newRig(t, s, 1, far)
			for _, before := range steps[:last+1] {
				next := r.Next(0)
				if err := r.Shards[0].Fill(ctx, next.Version, next.Next, before.changes); err != nil {
					t.Fatalf("%s: %v", before.name, err)
				}
				r.At[0].Version, r.At[0].Offset = next.Next, next.Offset
			}
			full, documents, err := r.Shards[0].Count(ctx, r.At[0].Version, []string{"a", "b", "c"})
			if err != nil || documents != uint64(len(step.want)) || !slices.Equal(full, step.full) {
				t.Errorf("%s: counted %d documents in %v, %v", step.name, documents, full, err)
			}
			for _, w := range step.want {
				doc, inherit, own := r.stored(0, w.collection, w.id)
				got := row{w.collection, w.id, store.Header{}, "", inherit, own}
				if doc != nil {
					got.header, got.body = doc.Header, string(doc.Body)
				}
				if diff := cmp.Diff(w, got, cmp.AllowUnexported(row{})); diff != "" {
					t.Errorf("%s: (-want, +got)\n%s", step.name, diff)
				}
			}
			for _, g := range step.gone {
				if doc, inherit, own := r.stored(0, g[0], g[1]); doc != nil || inherit != "-" || own != "-" {
					t.Errorf("%s: %v is %v, in the indexes at %s and %s", step.name, g, doc, inherit, own)
				}
			}
			if err := r.Shards[0].Verify(ctx, r.At[0].Version, []string{"a", "b", "c"}); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
	})
}

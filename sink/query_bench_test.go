package sink_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// BenchmarkQuery reads pages of 100 from a million documents on a redis-server, or from as many as LAPSE_DOCUMENTS
// says: by deadline to compare with, the 100 documents with one value, these in other orders, and a part of a range.
//
//	go test ./sink -run '^$' -bench 'BenchmarkQuery$' -benchtime 50x
func BenchmarkQuery(b *testing.B) {
	const same = 100
	documents := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("LAPSE_DOCUMENTS")); err == nil {
		documents = n
	}
	for _, shards := range []int{1, 8} {
		r := newRig(b, redistest.Start(b), shards, far)
		c := store.Config{}.WithIndexes([]string{"/customer", "/price"})
		r.Configure("orders", &c)
		r.WithDefault("orders", 0, 2_000_000)
		body := func(i int) string {
			return fmt.Sprintf(`{"customer":"c%d","price":%d,"kind":%d}`, i%(documents/same), i*7919%documents, i%2)
		}
		for from := 0; from < documents; from += 20_000 {
			var changes []store.Change
			for i := from; i < from+20_000; i++ {
				h := &store.Header{Ts: far - int64(i*7919%documents), Etag: uint64(i + 1)}
				changes = append(changes, store.Change{ID: fmt.Sprintf("document-%07d", i), New: h, Body: []byte(body(i))})
			}
			r.Write("orders", changes...)
		}
		r.makeIndexes()
		list := sink.ListOptions{Order: wire.ByDeadline, Limit: 100}
		b.Run(fmt.Sprintf("%d shards, list by deadline", shards), func(b *testing.B) {
			for b.Loop() {
				if page, err := r.Reader.List(ctx, "orders", list); err != nil || len(page.Documents) != 100 {
					b.Fatalf("%d documents, %v", len(page.Documents), err)
				}
			}
		})
		for name, opts := range map[string]sink.QueryOptions{
			"equality":              {Where: r.where("customer=c7")},
			"equality, by id":       {Where: r.where("customer=c7"), Order: entries.Order{ByID: true}},
			"equality, by price":    {Where: r.where("customer=c7"), Order: entries.Order{Pointer: "/price", Descending: true}},
			"equality, by deadline": {Where: r.where("customer=c7"), Order: entries.Order{ByDeadline: true}},
			"a range":               {Where: r.where("price>=1000")},
			"a range, half of it":   {Where: r.where("price>=1000", "kind=1")},
		} {
			opts.Limit = 100
			b.Run(fmt.Sprintf("%d shards, %s", shards, name), func(b *testing.B) {
				for b.Loop() {
					if page, err := r.Reader.Query(ctx, "orders", opts); err != nil || len(page.Documents) != 100 {
						b.Fatalf("%d documents, %v", len(page.Documents), err)
					}
				}
			})
		}
	}
}

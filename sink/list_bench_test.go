package sink_test

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// BenchmarkListByDeadline reads pages of 100 from a million documents on a redis-server, half of which
// inherit the default: the first page, one in the middle, and the last.
//
//	go test ./sink -run '^$' -bench ListByDeadline -benchtime 50x
func BenchmarkListByDeadline(b *testing.B) {
	const documents, page = 1_000_000, 100
	r := newRig(b, redistest.Start(b), 8, far)
	r.WithDefault("orders", 0, 2_000_000)
	for from := 0; from < documents; from += 20_000 {
		var changes []store.Change
		for i := from; i < from+20_000; i++ {
			h := &store.Header{Ts: far - int64(i*7919%documents), Etag: uint64(i + 1), TTL: ttlrules.TTL(i % 2 * 2_000_000)}
			changes = append(changes, store.Change{ID: fmt.Sprintf("document-%07d", i), New: h, Body: []byte(`{"n":1}`)})
		}
		r.Write("orders", changes...)
	}
	// Times and TTLs are such that one document expires in each millisecond.
	begin := int64(far - documents + 2_000_000_000)
	for _, at := range []int64{0, documents / 2, documents - page} {
		opts := sink.ListOptions{Order: wire.ByDeadline, Limit: page, Continuation: continuationAt(begin + at)}
		b.Run(fmt.Sprint("after ", at), func(b *testing.B) {
			for b.Loop() {
				got, err := r.Reader.List(ctx, "orders", opts)
				if err != nil || len(got.Documents) < page-1 {
					b.Fatalf("%d documents, %v", len(got.Documents), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/page")
		})
	}
	began := time.Now()
	pages := 0
	for opts := (sink.ListOptions{Order: wire.ByDeadline, Limit: wire.MaxListLimit}); pages == 0 ||
		opts.Continuation != ""; pages++ {
		got, err := r.Reader.List(ctx, "orders", opts)
		if err != nil {
			b.Fatal(err)
		}
		opts.Continuation = got.Continuation
	}
	b.Logf("all in %d pages: %s", pages, time.Since(began))
}

// continuationAt is the continuation of a page that ended at an instant.
func continuationAt(at int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil,
		`{"p":0,"o":{"i":{"k":"%d","d":"~"},"n":{"k":"%d","d":"~"}}}`, at-2_000_000_000, at))
}

// BenchmarkIndexMemory says how many bytes an entry of the index takes for documents that never
// expire, beside those of the document.
func BenchmarkIndexMemory(b *testing.B) {
	const documents = 100_000
	for _, length := range []int{12, 36} {
		b.Run(fmt.Sprint("ids of ", length), func(b *testing.B) {
			s := redistest.Start(b)
			for b.Loop() {
				s.Client.FlushAll(ctx)
				used := []int64{memory(b, s)}
				for _, add := range []func(id string){
					func(id string) { s.Client.HSet(ctx, "docs", id, make([]byte, 317)) },
					func(id string) { s.Client.Do(ctx, "ZADD", "own", "9007199254740991", id) },
				} {
					for i := range documents {
						add(fmt.Sprintf("%0*d", length, i*7919))
					}
					used = append(used, memory(b, s))
				}
				b.ReportMetric(float64(used[1]-used[0])/documents, "B/document")
				b.ReportMetric(float64(used[2]-used[1])/documents, "B/entry")
			}
		})
	}
}

func memory(b *testing.B, s redistest.Server) (used int64) {
	info, err := s.Client.InfoMap(ctx, "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Sscan(info["Memory"]["used_memory"], &used); err != nil {
		b.Fatal(err)
	}
	return used
}

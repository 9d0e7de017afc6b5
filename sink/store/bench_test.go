package store_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// The benchmarks run on a real redis-server. Besides the time and the allocations of a
// round trip they say what a script took inside the server (script-µs).

var scriptTime = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// inServer reports the average time of a script in the server.
func (r *rig) inServer(b *testing.B, run func()) {
	b.Helper()
	r.Client.ConfigResetStat(ctx)
	b.ReportAllocs()
	run()
	m := scriptTime.FindStringSubmatch(r.Client.Info(ctx, "commandstats").Val())
	if m == nil {
		b.Fatal("no script ran")
	}
	calls, _ := strconv.ParseFloat(m[1], 64)
	usec, _ := strconv.ParseFloat(m[2], 64)
	b.ReportMetric(usec/calls, "script-µs")
}

func (r *rig) fill(n int) {
	for i := 0; i < n; i += 500 {
		r.Commit(0, nil, r.puts(i, i+500))
	}
}

// puts adds new documents.
func (r *rig) puts(from, to int) store.CollectionChanges {
	c := store.CollectionChanges{Collection: "orders"}
	body := bytes.Repeat([]byte("x"), 256)
	for i := from; i < to; i++ {
		c.Changes = append(c.Changes, store.Change{ID: fmt.Sprintf("%036d", i), New: &store.Header{Ts: far + int64(i),
			Etag: uint64(i + 1), TTL: 60}, Body: body})
	}
	return c
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 16, 512} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b, redistest.Start(b), 1, far)
			r.fill(20_000)
			at := 20_000
			r.inServer(b, func() {
				for b.Loop() {
					r.Commit(0, nil, r.puts(at, at+n))
					at += n
				}
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1, 16, 512} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b, redistest.Start(b), 1, far)
			r.fill(20_000)
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("%036d", i*20)
			}
			r.inServer(b, func() {
				for b.Loop() {
					if _, err := r.Shards[0].ReadDocuments(ctx, r.At[0].Version,
						[]store.Want{{Collection: "orders", Headers: ids}}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkDue(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b, redistest.Start(b), 1, far)
			r.fill(20_000)
			cuts := []store.Cut{{Collection: "orders", Cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: far + 60_000 + 10_000}}}
			r.inServer(b, func() {
				for b.Loop() {
					if _, err := r.Shards[0].Due(ctx, r.At[0].Version, cuts, n, 1<<20, true); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	r := newRig(b, redistest.Start(b), 1, far)
	r.fill(20_000)
	r.inServer(b, func() {
		for b.Loop() {
			if _, err := r.Reader.Get(ctx, "orders", fmt.Sprintf("%036d", 7)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

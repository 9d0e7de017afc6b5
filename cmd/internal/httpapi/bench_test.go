package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	benchReaders   = 64
	benchDocuments = 1000
)

// BenchmarkGet compares a read by HTTP with the same by NATS: 64 at a time, client and server on
// the same machine, Redis as a process of its own.
func BenchmarkGet(b *testing.B) {
	store := harness.StartRedis(b, harness.RedisOptions{})
	r := start(b, func(o *serve.Options) { o.Redis.URL = store.URL() })
	var lines strings.Builder
	for n := range benchDocuments {
		fmt.Fprintf(&lines, "{\"id\":\"%d\",\"item\":%q}\n", n, strings.Repeat("x", 200))
	}
	r.do("POST", "/collections/orders/documents", lines.String(), "Content-Type", linesType).want(b, 200)
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchReaders}}
	defer web.CloseIdleConnections()
	c := r.client()
	for name, get := range map[string]func(id string) error{
		"nats": func(id string) error {
			_, err := c.Get(b.Context(), "orders", id)
			return err
		},
		"http": func(id string) error {
			resp, err := web.Get(r.base + "/collections/orders/documents/" + id)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var readers sync.WaitGroup
			for range benchReaders {
				readers.Go(func() {
					for n := next.Add(1) - 1; n < int64(b.N); n = next.Add(1) - 1 {
						begin := time.Now()
						if err := get(fmt.Sprint(n % benchDocuments)); err != nil {
							b.Error(err)
							return
						}
						took[n] = time.Since(begin)
					}
				})
			}
			readers.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
			b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkImport compares an import by HTTP with the pipeline of the Go client.
func BenchmarkImport(b *testing.B) {
	store := harness.StartRedis(b, harness.RedisOptions{})
	r := start(b, func(o *serve.Options) { o.Redis.URL = store.URL() })
	body := func(n int) []byte { return fmt.Appendf(nil, `{"id":"%d","item":"%0200d"}`, n, n) }
	for name, write := range map[string]func(b *testing.B){
		"pipeline": func(b *testing.B) {
			var failed atomic.Int64
			p, err := r.client().Pipeline(func(_ int, r client.Result, err error) {
				if err != nil || r.Outcome.Status >= 400 {
					failed.Add(1)
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			for n := range b.N {
				m := client.Message{Subject: wire.DefaultPrefix.Write(wire.Upsert, "a", fmt.Sprint(n)), Body: body(n)}
				if err := p.Send(b.Context(), m, n); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(b.Context()); err != nil || failed.Load() > 0 {
				b.Fatal(err, failed.Load())
			}
		},
		"http": func(b *testing.B) {
			in, out := io.Pipe()
			go func() {
				var lines bytes.Buffer
				for n := range b.N {
					lines.Write(append(body(n), '\n'))
					if lines.Len() > 32<<10 || n == b.N-1 {
						_, _ = lines.WriteTo(out)
					}
				}
				_ = out.Close()
			}()
			web := &http.Client{Transport: &http.Transport{}}
			defer web.CloseIdleConnections()
			resp, err := web.Post(r.base+"/collections/b/documents", linesType, in)
			if err != nil {
				b.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if n := bytes.Count(text, []byte(`"status":20`)); err != nil || n != b.N {
				b.Fatalf("%d of %d: %v", n, b.N, err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			write(b)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "documents/s")
		})
	}
}

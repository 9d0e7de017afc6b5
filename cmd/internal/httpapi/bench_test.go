package httpapi_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// BenchmarkGet compares a read by HTTP with the same by NATS, and with the floor: what net/http
// takes to answer the same bytes without lapse. 64 at a time, client and server on the same
// machine, Redis as a process of its own. The three take turns, and the medians of the rounds
// count: other work on the machine slows down all of them. The CPU of this process for each read
// (client, lapse and NATS; Redis takes the same for all) does not depend on other work.
func BenchmarkGet(b *testing.B) {
	const rounds = 9
	store := harness.StartRedis(b, harness.RedisOptions{})
	r := start(b, func(o *serve.Options) { o.Redis.URL = store.URL() })
	var lines strings.Builder
	for n := range benchDocuments {
		fmt.Fprintf(&lines, "{\"id\":\"%d\",\"item\":%q}\n", n, strings.Repeat("x", 200))
	}
	r.do("POST", "/collections/orders/documents", lines.String(), "Content-Type", linesType).want(b, 200)
	always := r.do("GET", "/collections/orders/documents/0", "").want(b, 200)
	floor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), always.Header)
		_, _ = io.WriteString(w, always.body)
	}))
	defer floor.Close()
	c := r.client()
	ways := map[string]func() func(id string) error{
		"nats": func() func(id string) error {
			return func(id string) error {
				_, err := c.Get(b.Context(), "orders", id)
				return err
			}
		},
		"http":  func() func(id string) error { return rawClient(b, r.base) },
		"floor": func() func(id string) error { return rawClient(b, floor.URL+"/v1") },
		// The client of net/http takes more of the CPU than the server.
		"http-go":  func() func(id string) error { return goClient(b, r.base) },
		"floor-go": func() func(id string) error { return goClient(b, floor.URL+"/v1") },
	}
	readers, rates, p99s, cpus := map[string][]func(id string) error{}, map[string][]float64{}, map[string][]float64{},
		map[string][]float64{}
	for name, connect := range ways {
		for range benchReaders {
			readers[name] = append(readers[name], connect())
		}
	}
	for range rounds {
		for name := range ways {
			before := usedCPU(b)
			rate, p99 := readRound(b, readers[name])
			cpu := float64((usedCPU(b) - before).Microseconds()) / float64(b.N)
			rates[name], p99s[name], cpus[name] = append(rates[name], rate), append(p99s[name], p99), append(cpus[name], cpu)
		}
	}
	for name := range ways {
		b.ReportMetric(median(rates[name]), name+"-reads/s")
		b.ReportMetric(median(p99s[name]), name+"-p99-ms")
		b.ReportMetric(median(cpus[name]), name+"-cpu-us/read")
	}
	for _, name := range []string{"http", "http-go"} {
		b.ReportMetric(median(rates[name])/median(rates["nats"]), name+"/nats")
	}
}

// readRound has all readers read b.N documents, and returns the reads in a second, and the time
// that 99 % of them took at most, in milliseconds.
func readRound(b *testing.B, readers []func(id string) error) (rate, p99 float64) {
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var reading sync.WaitGroup
	start := time.Now()
	for _, get := range readers {
		reading.Go(func() {
			for n := next.Add(1) - 1; n < int64(b.N); n = next.Add(1) - 1 {
				begin := time.Now()
				if err := get(strconv.Itoa(int(n % benchDocuments))); err != nil {
					b.Error(err)
					return
				}
				took[n] = time.Since(begin)
			}
		})
	}
	reading.Wait()
	rate = float64(b.N) / time.Since(start).Seconds()
	slices.Sort(took)
	return rate, float64(took[b.N*99/100].Microseconds()) / 1000
}

// usedCPU is the CPU time that this process has used.
func usedCPU(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// goClient reads documents with the client of net/http.
func goClient(b *testing.B, base string) func(id string) error {
	transport := &http.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport}
	return func(id string) error {
		resp, err := c.Get(base + "/collections/orders/documents/" + id)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
}

// rawClient reads documents with as little work for the client as possible.
func rawClient(b *testing.B, base string) func(id string) error {
	at := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1")
	conn, err := net.Dial("tcp", at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	return func(id string) error {
		if _, err := fmt.Fprintf(conn, "GET /v1/collections/orders/documents/%s HTTP/1.1\r\nHost: %s\r\n\r\n", id,
			at); err != nil {
			return err
		}
		status, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(status, "HTTP/1.1 200 ") {
			return fmt.Errorf("status %q: %v", status, err)
		}
		length := 0
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
					return err
				}
			}
			if len(line) == 2 {
				break
			}
		}
		_, err = in.Discard(length)
		return err
	}
}

// BenchmarkStreams has 2,000 clients follow the events, and measures what each costs, and how
// long an event takes to reach all of them. Run it with -benchtime 1x.
func BenchmarkStreams(b *testing.B) {
	const streams, events = 2000, 100
	r := start(b)
	at := strings.TrimSuffix(strings.TrimPrefix(r.base, "http://"), "/v1")
	r.do("PUT", "/collections/orders", `{"defaultTtl":1}`).want(b, 200)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := memory()
	var got atomic.Int64
	var clients sync.WaitGroup
	for n := range streams {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		path := "/v1/events?collection=orders"
		if n%2 == 0 {
			path = "/v1/events"
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, at); err != nil {
			b.Fatal(err)
		}
		in := bufio.NewReaderSize(conn, 1024)
		if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			b.Fatal(line, err)
		}
		clients.Go(func() {
			for mine := 0; mine < events; {
				line, err := in.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if bytes.HasPrefix(line, []byte("data: ")) {
					mine++
					got.Add(1)
				}
			}
		})
	}
	b.ReportMetric(float64(memory()-before)/streams/1024, "KiB/stream")
	var lines strings.Builder
	for n := range events {
		fmt.Fprintf(&lines, "{\"id\":\"%d\"}\n", n)
	}
	all := outcomes(b, r.do("POST", "/collections/orders/documents", lines.String(), "Content-Type", linesType).body)
	last, err := time.Parse(time.RFC3339Nano, all[len(all)-1].ExpiresAt)
	if err != nil {
		b.Fatal(err)
	}
	clients.Wait()
	b.ReportMetric(time.Since(last).Seconds()*1000, "ms-after-the-last-deadline")
	b.ReportMetric(float64(got.Load()), "events")
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

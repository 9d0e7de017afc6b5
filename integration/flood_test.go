package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink/wire"
)

// metricNow returns the value of a series; of a name without labels, the sum of its series.
func metricNow(l *harness.Lapse, name string) (float64, error) {
	text, err := l.MetricsNow()
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		end := max(0, strings.LastIndexByte(line, ' '))
		series, value := line[:end], line[end:]
		if bare, _, _ := strings.Cut(series, "{"); series != name && bare != name {
			continue
		}
		one, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+one, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}

// metric is metricNow, and fails the test on an error.
func metric(t *testing.T, l *harness.Lapse, name string) float64 {
	t.Helper()
	value, err := metricNow(l, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// megabytes returns the resident memory of a lapse process.
func megabytes(t *testing.T, l *harness.Lapse) int {
	t.Helper()
	return int(metric(t, l, "process_resident_memory_bytes")) >> 20
}

// garbage makes a message that lapse must reject, of one of ten kinds.
func garbage(p wire.Prefix, i int) *nats.Msg {
	subject, body := p.Write(wire.Upsert, "flooded", strconv.Itoa(i%50)), "garbage"
	header := nats.Header{}
	switch i % 10 {
	case 0:
		subject = string(p) + ".write.upsert.flooded"
	case 1:
		subject = p.Write("bogus", "flooded", strconv.Itoa(i%50))
	case 2:
		subject, body = p.Config("flooded"), `{"defaultTtl":0}`
	case 3:
		subject = string(p) + ".write.upsert.flooded.%zz"
	case 4:
		body = `{"ttl":` // cut off
	case 5:
		body = strings.Repeat(`{"a":`, 1000)
	case 6:
		body, header = "{}", harness.Header("Lapse-Nonsense", strings.Repeat("x", i%500))
	case 7:
		subject, body = p.Drop("flooded"), "\x00\xff"
	case 8:
		body, header = "{}", harness.Header(wire.HeaderReplyTo, p.Write(wire.Delete, "live", "a"))
	}
	return &nats.Msg{Subject: subject, Data: []byte(body), Header: header}
}

// TestG8_FloodOfEveryKind: a flood of garbage of every kind comes as fast as lapse can reject it. Each message is
// rejected, other writes are applied and expire in time, and the memory of lapse does not grow with the number of
// rejections. LAPSE_FLOOD is the number of messages (10,000 if it is not set).
//
// It fails if lapse keeps something for each rejection; if each rejection costs a wait; if
// an expiry event waits for the end of the flood.
func TestG8_FloodOfEveryKind(t *testing.T) {
	t.Parallel()
	n := number(t, "LAPSE_FLOOD", 10_000)
	w := external(t, harness.RedisOptions{})
	w.Configure("live", `{"defaultTtl":1}`)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	flooded := make(chan error, 1)
	go func() {
		var err error
		n, err = flood(ctx, w, n)
		flooded <- err
	}()
	written, most := 0, 0
	for done, ticker := false, time.NewTicker(20*time.Millisecond); !done; written++ {
		select {
		case err := <-flooded:
			if err != nil {
				t.Fatal(err)
			}
			done = true
			ticker.Stop()
		case <-ticker.C:
		}
		w.Write(wire.Upsert, "live", fmt.Sprintf("doc %d", written), `{"v":1}`)
		if written%25 == 0 {
			most = max(most, megabytes(t, w.lapse))
		}
	}
	limit := harness.Limit + time.Duration(n)*time.Millisecond
	harness.Until(t, limit, "all garbage is rejected", func(context.Context) error {
		most = max(most, megabytes(t, w.lapse))
		if got := int(metric(t, w.lapse, "lapse_messages_rejected_total")); got != n {
			return fmt.Errorf("%d of %d messages are", got, n)
		}
		return nil
	})
	result := oracle.Verify(t, oracle.Options{
		NATS: w.NC, Reads: []readers.Reads{readers.ByReader(w.reader)}, Limit: limit,
	})
	if got := len(result.Model.Rejections); got != n {
		t.Errorf("%d rejections, want %d", got, n)
	}
	if len(result.Lateness) == 0 {
		t.Fatal("nothing expired")
	}
	slices.Sort(result.Lateness)
	latest, median := result.Lateness[len(result.Lateness)-1], result.Lateness[len(result.Lateness)/2]
	t.Logf("%d messages of garbage were rejected; %d documents expired meanwhile, half of them within %v, the last "+
		"%v late; lapse used at most %d MB", n, len(result.Lateness), median, latest, most)
	if latest > harness.Limit {
		t.Errorf("an event was %v late: it waited for the flood", latest)
	}
	if limit := 400; most > limit {
		t.Errorf("lapse used %d MB, want at most %d", most, limit)
	}
}

// flood sends n messages of garbage or more, until documents have expired meanwhile, and returns how
// many. It never gets far ahead of lapse: there is one log, and a write behind much garbage would wait
// for it.
func flood(ctx context.Context, w *world, n int) (sent int, err error) {
	const atOnce, ahead = 1000, 4000
	for began := time.Now(); sent < n || time.Since(began) < 2*time.Second; {
		for range atOnce {
			if _, err := w.JS.PublishMsgAsync(garbage(w.Prefix, sent),
				jetstream.WithStallWait(harness.Limit)); err != nil {
				return sent, err
			}
			sent++
		}
		select {
		case <-w.JS.PublishAsyncComplete():
		case <-ctx.Done():
			return sent, ctx.Err()
		}
		err := poll.Until(ctx, harness.Limit, func(context.Context) error {
			got, err := metricNow(w.lapse, "lapse_messages_rejected_total")
			if err == nil && int(got) < sent-ahead {
				err = fmt.Errorf("%[2]v of %[1]d messages of garbage are rejected", sent, got)
			}
			return err
		})
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

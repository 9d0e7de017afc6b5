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

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// metricNow is the value of a metric without labels.
func metricNow(l *harness.Lapse, name string) (float64, error) {
	text, err := l.MetricsNow()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

func metric(t *testing.T, l *harness.Lapse, name string) float64 {
	t.Helper()
	value, err := metricNow(l, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func megabytes(t *testing.T, l *harness.Lapse) int {
	t.Helper()
	return int(metric(t, l, "process_resident_memory_bytes")) >> 20
}

// garbage is a message of no use to anybody, of a kind that goes by i.
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
		body = `{"ttl":` // no end
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

// A flood of garbage of every kind, as fast as lapse can take it: each message
// is rejected, what others write meanwhile goes through and expires in time, and
// lapse does not grow with what it rejects. LAPSE_FLOOD is how many messages
// (10,000 if it is not set).
//
// It fails if something is kept per rejection; if a message is rejected at the
// cost of a wait; if the event of a document waits for the end of the flood.
func TestG8_FloodOfEveryKind(t *testing.T) {
	t.Parallel()
	n := number(t, "LAPSE_FLOOD", 10_000)
	w := external(t, harness.RedisOptions{})
	w.Configure("live", `{"defaultTtl":1}`)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	flooded := make(chan error, 1)
	go func() { flooded <- flood(ctx, w, n) }()
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
	harness.Until(t, time.Minute+time.Duration(n)*time.Millisecond, "all is rejected", func(context.Context) error {
		most = max(most, megabytes(t, w.lapse))
		if got := int(metric(t, w.lapse, "lapse_messages_rejected_total")); got != n {
			return fmt.Errorf("%d of %d are", got, n)
		}
		return nil
	})
	result := oracle.Verify(t, oracle.Options{
		NATS: w.NC, Reads: []oracle.Reads{oracle.ByReader(w.reader)}, Limit: time.Minute + time.Duration(n)*time.Millisecond,
	})
	if got := len(result.Model.Rejections); got != n {
		t.Errorf("%d rejections, want %d", got, n)
	}
	if len(result.Lateness) == 0 {
		t.Fatal("nothing expired")
	}
	slices.Sort(result.Lateness)
	latest, median := result.Lateness[len(result.Lateness)-1], result.Lateness[len(result.Lateness)/2]
	t.Logf("%d messages of garbage rejected; %d documents expired meanwhile, half of them within %v, the last %v late; lapse took %d MB at most", n, len(result.Lateness), median, latest, most)
	if latest > 10*time.Second {
		t.Errorf("an event came %v late: the flood held it up", latest)
	}
	if limit := 400; most > limit {
		t.Errorf("lapse took %d MB, allowed are %d", most, limit)
	}
}

// flood sends n messages of garbage, without end but never far ahead of what is
// rejected: there is one log, and what comes after a heap of garbage waits for it.
func flood(ctx context.Context, w *world, n int) error {
	const atOnce, ahead = 1000, 4000
	for i := 0; i < n; i++ {
		if _, err := w.JS.PublishMsgAsync(garbage(w.Prefix, i)); err != nil {
			return err
		}
		if i%atOnce != atOnce-1 && i != n-1 {
			continue
		}
		select {
		case <-w.JS.PublishAsyncComplete():
		case <-ctx.Done():
			return ctx.Err()
		}
		err := harness.Poll(ctx, harness.Limit, func(context.Context) error {
			got, err := metricNow(w.lapse, "lapse_messages_rejected_total")
			if err == nil && int(got) < i-ahead {
				err = fmt.Errorf("of %d messages of garbage %.0f are rejected", i, got)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

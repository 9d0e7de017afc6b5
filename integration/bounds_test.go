package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/programs"
	"github.com/seed18712806/lapse/sink/wire"
)

// costs measures what a lapse process, with both servers inside, takes while clients do the worst that they may. The
// most is in MiB, beyond what it has had before.
func costs(t *testing.T, w *world, what string, most int64, act func()) {
	t.Helper()
	if err := w.lapse.ForgetPeak(); err != nil {
		t.Fatal(err)
	}
	before := w.lapse.Resident()
	act()
	peak, after := w.lapse.Peak(), w.lapse.Resident()
	t.Logf("%s: %d MiB before, %d at the peak, %d after", what, before>>20, peak>>20, after>>20)
	if peak == 0 || peak-before > most<<20 {
		t.Errorf("%s: %d MiB more than before, want %d at most", what, (peak-before)>>20, most)
	}
}

// unread opens a connection that asks for a path, and takes nothing of the answer but its beginning.
func unread(w *world, path string) (net.Conn, error) {
	conn, err := net.Dial("tcp", w.lapse.HTTP)
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		return conn, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path); err != nil {
		return conn, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(harness.Limit)); err != nil {
		return conn, err
	}
	_, err = io.ReadFull(conn, make([]byte, 12))
	return conn, err
}

// TestAll_Bounds_UnreadChanges: 200 clients follow the changes of a collection, and take nothing. Writes go on beside
// them. There is one consumer of the events for all of them.
//
// It fails if each client has what NATS sends ahead, or all ids; if there is a consumer for each; or if a write fails.
func TestAll_Bounds_UnreadChanges(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	w.Configure("orders", `{"defaultTtl":-1,"changes":true}`)
	body := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 4<<10))
	for n := range 1000 {
		w.Write(wire.Upsert, "orders", fmt.Sprint(n), body)
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	costs(t, w, "200 unread streams of changes", 320, func() {
		var mu sync.Mutex
		var opening sync.WaitGroup
		for range 200 {
			opening.Go(func() {
				conn, err := unread(w, "/v1/changes?collection=orders")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, conn)
			})
		}
		opening.Wait()
		for n := range 1000 {
			w.Want(200, wire.Upsert, "orders", fmt.Sprint(n), body)
		}
		stream, err := w.JS.Stream(t.Context(), w.Prefix.EventsStream())
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Consumers; n > 1 {
			t.Errorf("%d consumers", n)
		}
	})
}

// publishLarge lets documents of almost 1 MB expire.
func publishLarge(t *testing.T, w *world, documents int) {
	t.Helper()
	w.Configure("large", `{"defaultTtl":1}`)
	body := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 900<<10))
	for n := range documents {
		w.Want(201, wire.Create, "large", fmt.Sprint(n), body)
	}
	harness.Until(t, harness.Limit, "all have expired", func(ctx context.Context) error {
		stream, err := w.JS.Stream(ctx, w.Prefix.EventsStream())
		if err == nil && stream.CachedInfo().State.Msgs < uint64(documents) {
			err = fmt.Errorf("%d of %d", stream.CachedInfo().State.Msgs, documents)
		}
		return err
	})
}

// TestAll_Bounds_LiveEvents: eight people look at the live events of the console at the same time, each of which is
// almost 1 MB.
//
// It fails if a page reads so many events as it may show, whatever their size.
func TestAll_Bounds_LiveEvents(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	publishLarge(t, w, 100)
	w.lapse.Terminate() // so that it has nothing of the writes in its memory
	w.lapse.Start()
	costs(t, w, "eight pages of live events of 900 KiB each", 320, func() {
		var looking sync.WaitGroup
		for range 8 {
			looking.Go(func() {
				for range 3 {
					resp, err := http.Get("http://" + w.lapse.HTTP + "/console/live")
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK &&
						resp.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("%s: %v", resp.Status, err)
					}
					_ = resp.Body.Close()
				}
			})
		}
		looking.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
}

// TestAll_Bounds_Archive: lapse archive writes 9,000 events, which are 74 MB, into files for one range of sequences.
//
// It fails if it holds a file, or if files are cut by sequences alone.
func TestAll_Bounds_Archive(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	const events, size = 9_000, 8 << 10
	for n := range events {
		id := fmt.Sprint(n)
		msg := &nats.Msg{Subject: w.Prefix.Expired("large", id),
			Data: fmt.Appendf(nil, `{"id":%q,"x":"%0*d"}`, id, size, n), Header: nats.Header{
				"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"},
				"ce-source": {"/lapse/17/collections/large"}, "ce-subject": {id}, "ce-id": {"large/" + id + "/1"},
			}}
		if _, err := w.JS.PublishMsgAsync(msg, jetstream.WithStallWait(harness.Limit)); err != nil {
			t.Fatal(err)
		}
	}
	<-w.JS.PublishAsyncComplete()
	dir := t.TempDir()
	p := harness.StartProcess(t, "archive", programs.Path(t, "lapse"), "archive", "large", dir, "--since", "1h",
		"--once", "--server", w.lapse.NATSURL)
	var peak int64
	harness.Until(t, 4*harness.Limit, "all are archived", func(context.Context) error {
		if peak = max(peak, p.Peak()); p.Running() {
			return errors.New("not yet")
		}
		return nil
	})
	files, err := filepath.Glob(filepath.Join(dir, "large-*.ndjson.gz"))
	if err != nil || len(files) < events*size/(16<<20) {
		t.Errorf("files %v, %v", files, err)
	}
	t.Logf("lapse archive of 74 MB: %d MiB at the peak", peak>>20)
	if peak == 0 || peak > 192<<20 {
		t.Errorf("it takes %d MiB", peak>>20)
	}
}

// TestAll_Bounds_Touches: a writer touches a document of 100 KB 1,000 times, and a reader gets one that slides, in
// collections with changes.
//
// It fails if the stream of events gets the document again with each touch, or a change with each renewal.
func TestAll_Bounds_Touches(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	w.Configure("orders", `{"defaultTtl":5,"changes":true,"slideOnRead":true}`)
	w.Want(201, wire.Create, "orders", "a", fmt.Sprintf(`{"ttl":-1,"x":%q}`, strings.Repeat("x", 100<<10)))
	w.Want(201, wire.Create, "orders", "read", `{}`)
	events := func() (bytes uint64, messages uint64) {
		t.Helper()
		stream, err := w.JS.Stream(t.Context(), w.Prefix.EventsStream())
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Bytes, stream.CachedInfo().State.Msgs
	}
	before, _ := events()
	costs(t, w, "1,000 touches of 100 KB", 128, func() {
		for range 1000 {
			w.Want(200, wire.Touch, "orders", "a", "")
		}
	})
	if after, _ := events(); after-before > 1<<20 {
		t.Errorf("1,000 touches have become %d KiB of events", (after-before)>>10)
	}
	_, before = events()
	began := time.Now()
	for time.Since(began) < 10*time.Second { // two TTLs
		if _, err := w.NC.Request("lapse.read.get.orders.read", nil, harness.Limit); err != nil {
			t.Fatal(err)
		}
	}
	if _, after := events(); after-before > uint64(time.Since(began)/(5*time.Second))+1 {
		t.Errorf("reads over %s have made %d changes", time.Since(began), after-before)
	}
}

// TestAll_Bounds_Subjects: a client of the embedded NATS server publishes on subjects of 3.8 KB, and another one
// subscribes to as much as it may.
//
// It fails if the server takes such subjects, or any number of subscriptions.
func TestAll_Bounds_Subjects(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	costs(t, w, "subjects of 3.8 KB and 300,000 subscriptions", 128, func() {
		refused := make(chan error, 1)
		nc, err := nats.Connect(w.lapse.NATSURL, nats.NoReconnect(),
			nats.ClosedHandler(func(nc *nats.Conn) { refused <- nc.LastError() }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for n := range 1000 {
			if nc.Publish(fmt.Sprintf("lapse.write.upsert.orders.%d%s", n, strings.Repeat("x", 3800)), nil) != nil {
				break
			}
		}
		_ = nc.Flush()
		select {
		case err := <-refused:
			t.Logf("the server says: %v", err)
		case <-time.After(harness.Limit):
			t.Error("the server takes subjects of 3.8 KB")
		}
		many, err := nats.Connect(w.lapse.NATSURL, nats.NoReconnect(),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer many.Close()
		for n := range 300_000 {
			if _, err := many.Subscribe(fmt.Sprint("other.", n), func(*nats.Msg) {}); err != nil {
				break
			}
		}
		_ = many.Flush()
	})
}

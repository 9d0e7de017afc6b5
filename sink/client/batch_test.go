package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
	"github.com/seed18712806/lapse/sink/wire"
)

// startMapped starts a server that maps writes to so many shards.
func startMapped(t *testing.T, shards int, opts natstest.Options) (url string) {
	t.Helper()
	if shards == 1 {
		return natstest.Start(t, opts)
	}
	from, to := wire.DefaultPrefix.Mapping(shards)
	return natstest.StartMapped(t, opts, from, to)
}

// newLogs makes the streams of lapse for so many shards, which take fast batches.
func newLogs(t *testing.T, url string, shards int, config func(*jetstream.StreamConfig)) *bench {
	t.Helper()
	b := &bench{url: url}
	var err error
	if b.nc, err = nats.Connect(b.url, natstest.Patient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.nc.Close)
	b.js = natstest.JetStream(t, b.nc)
	configs := []jetstream.StreamConfig{{Name: "LAPSE_CONFIG", Subjects: wire.DefaultPrefix.ConfigSubjects(),
		Metadata: map[string]string{wire.ShardsKey: strconv.Itoa(shards)}}}
	if shards == 1 {
		configs = nil
	}
	for shard := range shards {
		log := wire.DefaultPrefix.Log(shard, shards)
		configs = append(configs, jetstream.StreamConfig{Name: log.Stream(), Subjects: log.Subjects(),
			AllowBatchPublish: true})
	}
	for _, one := range configs {
		if config != nil {
			config(&one)
		}
		if _, err := b.js.CreateStream(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// messages are those that a stream has.
func (b *bench) messages(t *testing.T, stream string) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	s, err := b.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq && seq > 0; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, msg)
	}
	return all
}

// results collects what became of the writes of a batch.
type results struct {
	ids    []string
	failed map[string]error
}

func (r *results) done(id string, _ client.Written, err error) {
	r.ids = append(r.ids, id)
	if err != nil {
		if r.failed == nil {
			r.failed = map[string]error{}
		}
		r.failed[id] = err
	}
}

// The log of each shard has the writes of a batch in the order of sending, in a fast batch on
// the shard's own subject.
func TestBatchGoesToItsShard(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			b := newLogs(t, startMapped(t, shards, natstest.Options{}), shards, nil)
			mapped := 0 // messages that are published to the subjects of clients
			sub, err := b.nc.Subscribe("lapse.>", func(m *nats.Msg) {
				if !strings.HasSuffix(m.Reply, ".$FI") && m.Reply != "" {
					mapped++
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			var r results
			batch, err := b.orders(t).Batch(t.Context(), r.done, client.AckOnly())
			if err != nil {
				t.Fatal(err)
			}
			const all = 2500
			for i := range all {
				if err := batch.Upsert(t.Context(), fmt.Sprint("id.", i), Order{Count: i}); err != nil {
					t.Fatal(err)
				}
			}
			if err := batch.Close(t.Context()); err != nil || len(r.failed) > 0 || len(r.ids) != all {
				t.Fatalf("%v, %d done, %d failed", err, len(r.ids), len(r.failed))
			}
			if err := b.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			_ = sub.Unsubscribe()
			if mapped > 0 {
				t.Errorf("%d messages are in no fast batch", mapped)
			}
			total := 0
			for shard := range shards {
				log := wire.DefaultPrefix.Log(shard, shards)
				last := -1
				for _, m := range b.messages(t, log.Stream()) {
					published := log.ParseSubject(m.Subject).Published()
					var o Order
					if err := json.Unmarshal(m.Data, &o); err != nil {
						t.Fatal(err)
					}
					if want := wire.DefaultPrefix.Write(wire.Upsert, "orders", fmt.Sprint("id.", o.Count)); published != want {
						t.Fatalf("%s has %s on %s", log.Stream(), want, m.Subject)
					}
					if o.Count <= last {
						t.Fatalf("%s has write %d after %d", log.Stream(), o.Count, last)
					}
					last = o.Count
					total++
				}
			}
			if total != all {
				t.Errorf("the logs have %d messages, want %d", total, all)
			}
		})
	}
}

// A write that the log refuses ends with its error. Those after it are stored, in their order.
func TestBatchWithARefusedWrite(t *testing.T) {
	t.Parallel()
	b := newLogs(t, natstest.Start(t, natstest.Options{}), 1, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
	for _, large := range [][]int{{0}, {57}, {299}, {0, 1, 5, 100, 101, 299}} {
		log, err := b.js.Stream(t.Context(), "LAPSE_LOG")
		if err == nil {
			err = log.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		isLarge := map[int]bool{}
		for _, n := range large {
			isLarge[n] = true
		}
		var r results
		batch, err := b.orders(t).Batch(t.Context(), r.done, client.AckOnly())
		if err != nil {
			t.Fatal(err)
		}
		const all = 300
		for i := range all {
			o := Order{Count: i}
			if isLarge[i] {
				o.Item = strings.Repeat("x", 2000)
			}
			if err := batch.Upsert(t.Context(), fmt.Sprint(i), o); err != nil {
				t.Fatal(err)
			}
		}
		if err := batch.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(r.ids) != all || len(r.failed) != len(large) {
			t.Errorf("%v: %d done, failed %v", large, len(r.ids), r.failed)
		}
		for _, n := range large {
			wantError(t, r.failed[fmt.Sprint(n)], "the log refuses the message", "message size exceeds maximum allowed")
		}
		last := -1
		stored := b.messages(t, "LAPSE_LOG")
		for _, m := range stored {
			var o Order
			if err := json.Unmarshal(m.Data, &o); err != nil || o.Count <= last {
				t.Fatalf("%v: the log has write %d after %d", large, o.Count, last)
			}
			last = o.Count
		}
		if len(stored) != all-len(large) {
			t.Errorf("%v: the log has %d writes, want %d", large, len(stored), all-len(large))
		}
	}
}

// An answer that ends a batch can come between any two steps of a write. No write is forgotten
// by that: each of them ends.
func TestBatchWithManyRefusedWrites(t *testing.T) {
	t.Parallel()
	b := newLogs(t, natstest.Start(t, natstest.Options{}), 1, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 200 })
	var r results
	batch, err := b.orders(t).Batch(t.Context(), r.done, client.AckOnly())
	if err != nil {
		t.Fatal(err)
	}
	const all = 900 // what is in flight is sent again after each refusal, so this takes its square
	for i := range all {
		o := Order{Count: i}
		if i%3 > 0 { // the second of two begins a batch, and is its only answer
			o.Item = strings.Repeat("x", 300)
		}
		if err := batch.Upsert(t.Context(), fmt.Sprint(i), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := all * 2 / 3; len(r.ids) != all || len(r.failed) != want {
		t.Errorf("%d done, %d failed, want %d and %d", len(r.ids), len(r.failed), all, want)
	}
}

// Where fast batches do not work, each write is sent by itself: the log does not take them, or
// the user may not look at the log, or reaches only the subjects of clients.
func TestBatchWithoutFastBatches(t *testing.T) {
	t.Parallel()
	const api = `{ service: { account: LAPSE, subject: "$JS.API.>" } }`
	for name, c := range map[string]struct {
		shards int
		config func(*jetstream.StreamConfig)
		more   string // imports of the user's account
	}{
		"an older log":                             {2, func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false }, api},
		"who may not look at the log":              {1, nil, ""},
		"who has only the subjects of clients":     {2, nil, api},
		"who publishes from another account, fast": {1, nil, api},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := wire.DefaultPrefix.Mapping(c.shards)
			if c.shards == 1 {
				from, to = "none", "none"
			}
			srv := harness.StartNATS(t, harness.NATSOptions{OwnUsers: true, Config: fmt.Sprintf(`
accounts {
  LAPSE { jetstream: enabled, mappings: { %q: %q }, users: [ { user: all, password: p } ]
    exports: [ { service: "lapse.write.>" }, { service: "$JS.API.>", response_type: stream } ] }
  APPS { users: [ { user: u, password: p } ]
    imports: [ { service: { account: LAPSE, subject: "lapse.write.>" } }, %s ] }
}
no_auth_user: all
`, from, to, c.more)})
			b := newLogs(t, srv.URL(), c.shards, c.config)
			conn, err := client.Connect(client.Options{Server: strings.Replace(b.url, "://", "://u:p@", 1), Timeout: short})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			orders, err := client.Open[Order](conn, "orders")
			if err != nil {
				t.Fatal(err)
			}
			var r results
			batch, err := orders.Batch(t.Context(), r.done, client.AckOnly())
			if err != nil {
				t.Fatal(err)
			}
			const all = 1500
			for i := range all {
				if err := batch.Upsert(t.Context(), fmt.Sprint(i), Order{Count: i}); err != nil {
					t.Fatal(err)
				}
			}
			if err := batch.Close(t.Context()); err != nil || len(r.failed) > 0 || len(r.ids) != all {
				t.Fatalf("%v, %d done, %d failed, the first: %v", err, len(r.ids), len(r.failed), r.failed["0"])
			}
			stored := 0
			for shard := range c.shards {
				stored += len(b.messages(t, wire.DefaultPrefix.Log(shard, c.shards).Stream()))
			}
			if stored != all {
				t.Errorf("the logs have %d writes, want %d", stored, all)
			}
		})
	}
}

// A user who may not write at all gets an error at once, also with several shards.
func TestBatchIsDenied(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		url := startMapped(t, shards, natstest.Options{Config: `authorization { users: [
			{ user: all, password: p }
			{ user: u, password: p, permissions: { publish: ["$JS.API.>"] } }
		] }`})
		newLogs(t, strings.Replace(url, "://", "://all:p@", 1), shards, nil)
		conn, err := client.Connect(client.Options{Server: strings.Replace(url, "://", "://u:p@", 1), Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		orders, err := client.Open[Order](conn, "orders")
		if err != nil {
			t.Fatal(err)
		}
		_, err = orders.Upsert(t.Context(), "1", Order{})
		wantIs(t, err, client.ErrDenied)
		batch, err := orders.Batch(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = batch.Upsert(t.Context(), "1", Order{})
		wantIs(t, errors.Join(err, batch.Close(t.Context())), client.ErrDenied)
	}
}

// A batch against lapse: outcomes and errors are those of single writes, and duplicates are
// found among others.
func TestBatch(t *testing.T) {
	t.Parallel()
	l := clienttest.Start(t, clienttest.OpenCollections)
	orders, err := client.Open[Order](l.Client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]client.Written{}
	var r results
	batch, err := orders.Batch(t.Context(), func(id string, w client.Written, err error) {
		r.done(id, w, err)
		written[id] = w
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const all = 3000
	for i := range all {
		send(batch.Upsert(t.Context(), fmt.Sprint(i), Order{Count: i}))
		if i%1000 == 500 {
			send(batch.Upsert(t.Context(), fmt.Sprint("named", i), Order{}, client.MessageID("m")))
		}
	}
	send(batch.Create(t.Context(), "7", Order{}))
	send(batch.Replace(t.Context(), "none", Order{}))
	send(batch.Patch(t.Context(), "8", map[string]int{"count": 80}))
	send(batch.Touch(t.Context(), "9"))
	send(batch.Delete(t.Context(), "10"))
	send(batch.Upsert(t.Context(), "11", Order{}, client.IfMatch(1<<40)))
	wantIs(t, batch.Upsert(t.Context(), "", Order{}), client.ErrInvalid)
	wantIs(t, batch.Touch(t.Context(), "1", client.TTL(time.Hour)), client.ErrInvalid)
	wantIs(t, batch.Touch(t.Context(), "1", client.AckOnly()), client.ErrInvalid)
	if err := batch.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.ids) != all+3+6 || len(r.failed) != 3 {
		t.Errorf("%d done, failed %v", len(r.ids), r.failed)
	}
	wantIs(t, r.failed["7"], client.ErrExists, client.ErrRejected)
	wantIs(t, r.failed["none"], client.ErrNotFound)
	wantIs(t, r.failed["11"], client.ErrPrecondition)
	if !written["named1500"].Duplicate || !written["named2500"].Duplicate || written["named500"].Duplicate {
		t.Errorf("duplicates: %+v %+v %+v", written["named500"], written["named1500"], written["named2500"])
	}
	if w := written["99"]; !w.Created || w.Etag == 0 || w.Ts.IsZero() || !w.ExpiresAt.IsZero() {
		t.Errorf("%+v", w)
	}
	doc, err := orders.Get(t.Context(), "8")
	if err != nil || doc.Value.Count != 80 {
		t.Errorf("%+v, %v", doc, err)
	}

	if _, err := orders.Batch(t.Context(), nil, client.TTL(time.Hour)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	quiet, err := orders.Batch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	send(quiet.Create(t.Context(), "7", Order{}))
	wantIs(t, quiet.Close(t.Context()), client.ErrExists)
}

// BenchmarkBatch compares ways to write many documents against a log alone: without lapse, so
// that what differs is the client and the server.
//
//	go test ./sink/client -run '^$' -bench Batch -benchtime 200000x
func BenchmarkBatch(b *testing.B) {
	url := natstest.Start(b, natstest.Options{})
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	document := Order{Item: strings.Repeat("x", 300)}
	for _, fast := range []bool{false, true} {
		b.Run(map[bool]string{false: "single", true: "fast"}[fast], func(b *testing.B) {
			_ = js.DeleteStream(b.Context(), "LAPSE_LOG")
			if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "LAPSE_LOG",
				Subjects: wire.DefaultPrefix.Log(0, 1).Subjects(), AllowBatchPublish: fast}); err != nil {
				b.Fatal(err)
			}
			c, err := client.Connect(client.Options{Server: url, Timeout: limit})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			orders, err := client.Open[Order](c, "orders")
			if err != nil {
				b.Fatal(err)
			}
			batch, err := orders.Batch(context.Background(), nil, client.AckOnly())
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			before := cpu(b)
			for i := range b.N {
				if err := batch.Upsert(context.Background(), strconv.Itoa(i), document); err != nil {
					b.Fatal(err)
				}
			}
			if err := batch.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/write")
		})
	}
}

// cpu is the time that this process has used of the processors.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

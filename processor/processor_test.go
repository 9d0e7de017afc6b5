package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// rig is a processor with a NATS server and a store of its own.
type rig struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	redis  *redis.Client
	reader *sink.Reader
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: t.TempDir(), Port: -1, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	mr := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mr.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	reader, err := sink.NewReader(client, sink.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, nc: nc, js: js, redis: client, reader: reader}
}

// run runs a processor until the test ends.
func (r *rig) run() *Processor {
	r.t.Helper()
	p, err := New(r.nc, r.redis, Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	eventually(r.t, func() bool { return p.Ready() == nil })
	return p
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit:
			t.Fatal("it did not come about within 20s")
		case <-tick.C:
		}
	}
}

// ask publishes a message and returns its outcome.
func (r *rig) ask(subject, body string, headers ...string) wire.Outcome {
	r.t.Helper()
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{wire.HeaderReplyTo: {inbox}}}
	for i := 0; i < len(headers); i += 2 {
		m.Header.Add(headers[i], headers[i+1])
	}
	if _, err := r.js.PublishMsg(context.Background(), m); err != nil {
		r.t.Fatalf("publish to %s: %v", subject, err)
	}
	reply, err := sub.NextMsg(10 * time.Second)
	if err != nil {
		r.t.Fatalf("outcome of %s: %v", subject, err)
	}
	var o wire.Outcome
	if err := json.Unmarshal(reply.Data, &o); err != nil {
		r.t.Fatal(err)
	}
	return o
}

func TestADocumentExpires(t *testing.T) {
	r := newRig(t)
	r.run()
	prefix := wire.DefaultPrefix
	events, err := r.nc.SubscribeSync("lapse.expired.>")
	if err != nil {
		t.Fatal(err)
	}
	if o := r.ask(prefix.Config("orders"), `{"defaultTtl":1}`); o.Status != 200 {
		t.Fatalf("config: %+v", o)
	}
	for i := range 20 {
		if o := r.ask(prefix.Write(wire.Upsert, "orders", fmt.Sprint("a.", i)), `{"n": 1}`); o.Status != 201 || o.ExpiresAt == nil {
			t.Fatalf("upsert: %+v", o)
		}
	}
	d, err := r.reader.Get(t.Context(), "orders", "a.3")
	if err != nil || string(d.Body) != `{"n": 1}` {
		t.Fatalf("get: %+v, %v", d, err)
	}
	for range 20 {
		m, err := events.NextMsg(3 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var e wire.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s late %v", m.Subject, m.Data, time.Since(time.UnixMilli(int64(e.ExpiredAt))))
	}
	c, err := r.reader.Count(t.Context(), "orders")
	t.Log(c, err)
	f, err := r.reader.Forecast(t.Context(), "orders", 3, 0)
	t.Log(f, err)
	o := r.ask("lapse.write.frob.x.y", `{}`)
	t.Log(o)
}

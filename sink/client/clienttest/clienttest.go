// Package clienttest runs a lapse of its own for the tests of programs that use package client:
//
//	func TestOrdersExpire(t *testing.T) {
//		l := clienttest.Start(t)
//		orders, err := client.Open[Order](l.Client(), "orders")
//		...
//		l.Expire("orders", "42") // no waiting, however long its TTL is
//	}
//
// It is the real thing: a NATS server with JetStream, a Redis (miniredis) and the processor, in
// the process of the test, on ports of their own and in a directory that is removed. It is
// ready in less than a second.
//
// # Time
//
// lapse goes by the stamps that NATS gives to the messages of the log, and time only moves on.
// [Lapse.Advance] sets this clock ahead: it stores a message in the log whose stamp is that
// much ahead, as if the NATS server had a clock that is wrong. Then all that is due expires, in
// the order and with the events that it would have had. From then on the clock of the log
// goes on from there, in steps of 20 ms.
//
// The stamps of the stream of events are not ahead: for client.Since, use the real time.
package clienttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// limit is the longest that anything here waits for.
const limit = time.Minute

// maxLead lets the clock of the log lead those of the machine.
const maxLead = 250 * 365 * 24 * time.Hour

// Lapse is a lapse that runs in this process.
type Lapse struct {
	server  *server.Server
	nc      *nats.Conn
	js      jetstream.JetStream
	redis   *miniredis.Miniredis
	client  *client.Client
	clock   *clock
	closers []func()
	open    bool
	fail    func(error)
}

// Option changes a lapse that [Start] or [New] makes.
type Option func(*Lapse)

// OpenCollections is lapse serve --open-collections: a write makes a collection that was never configured. Without it
// a test has to configure its collections, as the program has to.
func OpenCollections(l *Lapse) { l.open = true }

// Start runs a lapse until the test ends, and returns when it is ready. If anything fails, it
// fails the test.
func Start(t testing.TB, options ...Option) *Lapse {
	t.Helper()
	l, err := New(options...)
	if err != nil {
		t.Fatalf("start lapse: %v", err)
	}
	t.Cleanup(l.Close)
	l.fail = func(err error) { t.Helper(); t.Fatal(err) }
	return l
}

// New is Start for examples and for TestMain: close it at the end. If anything fails later, the
// methods panic.
func New(options ...Option) (*Lapse, error) {
	l := &Lapse{fail: func(err error) { panic(err) }}
	for _, o := range options {
		o(l)
	}
	if err := l.start(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Client is a client of the lapse. It is closed with it.
func (l *Lapse) Client() *client.Client { return l.client }

// URL is the address of the NATS server, for clients of the test's own.
func (l *Lapse) URL() string { return l.server.ClientURL() }

// Close ends the lapse. Closing twice is fine.
func (l *Lapse) Close() {
	for i := len(l.closers) - 1; i >= 0; i-- {
		l.closers[i]()
	}
	l.closers = nil
}

func (l *Lapse) closeWith(f func()) { l.closers = append(l.closers, f) }

func (l *Lapse) start() error {
	dir, err := os.MkdirTemp("", "clienttest")
	if err != nil {
		return err
	}
	l.closeWith(func() { _ = os.RemoveAll(dir) })
	if l.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
		SyncInterval: time.Hour, // the data need not survive
	}); err != nil {
		return err
	}
	l.server.Start()
	l.closeWith(func() { l.server.Shutdown(); l.server.WaitForShutdown() })
	if !l.server.ReadyForConnections(limit) {
		return errors.New("the NATS server is not ready")
	}
	if l.redis, err = miniredis.Run(); err != nil {
		return err
	}
	l.closeWith(l.redis.Close)
	rdb := redis.NewClient(&redis.Options{Addr: l.redis.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true,
		ReadTimeout: limit, WriteTimeout: limit})
	l.closeWith(func() { _ = rdb.Close() })
	if l.nc, err = nats.Connect(l.URL(), nats.Timeout(limit), nats.InProcessServer(l.server)); err != nil {
		return err
	}
	closed := make(chan struct{}) // once the goroutines of the connection have ended
	l.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	l.closeWith(func() { l.nc.Close(); <-closed })
	if l.js, err = jetstream.New(l.nc, jetstream.WithDefaultTimeout(limit)); err != nil {
		return err
	}
	// The first processor makes the streams.
	stop, err := l.run(rdb)
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	if l.clock, err = newClock(l); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	if stop, err = l.run(rdb); err != nil {
		return err
	}
	l.closeWith(func() {
		if err := stop(); err != nil {
			l.fail(fmt.Errorf("the processor has ended: %w", err))
		}
	})
	l.closeWith(l.clock.stop)
	reader, err := sink.NewReader(rdb, sink.ReaderOptions{Prefix: wire.DefaultPrefix})
	if err != nil {
		return err
	}
	reads, err := service.Start(l.nc, service.Sliding{Reader: reader, NATS: l.nc, Prefix: wire.DefaultPrefix},
		service.Options{Timeout: limit, Settled: func(ctx context.Context) (wire.SettledReply, error) {
			return processor.Settled(ctx, l.nc, wire.DefaultPrefix, 1)
		}})
	if err != nil {
		return err
	}
	l.closeWith(reads.Stop)
	if err := l.nc.FlushTimeout(limit); err != nil { // the server has its subscriptions
		return err
	}
	if l.client, err = client.Connect(client.Options{Server: l.URL(), Timeout: limit}); err != nil {
		return err
	}
	l.closeWith(l.client.Close)
	return nil
}

// run runs a new processor, and returns when it is ready.
func (l *Lapse) run(rdb *redis.Client) (stop func() error, err error) {
	proc, err := processor.New(l.nc, rdb, processor.Options{MaxClockLead: maxLead, OpenCollections: l.open})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var result error // once done is closed
	go func() {
		defer close(done)
		result = proc.Run(ctx)
	}()
	stop = func() error { cancel(); <-done; return result }
	err = until(func(context.Context) error {
		select {
		case <-done:
			return nil
		default:
			return proc.Ready()
		}
	})
	select {
	case <-done:
		err = fmt.Errorf("the processor has ended: %w", result)
	default:
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// until waits until try succeeds.
func until(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

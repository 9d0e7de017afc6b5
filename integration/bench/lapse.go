package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	prefix  = wire.DefaultPrefix
	orders  = "orders"
	warm    = "warm" // the collection, or bucket, of the warm-up
	off     = int32(0)
	pollAll = 5 * time.Millisecond
)

// lapseServer is lapse with a nats-server and a redis-server of its own.
type lapseServer struct {
	*process
	b      *bench
	nats   *natsServer
	redis  *redisServer
	http   string
	reader *sink.Reader
	denied atomic.Int64 // reads that were answered with "not available"
	why    atomic.Pointer[error]
}

// startLapse starts all three, and waits until lapse is ready. 0 partitions are
// the default.
func (b *bench) startLapse(ctx context.Context, partitions int) (*lapseServer, error) {
	l := &lapseServer{b: b}
	err := func() (err error) {
		if l.nats, err = b.startNATS(ctx); err != nil {
			return err
		}
		if l.redis, err = b.startRedis(ctx); err != nil {
			return err
		}
		if l.reader, err = sink.NewReader(l.redis.client, sink.ReaderOptions{Partitions: partitions}); err != nil {
			return err
		}
		args := []string{"--nats", l.nats.url, "--redis", "redis://" + l.redis.addr}
		if partitions != 0 {
			args = append(args, "--partitions", strconv.Itoa(partitions))
		}
		return l.serve(ctx, args...)
	}()
	if err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// serve starts the process and waits until it is ready.
func (l *lapseServer) serve(ctx context.Context, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	dir, err := l.b.folder("lapse")
	if err != nil {
		return err
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	l.http = "http://" + listen
	binary, command := l.b.binary, "serve"
	if binary == "" {
		command = childCommand
		if binary, err = os.Executable(); err != nil {
			return err
		}
	}
	if l.process, err = start("lapse", dir, binary, append([]string{command, "--http-listen", listen}, args...)...); err != nil {
		return err
	}
	return l.wait(ctx, func(ctx context.Context) error {
		_, err := get(ctx, l.http+"/readyz")
		return err
	})
}

func (l *lapseServer) stop() {
	if n := l.denied.Swap(0); n > 0 {
		l.b.problem("%d reads were refused for no reason (%v)", n, *l.why.Load())
	}
	l.process.stop()
	if l.redis != nil {
		l.redis.stop()
	}
	if l.nats != nil {
		l.nats.stop()
	}
}

// configure sets a collection's default TTL (off: none), and waits for the outcome.
func (l *lapseServer) configure(ctx context.Context, collection string, seconds int32) error {
	inbox := l.nats.nc.NewInbox()
	sub, err := l.nats.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	m := configMessage(collection, seconds)
	m.Header = nats.Header{wire.HeaderReplyTo: {inbox}}
	if _, err := l.nats.js.PublishMsg(ctx, m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	reply, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return fmt.Errorf("outcome of a configuration: %w", err)
	}
	var o wire.Outcome
	if err := json.Unmarshal(reply.Data, &o); err != nil || o.Status != wire.StatusOK {
		return fmt.Errorf("outcome of a configuration: %s %w", reply.Data, err)
	}
	return nil
}

func configMessage(collection string, seconds int32) *nats.Msg {
	body := `{"defaultTtl":null}`
	if seconds != off {
		body = fmt.Sprintf(`{"defaultTtl":%d}`, seconds)
	}
	return &nats.Msg{Subject: prefix.Config(collection), Data: []byte(body)}
}

// stored waits until a collection has so many live documents, in the index too.
func (l *lapseServer) stored(ctx context.Context, collection string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		c, err := l.reader.Count(ctx, collection)
		if err == nil && c.Live == int64(n) {
			return nil
		}
		if err != nil && !errors.Is(err, sink.ErrUnavailable) {
			return fmt.Errorf("count %s: %w", collection, err)
		}
		if err == nil && c.Live > int64(n) {
			return fmt.Errorf("collection %s has %d documents, and %d were written", collection, c.Live, n)
		}
		select {
		case <-l.done:
			return errors.New("lapse has ended")
		case <-ctx.Done():
			return fmt.Errorf("collection %s has %+v (%w), and %d were written", collection, c, errors.Join(err, ctx.Err()), n)
		case <-time.After(pollAll):
		}
	}
}

// get reads a document, again if the answer was that it cannot be read now: which
// must not be while nothing is rebuilt.
func (l *lapseServer) get(ctx context.Context, collection, id string) (sink.Document, error) {
	for {
		d, err := l.reader.Get(ctx, collection, id)
		if !errors.Is(err, sink.ErrUnavailable) || ctx.Err() != nil {
			return d, err
		}
		l.denied.Add(1)
		l.why.Store(&err)
	}
}

// verify checks that documents read back as they were written: one in a
// hundred, and all of them in the index where they have a TTL.
func (l *lapseServer) verify(ctx context.Context, load load, within time.Duration) error {
	if within > 0 {
		f, err := l.reader.Forecast(ctx, orders, 1, within)
		if err != nil {
			return err
		}
		if f.Buckets[0].Count != int64(load.n) {
			l.b.problem("the index has %d of %d documents", f.Buckets[0].Count, load.n)
		}
	}
	for i := 0; i < load.n; i += 100 {
		d, err := l.get(ctx, orders, load.id(i))
		if err != nil {
			return fmt.Errorf("read %s: %w", load.id(i), err)
		}
		if string(d.Body) != string(load.body(i)) {
			l.b.problem("%s was written as %s and reads as %s", load.id(i), load.body(i), d.Body)
		}
	}
	return nil
}

// usage notes the CPU time that the processes used, from one call to the next.
func (l *lapseServer) usage() func(what string) {
	all := []*process{l.process, l.nats.process, l.redis.process}
	measure := func() (cpu []time.Duration) {
		for _, p := range all {
			cpu = append(cpu, p.cpu())
		}
		return append(cpu, cpuOf(os.Getpid()))
	}
	before, began := measure(), time.Now()
	return func(what string) {
		after := measure()
		var s strings.Builder
		for i, name := range []string{"lapse", "nats-server", "redis-server", "client"} {
			fmt.Fprintf(&s, ", %s %.2f s", name, (after[i] - before[i]).Seconds())
		}
		l.b.note("CPU, %s, in %.2f s%s", what, time.Since(began).Seconds(), s.String())
	}
}

// profile takes a CPU profile of lapse, if that was asked for, until the function
// that it returns is called.
func (l *lapseServer) profile(ctx context.Context, name string, round int) (func() error, error) {
	if l.b.profile == "" {
		return func() error { return nil }, nil
	}
	if _, err := get(ctx, l.http+"/profile/start"); err != nil {
		return nil, err
	}
	return func() error {
		b, err := get(ctx, l.http+"/profile/stop")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(l.b.options.profile, fmt.Sprintf("%s-%d.pprof", name, round+1)), b, 0o644)
	}, nil
}

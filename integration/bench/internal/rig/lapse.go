package rig

import (
	"cmp"
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
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	prefix = wire.DefaultPrefix
	// Orders is the collection or bucket of the documents that are timed.
	Orders = "orders"
	// Warm is the collection or bucket of the warm-up.
	Warm = "warm"
	// Off stands for no default TTL.
	Off = int32(0)

	pollEvery = 5 * time.Millisecond
	patience  = 10 * time.Minute
)

// Lapse is lapse with a nats-server and a redis-server of its own.
type Lapse struct {
	*Process
	NATS    *NATS
	Redis   *Redis // the first master
	Reader  *sink.Reader
	masters []*Redis
	client  redis.UniversalClient // of the Reader
	rig     *Rig
	http    string
	denied  atomic.Int64          // reads that were not available
	why     atomic.Pointer[error] // the last reason
}

// StartLapse starts the servers and lapse, and waits until it is ready. 0 shards
// stands for what the rig has.
func (r *Rig) StartLapse(ctx context.Context, shards int) (*Lapse, error) {
	l := &Lapse{rig: r}
	shards = cmp.Or(shards, r.Shards, 1)
	err := func() (err error) {
		if l.NATS, err = r.startNATS(ctx, shards); err != nil {
			return err
		}
		if l.masters, err = r.startMasters(ctx); err != nil {
			return err
		}
		l.Redis = l.masters[0]
		var addresses, urls []string
		for _, m := range l.masters {
			addresses, urls = append(addresses, m.addr), append(urls, "redis://"+m.addr)
		}
		l.client = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addresses, PoolSize: max(64, r.Clients), MaxRetries: -1})
		if l.Reader, err = sink.NewReader(l.client, sink.ReaderOptions{}); err != nil {
			return err
		}
		args := []string{"--nats", l.NATS.url, "--redis", strings.Join(urls, ",")}
		if shards > 1 {
			args = append(args, "--shards", strconv.Itoa(shards))
		}
		return l.serve(ctx, args...)
	}()
	if err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

// serve starts the process, and waits until it is ready.
func (l *Lapse) serve(ctx context.Context, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	dir, err := l.rig.Folder("lapse")
	if err != nil {
		return err
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	l.http = "http://" + listen
	binary, command := l.rig.Lapse, "serve"
	if binary == "" { // its collections are open, too
		command = ChildCommand
		if binary, err = os.Executable(); err != nil {
			return err
		}
	}
	if l.Process, err = start("lapse", dir, binary, append([]string{command, "--http-listen", listen}, args...)...); err != nil {
		return err
	}
	return l.wait(ctx, func(ctx context.Context) error {
		_, err := get(ctx, l.http+"/readyz")
		return err
	})
}

// Stop stops lapse and its servers.
func (l *Lapse) Stop() {
	if n := l.denied.Swap(0); n > 0 {
		l.rig.Problem("%d reads were not available, though nothing was rebuilt (%v)", n, *l.why.Load())
	}
	l.Process.Stop()
	if l.client != nil {
		_ = l.client.Close()
	}
	for _, m := range l.masters {
		m.Stop()
	}
	if l.NATS != nil {
		l.NATS.Stop()
	}
}

// Configure sets the default TTL of a collection, and waits for the outcome.
func (l *Lapse) Configure(ctx context.Context, collection string, seconds int32) error {
	return l.ConfigureWarning(ctx, collection, seconds, 0)
}

// ConfigureWarning is Configure, with a warning so many seconds before each deadline; none if it is 0.
func (l *Lapse) ConfigureWarning(ctx context.Context, collection string, seconds int32, before int) error {
	m := ConfigMessage(collection, seconds)
	if before > 0 {
		m.Data = fmt.Appendf(nil, `{"defaultTtl":%d,"warnBefore":[%d]}`, seconds, before)
	}
	return l.ask(ctx, m)
}

// ConfigureIndex is Configure, with an index of a JSON pointer.
func (l *Lapse) ConfigureIndex(ctx context.Context, collection string, seconds int32, pointer string) error {
	return l.ask(ctx, &nats.Msg{Subject: prefix.Config(collection), Data: fmt.Appendf(nil, `{"defaultTtl":%d,"indexes":[%q]}`, seconds, pointer)})
}

// ask publishes the message of a configuration, and waits for the outcome.
func (l *Lapse) ask(ctx context.Context, m *nats.Msg) error {
	inbox := l.NATS.NC.NewInbox()
	sub, err := l.NATS.NC.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	m.Header = nats.Header{wire.HeaderReplyTo: {inbox}}
	if _, err := l.NATS.JS.PublishMsg(ctx, m); err != nil {
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

// ConfigMessage returns the message that sets the default TTL of a collection.
func ConfigMessage(collection string, seconds int32) *nats.Msg {
	body := `{"defaultTtl":null}`
	if seconds != Off {
		body = fmt.Sprintf(`{"defaultTtl":%d}`, seconds)
	}
	return &nats.Msg{Subject: prefix.Config(collection), Data: []byte(body)}
}

// Stored waits until a collection has so many live documents.
func (l *Lapse) Stored(ctx context.Context, collection string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c, err := l.Reader.Count(ctx, collection)
		if err == nil && c.Live == int64(n) {
			return nil
		}
		if err != nil && !errors.Is(err, sink.ErrUnavailable) {
			return fmt.Errorf("count %s: %w", collection, err)
		}
		if err == nil && c.Live > int64(n) {
			return fmt.Errorf("collection %s has %d documents, but %d were written", collection, c.Live, n)
		}
		select {
		case <-l.done:
			return errors.New("lapse has ended")
		case <-ctx.Done():
			return fmt.Errorf("collection %s has %+v (%w), but %d were written", collection, c, errors.Join(err, ctx.Err()), n)
		case <-time.After(pollEvery):
		}
	}
}

// Get reads a document, again and again while it is not available. That is a fault unless
// lapse rebuilds.
func (l *Lapse) Get(ctx context.Context, collection, id string) (sink.Document, error) {
	for {
		d, err := l.Reader.Get(ctx, collection, id)
		if !errors.Is(err, sink.ErrUnavailable) || ctx.Err() != nil {
			return d, err
		}
		l.denied.Add(1)
		l.why.Store(&err)
	}
}

// Verify reads one document in a hundred and compares it. If within is not 0, it also checks
// that the index has all documents, with deadlines within that time.
func (l *Lapse) Verify(ctx context.Context, ld load.Load, within time.Duration) error {
	if within > 0 {
		f, err := l.Reader.Forecast(ctx, Orders, sink.ForecastOptions{Buckets: 1, Within: within})
		if err != nil {
			return err
		}
		if f.Buckets[0].Count != int64(ld.N) {
			l.rig.Problem("the index has %d of %d documents", f.Buckets[0].Count, ld.N)
		}
	}
	for i := 0; i < ld.N; i += 100 {
		d, err := l.Get(ctx, Orders, ld.ID(i))
		if err != nil {
			return fmt.Errorf("read %s: %w", ld.ID(i), err)
		}
		if string(d.Body) != string(ld.Body(i)) {
			l.rig.Problem("%s was written as %s and reads as %s", ld.ID(i), ld.Body(i), d.Body)
		}
	}
	return nil
}

// Memory returns the bytes of memory that lapse and its servers have.
func (l *Lapse) Memory() int {
	sum := l.Process.Memory() + l.NATS.Memory()
	for _, m := range l.masters {
		sum += m.Memory()
	}
	return sum
}

// Usage notes the CPU time of lapse, nats-server and each Redis, see [Rig.Usage].
func (l *Lapse) Usage() func(what string) []time.Duration {
	all := []*Process{l.Process, l.NATS.Process}
	for _, m := range l.masters {
		all = append(all, m.Process)
	}
	return l.rig.Usage(all...)
}

// Scripts returns how many scripts have run in Redis since it was started.
func (l *Lapse) Scripts(ctx context.Context) (n int, err error) {
	for _, m := range l.masters {
		stats, err := m.Client.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return 0, err
		}
		for _, command := range []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"} {
			if of, ok := strings.CutPrefix(stats["Commandstats"]["cmdstat_"+command], "calls="); ok {
				calls, _, _ := strings.Cut(of, ",")
				more, err := strconv.Atoi(calls)
				if err != nil {
					return 0, err
				}
				n += more
			}
		}
	}
	return n, nil
}

// Profile takes a CPU profile of lapse if the rig has a folder for profiles. The function
// that it returns ends the profile.
func (l *Lapse) Profile(ctx context.Context, name string, round int) (func() error, error) {
	if l.rig.Profiles == "" {
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
		return os.WriteFile(filepath.Join(l.rig.Profiles, fmt.Sprintf("%s-%d.pprof", name, round+1)), b, 0o644)
	}, nil
}

// Fill publishes documents to lapse, and waits until all are stored.
func (l *Lapse) Fill(ctx context.Context, collection string, ld load.Load) error {
	if err := load.PublishAll(l.NATS.JS, ld.N, func(i int) *nats.Msg { return ld.Upsert(collection, i, ld.TTL) }); err != nil {
		return err
	}
	return l.Stored(ctx, collection, ld.N)
}

// Published waits until the events stream holds so many events.
func (l *Lapse) Published(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, err := l.NATS.JS.Stream(ctx, prefix.EventsStream())
		if err != nil {
			return fmt.Errorf("wait for %d events: %w", n, err)
		}
		// The stream also holds fences.
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(string(prefix)+".fence.*"))
		if err != nil {
			return fmt.Errorf("wait for %d events: %w", n, err)
		}
		have := info.State.Msgs
		for _, fences := range info.State.Subjects {
			have -= fences
		}
		switch {
		case have == uint64(n):
			return nil
		case have > uint64(n):
			return fmt.Errorf("there are %d events, but %d documents were due", have, n)
		}
		if err := load.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// StartEmbedded starts lapse with embedded servers, and returns how long it took until it
// was ready.
func (r *Rig) StartEmbedded(ctx context.Context, data string) (*Lapse, time.Duration, error) {
	var addr [2]string
	for i := range addr {
		port, err := freePort()
		if err != nil {
			return nil, 0, err
		}
		addr[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	l := &Lapse{rig: r}
	began := time.Now()
	err := l.serve(ctx, "--data", data, "--nats-listen", addr[0], "--redis-listen", addr[1])
	took := time.Since(began)
	if err != nil {
		return nil, 0, err
	}
	l.NATS = &NATS{Process: l.Process, url: "nats://" + addr[0]}
	login := credentials.Redis{PasswordFile: filepath.Join(data, "redis-password")}.Login
	l.Redis = &Redis{Process: l.Process, addr: addr[1], Client: redis.NewClient(&redis.Options{Addr: addr[1], MaxRetries: -1, CredentialsProviderContext: login})}
	if err = l.NATS.connect(ctx); err == nil {
		l.Reader, err = sink.NewReader(l.Redis.Client, sink.ReaderOptions{})
	}
	if err != nil {
		l.Stop()
	}
	return l, took, err
}

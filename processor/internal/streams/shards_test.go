package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// newSharded provisions the streams of a prefix with two shards.
func newSharded(t *testing.T, js jetstream.JetStream, prefix string) (*Streams, Options) {
	t.Helper()
	o := options()
	o.Prefix, o.Objects, o.Shards = wire.Prefix(prefix), false, 2
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, o
}

// configure stores configurations, and waits until the log has sourced them.
func configure(t *testing.T, js jetstream.JetStream, s *Streams, o Options, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := js.Publish(t.Context(), o.Prefix.Config(name), []byte(`{}`)); err != nil {
			t.Error(err)
			return
		}
	}
	subject := o.Prefix.Config(names[len(names)-1])
	if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
		m, err := s.lastOf(ctx, s.Log, subject)
		if err == nil && m == nil {
			err = fmt.Errorf("the log does not have %s", subject)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// replicated is a stream that says that it has replicas.
type replicated struct{ jetstream.Stream }

// CachedInfo is what is known of the stream.
func (r replicated) CachedInfo() *jetstream.StreamInfo {
	info := *r.Stream.CachedInfo()
	info.Config.Replicas = 3
	return &info
}

// TestG12_ManyConfigsAreCompared: the stream of configurations has another message in the place of one that the log has,
// far from both ends. A process that compares some at a time finds it in the end.
//
// It fails if each call compares the same ones again.
func TestG12_ManyConfigsAreCompared(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	o.Shards = 2
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	const n, other = 2*configsAtOnce + 100, 2*configsAtOnce + 50
	publish := func(body func(seq int) string) {
		t.Helper()
		for seq := 1; seq <= n; seq++ {
			if _, err := js.PublishAsync(o.Prefix.Config("c"), []byte(body(seq))); err != nil {
				t.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
	}
	stored := func(seq int) string { return fmt.Sprintf(`{"defaultTtl":%d}`, seq) }
	publish(stored)
	if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
		info, err := s.Log.Info(ctx)
		if err == nil && info.State.LastSeq < n {
			err = errors.New("the log has not sourced all")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	const calls = n/configsAtOnce + 1
	for range calls {
		if err := s.CheckConfigs(t.Context()); err != nil {
			t.Fatalf("nothing is lost: %v", err)
		}
	}
	config := s.Configs.CachedInfo().Config
	if err := js.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	publish(func(seq int) string {
		if seq == other {
			return `{}`
		}
		return stored(seq)
	})
	s.compared = nil // a process that begins
	for range calls {
		if err = s.CheckConfigs(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrConfigsBehind) {
		t.Errorf("of %d configurations, another one is in the place of message %d: %v", n, other, err)
	}
}

// TestG12_AnotherConfig: the stream of configurations has another message in the place of one that the log has. A
// single server has lost it, and is asked once. A leader of several may have it a moment later: a call that ends before
// that has found no loss, and a later one finds it after leaderFor.
func TestG12_AnotherConfig(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{})
	s, o := newSharded(t, js, "another")
	configure(t, js, s, o, "a")
	have, err := s.lastOf(t.Context(), s.Log, o.Prefix.Config("a"))
	if err != nil {
		t.Fatal(err)
	}
	have.Data = []byte(`{"defaultTtl":1}`)
	asked, err := js.Conn().SubscribeSync("$JS.API.STREAM.MSG.GET." + o.Prefix.ConfigStream())
	if err != nil {
		t.Fatal(err)
	}
	err = s.compareConfig(t.Context(), have)
	if flushed := js.Conn().Flush(); flushed != nil {
		t.Fatal(flushed)
	}
	if n, _, _ := asked.Pending(); n != 1 || !errors.Is(err, ErrConfigsBehind) {
		t.Errorf("a single server is asked %d times: %v", n, err)
	}
	s.Configs = replicated{s.Configs}
	short, end := context.WithTimeout(t.Context(), leaderAgain/2)
	defer end()
	if err := s.compareConfig(short, have); !errors.Is(err, context.DeadlineExceeded) || AsRefusal(err) != nil {
		t.Errorf("a call ends before that: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.lagged = leaderFor // what other calls have waited
	if err := s.compareConfig(ctx, have); !errors.Is(err, ErrConfigsBehind) {
		t.Errorf("after %s: %v", s.lagged, err)
	}
	if err := s.CheckConfigs(ctx); err != nil || s.lagged != 0 {
		t.Errorf("it has all that the log has: %v; it has lagged for %s", err, s.lagged)
	}
}

// TestCopyOfASilentStream: a configuration that cannot be read is an error. It is none that was lost: the log would go on
// without it.
func TestCopyOfASilentStream(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	o.Shards = 2
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), o.Prefix.Config("c"), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Copy(t.Context(), o.log(), 1); err != nil || string(m.Data) != `{}` {
		t.Errorf("copied %v, %v", m, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if m, err := s.Copy(ended, o.log(), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("copied %v, %v", m, err)
	}
}

// TestShards: a prefix without streams has one log, like one whose streams were made for one.
func TestShards(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{})
	for i, want := range []int{1, 1, 3} {
		o := options()
		o.Prefix, o.Shards = wire.Prefix(fmt.Sprint("shards", i)), want
		if i > 0 {
			if _, err := Provision(t.Context(), js, o); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := Shards(t.Context(), js, o.Prefix); err != nil || n != want {
			t.Errorf("%s has %d logs, %v; want %d", o.Prefix, n, err, want)
		}
	}
}

// TestCheckMappingListensForAWhile: a look at the mapping of writes leaves no subscription, whatever it finds: a process
// looks again and again.
func TestCheckMappingListensForAWhile(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := wire.DefaultPrefix.Log(1, 4)
	from, to := log.Prefix.Mapping(log.Shards)
	for url, want := range map[string]error{
		natstest.StartMapped(t, natstest.Options{}, from, to): nil, natstest.Start(t, natstest.Options{}): ErrMapping,
	} {
		nc, err := nats.Connect(url, natstest.Patient)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckMapping(ctx, nc, log); !errors.Is(err, want) {
			t.Errorf("the mapping: %v, want %v", err, want)
		}
		if n := nc.NumSubscriptions(); n != 0 {
			t.Errorf("it leaves %d subscriptions", n)
		}
		nc.Close()
	}
}

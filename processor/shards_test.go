package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// startMapped is a rig with several shards on a NATS server that maps writes to them.
func startMapped(t *testing.T, b backend, shards int) *rig {
	t.Helper()
	from, to := prefix.Mapping(shards)
	return newRigAt(t, natstest.StartMapped(t, natstest.Options{}, from, to), b, Options{Shards: shards})
}

// startShard starts the processor of a shard.
func (r *rig) startShard(shard int) *process {
	r.opts.Shard = shard
	return r.start(nil)
}

// startShards starts the processors of all shards, and waits until they are ready.
func (r *rig) startShards() []*process {
	all := make([]*process, r.opts.Shards)
	for i := range all {
		all[i] = r.startShard(i)
	}
	for _, p := range all {
		p.ready(r.t)
	}
	return all
}

// TestG1_Shards: writes, configurations, drops and events of four shards, on both servers. Every
// write has its outcome, is read and is published as a change, every document that expires has its event, and each
// shard has applied its own messages alone.
func TestG1_Shards(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := startMapped(t, b, 4)
			all := r.startShards()
			configured := r.config("c", `{"defaultTtl":-1,"changes":true}`)
			if configured.Etag != 2 { // the rule that collections are open comes before it
				t.Errorf("the etag of the first configuration is %d", configured.Etag)
			}
			const documents = 100
			for i := range documents {
				r.put("c", fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, i))
			}
			// A changed default reaches the documents of every shard.
			changed := r.must(200, prefix.Config("c"), `{"defaultTtl":2147483647,"changes":true}`, wire.HeaderIfMatch,
				configured.Etag.String())
			r.must(412, prefix.Config("c"), `{"defaultTtl":7}`, wire.HeaderIfMatch, configured.Etag.String())
			r.must(400, prefix.Config("c"), `{"defaultTtl":0}`)
			for i := range documents {
				o := r.put("c", fmt.Sprint(i), `{"ttl":1}`)
				if o.Status != 200 {
					t.Errorf("the write of document %d has status %d", i, o.Status)
				}
			}
			if got, err := r.reader.Config(t.Context(), "c"); err != nil || got.Etag != changed.Etag {
				t.Errorf("the configuration is %+v (%v), want etag %d", got, err, changed.Etag)
			}
			r.waitEvents("c", documents)
			rejections := slices.DeleteFunc(r.outputs(),
				func(m storedMessage) bool { return !strings.HasPrefix(m.subject, "lapse.rejected.") })
			if len(rejections) != 2 {
				t.Errorf("%d rejections, want one for each of two configurations", len(rejections))
			}
			r.put("c", "dropped", `{"ttl":-1}`)
			r.must(204, prefix.Drop("c"), "")
			if got := r.body("c", "dropped"); got != "" {
				t.Errorf("a document was read after the drop: %s", got)
			}
			if c := r.lives("c"); c[""] != "dropped" || c["0"] != "created updated expired" {
				t.Errorf("of the drop is published %q, of a document %q", c[""], c["0"])
			}
			sum := 0
			for i := range all {
				messages := r.readStream(prefix.Log(i, 4).Stream(), 1)
				sum += len(messages)
				for _, m := range messages {
					if strings.HasPrefix(m.subject, "lapse.write.") {
						t.Errorf("the log of shard %d has %s", i, m.subject)
					}
				}
			}
			t.Logf("%d messages in the four logs", sum)
			oracle.Verify(t, oracle.Options{
				NATS: r.nc, Settings: oracle.Settings{Shards: 4}, Reads: []readers.Reads{readers.ByReader(r.newReader())},
			})
			for _, p := range all {
				p.stop(t)
			}
		})
	}
}

// TestG8_ShardsGetWhatIsNotMapped: a write that the mapping does not match, one that a client
// publishes to the wrong shard, and a configuration that did not come from the stream of
// configurations are rejected, each once.
func TestG8_ShardsGetWhatIsNotMapped(t *testing.T) {
	t.Parallel()
	r := startMapped(t, backends[0], 2)
	all := r.startShards()
	shard := wire.ShardOf(2, "c", "x")
	other := prefix.Log(1-shard, 2)
	for _, subject := range []string{
		"lapse.write.upsert.c",
		"lapse.write.upsert.c.x.y",
		other.Write(wire.Upsert, "c", "x"),
		other.Mapped("lapse.config.c"),
		other.Mapped("lapse.whatever"),
	} {
		r.must(400, subject, `{}`)
	}
	if n := len(r.outputs()); n != 5 {
		t.Errorf("%d rejections, want 5", n)
	}
	for _, p := range all {
		p.stop(t)
	}
}

// TestG8_ShardsGetHeadersThatCannotBeRead: configurations have headers that nobody can read. Each
// is rejected once, by shard 0; all shards apply the next configuration, and start again with an
// unreadable one as the last in their logs.
//
// It fails if every shard rejects it, or if a log without a sequence to compare is refused.
func TestG8_ShardsGetHeadersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := startMapped(t, backends[0], 3)
	all := r.startShards()
	send := r.raw()
	upTo := uint64(1) // the rules of the log
	for _, header := range unreadable {
		send(prefix.Config("c"), header, `{"defaultTtl":7}`)
		upTo++
	}
	eventually(t, "they are stored",
		func() bool { return len(r.readStream(prefix.ConfigStream(), 1)) == 1+len(unreadable) })
	r.config("c", `{"defaultTtl":1000}`)
	send(prefix.Config("c"), unreadable[0], `{"defaultTtl":7}`)
	upTo += 2
	for _, p := range all {
		eventually(t, "it goes on after what cannot be read",
			func() bool { return p.current().status.Configured.Load() == upTo })
	}
	if n, want := len(r.outputs()), len(unreadable)+1; n != want {
		t.Errorf("%d rejections, want %d", n, want)
	}
	if got, err := r.reader.Config(t.Context(), "c"); err != nil || got.DefaultTTL == nil || *got.DefaultTTL != 1000 {
		t.Errorf("the configuration is %+v (%v)", got, err)
	}
	for _, p := range all {
		p.stop(t)
	}
	for _, p := range r.startShards() {
		p.stop(t)
	}
}

// TestG11_ShardsNeedTheMapping: without the mapping a processor refuses to start, and says which
// line is missing. If the mapping goes away later, that is a problem until it is back.
func TestG11_ShardsNeedTheMapping(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{Shards: 2})
	p := r.startShard(0)
	p.ends(t, streams.ErrMapping)
	want := `mappings: { "lapse.write.*.*.*": ` +
		`"lapse.shard.{{partition(2,2,3)}}.write.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}" }`
	if !strings.Contains(p.err.Error(), want) {
		t.Errorf("the error is %v, want in it %s", p.err, want)
	}
	for name := range r.js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s was created", name)
	}
}

// TestG7_ShardsOfAnotherNumber: a prefix keeps its number of shards.
func TestG7_ShardsOfAnotherNumber(t *testing.T) {
	t.Parallel()
	r := startMapped(t, backends[0], 2)
	for _, p := range r.startShards() {
		p.stop(t)
	}
	for _, shards := range []int{1, 3} {
		r.opts.Shards, r.opts.Shard = shards, 0
		p := r.start(nil)
		select {
		case <-p.done:
		case <-time.After(limit):
			t.Fatal("it runs with another number of shards")
		}
		if p.err == nil || !strings.Contains(p.err.Error(), "lapse export") {
			t.Errorf("with %d shards it ends with %v", shards, p.err)
		}
		if r := (*Refusal)(nil); !errors.As(p.err, &r) || !r.OtherShards() {
			t.Errorf("with %d shards the refusal does not end the process: %v", shards, p.err)
		}
	}
}

// TestG1_ConfigurationsWithTheIDOfAWrite: a configuration has the Nats-Msg-Id of a write, so the
// log of one shard drops what it sources; another was deleted from the stream of configurations
// before anybody applied it. All shards apply the same configurations, in the same order.
//
// It fails if a log is taken to have all that it sources.
func TestG1_ConfigurationsWithTheIDOfAWrite(t *testing.T) {
	t.Parallel()
	r := startMapped(t, backends[0], 2)
	r.opts.DuplicateWindow = new(time.Duration)
	*r.opts.DuplicateWindow = time.Hour
	all := r.startShards()
	r.config("c", `{"defaultTtl":1000}`)
	for i := range 4 {
		r.must(201, prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`, jetstream.MsgIDHeader, fmt.Sprint("id", i))
	}
	for i := range 4 {
		r.must(200, prefix.Config("c"), fmt.Sprintf(`{"defaultTtl":%d}`, 2000+i), jetstream.MsgIDHeader, fmt.Sprint("id", i))
	}
	r.must(400, prefix.Config("c"), `{"defaultTtl":0}`, jetstream.MsgIDHeader, "id0-again")
	for i, p := range all {
		eventually(t, "it is applied", func() bool { return p.current().status.Configured.Load() == 7 })
		if n := copiesIn(r, i); n == 0 {
			t.Errorf("the log of shard %d has no copy: the test shows nothing", i)
		}
		p.stop(t)
	}
	stream, err := r.js.Stream(t.Context(), prefix.ConfigStream())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`, jetstream.MsgIDHeader, fmt.Sprint("lost", i))
	}
	r.send(prefix.Config("lost"), `{"defaultTtl":1}`, jetstream.MsgIDHeader, "lost0")
	r.send(prefix.Config("c"), `{"defaultTtl":3000}`)
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(prefix.Config("lost"))); err != nil {
		t.Fatal(err)
	}
	all = r.startShards()
	for _, p := range all {
		eventually(t, "it goes on after what was lost", func() bool { return p.current().status.Configured.Load() == 9 })
	}
	if got, err := r.reader.Config(t.Context(), "c"); err != nil || *got.DefaultTTL != 3000 {
		t.Errorf("the configuration is %+v (%v)", got, err)
	}
	for _, p := range all {
		p.stop(t)
	}
}

// TestG8_ReplyPrefixesOfConfigurations: a process allows another inbox for outcomes while one
// that was started before owns another shard. Both decide by the same rules: a configuration with
// such an inbox is applied by both, or by none.
//
// It fails if a process keeps the rules with which it began.
func TestG8_ReplyPrefixesOfConfigurations(t *testing.T) {
	t.Parallel()
	r := startMapped(t, backends[0], 2)
	old := r.startShard(1)
	first := r.startShard(0)
	old.ready(t)
	first.ready(t)
	first.stop(t)
	r.opts.ReplyPrefixes = []string{"_INBOX_acme"}
	first = r.startShard(0)
	first.ready(t)
	sub, err := r.nc.SubscribeSync("_INBOX_acme.x")
	if err != nil {
		t.Fatal(err)
	}
	r.send(prefix.Config("c"), `{"defaultTtl":77}`, wire.HeaderReplyTo, "_INBOX_acme.x")
	if _, err := sub.NextMsg(limit); err != nil {
		t.Errorf("no outcome: %v", err)
	}
	for i := range r.opts.Shards {
		stored := store.New(r.redis, prefix, i, r.opts.Shards)
		if state, err := stored.Load(t.Context()); err != nil || state.Configs["c"].Etag == 0 {
			t.Errorf("shard %d has not applied the configuration: %+v (%v)", i, state, err)
		}
	}
	first.stop(t)
	old.stop(t)
}

// copiesIn counts the copies of configurations in the log of a shard.
func copiesIn(r *rig, shard int) (n int) {
	log := prefix.Log(shard, r.opts.Shards)
	for _, m := range r.readStream(log.Stream(), 1) {
		if log.ParseSubject(m.subject).Copied > 0 {
			n++
		}
	}
	return n
}

// restartable is a NATS server that a test can stop and start again.
type restartable struct {
	*server.Server
	opts server.Options
}

// startRestartable starts a server that maps writes to shards, and a rig on it.
func startRestartable(t *testing.T, shards int) (*restartable, *rig) {
	t.Helper()
	s := &restartable{opts: server.Options{Host: "127.0.0.1", Port: freeport.Take(t), JetStream: true,
		StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	s.start(t, shards)
	t.Cleanup(func() { s.stop() })
	return s, newRigAt(t, s.ClientURL(), backends[0], Options{Shards: shards})
}

func (s *restartable) start(t *testing.T, shards int) {
	t.Helper()
	srv, err := server.NewServer(&s.opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.GlobalAccount().AddMapping(prefix.Mapping(shards)); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(limit) {
		t.Fatal("nats-server is not ready")
	}
	s.Server = srv
}

func (s *restartable) stop() { s.Shutdown(); s.WaitForShutdown() }

// TestG7_ConfigurationsLostTheirEnd: the stream of configurations loses its end while NATS is
// down, and clients write to it again. A processor that runs ends with a reason, and none starts.
// It fails if only the sequences are compared, or only the last configuration of each log: the logs would pass over new
// configurations.
func TestG7_ConfigurationsLostTheirEnd(t *testing.T) {
	t.Parallel()
	s, r := startRestartable(t, 2)
	all := r.startShards()
	r.config("c", `{"defaultTtl":1000}`)
	copied := t.TempDir()
	s.stop()
	configs := filepath.Join(s.opts.StoreDir, "jetstream", "$G", "streams", prefix.ConfigStream())
	if err := os.CopyFS(copied, os.DirFS(configs)); err != nil {
		t.Fatal(err)
	}
	s.start(t, 2)
	for _, p := range all {
		p.ready(t)
	}
	r.config("c", `{"defaultTtl":2000}`)
	s.stop()
	if err := cmp.Or(os.RemoveAll(configs), os.CopyFS(configs, os.DirFS(copied))); err != nil {
		t.Fatal(err)
	}
	s.start(t, 2)
	for _, defaultTTL := range []int{3000, 4000} { // the logs have another one in place of the first, and the second
		eventually(t, "a client configures again", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the server may have gone with its answer
			defer cancel()
			_, err := r.js.Publish(ctx, prefix.Config("c"), fmt.Appendf(nil, `{"defaultTtl":%d}`, defaultTTL))
			return err == nil
		})
	}
	for _, p := range all {
		p.ends(t, ErrLogChanged)
		if !errors.Is(p.err, streams.ErrConfigsBehind) {
			t.Errorf("it ends with %v", p.err)
		}
	}
	p := r.startShard(1)
	p.ends(t, streams.ErrConfigsBehind)
}

// TestG11_TheMappingGoesAway: the account loses its mapping while lapse runs. That is a problem
// until it is back, and what clients write meanwhile is rejected.
func TestG11_TheMappingGoesAway(t *testing.T) {
	t.Parallel()
	s, r := startRestartable(t, 2)
	all := r.startShards()
	from, to := prefix.Mapping(2)
	s.GlobalAccount().RemoveMapping(from)
	eventually(t, "the problem is told", func() bool {
		err := all[1].Ready()
		return err != nil && strings.Contains(err.Error(), "mappings: {")
	})
	for _, id := range []string{"a", "b", "c", "d"} {
		r.must(400, prefix.Write(wire.Upsert, "c", id), `{}`)
	}
	if err := s.GlobalAccount().AddMapping(from, to); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the problem is over", func() bool { return all[1].Ready() == nil })
	for _, id := range []string{"a", "b", "c", "d"} {
		r.must(201, prefix.Write(wire.Upsert, "c", id), `{}`)
	}
	for _, p := range all {
		p.stop(t)
	}
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// member is a lapse whose way to each server a test can break.
type member struct {
	*harness.Lapse
	toNATS, toRedis *harness.Proxy
}

// members starts lapses one after the other. The first one owns all shards at first.
func members(t *testing.T, n, shards int) (w *world, all []*member) {
	t.Helper()
	w = serversOf(t, harness.RedisOptions{}, shards)
	for range n {
		m := &member{toNATS: harness.NewProxy(t, harness.Address(w.nats.Port)),
			toRedis: harness.NewProxy(t, w.redis.Address())}
		m.Lapse = harness.StartLapse(t, "nats://"+m.toNATS.Address(), m.toRedis.Address(), "--duplicate-window",
			duplicateWindow.String(), "--shards", fmt.Sprint(shards))
		all = append(all, m)
	}
	w.lapse = all[0].Lapse
	w.Configure("c", `{"defaultTtl":-1}`)
	return w, all
}

// ownerAmong waits until one process owns the shard, and returns it and the others.
func ownerAmong(t *testing.T, all []*member) (owner *member, others []*member) {
	t.Helper()
	harness.Until(t, harness.Limit, "one process owns the shard", func(context.Context) error {
		owner, others = nil, nil
		for _, m := range all {
			if !m.Running() || !owns(t, m.Lapse) {
				others = append(others, m)
			} else if owner == nil {
				owner = m
			} else {
				return errors.New("two own it")
			}
		}
		if owner == nil {
			return errors.New("none owns it")
		}
		return nil
	})
	return owner, others
}

// standsBy waits until a process is ready as a standby, and knows the owner.
func standsBy(t *testing.T, m *member) {
	t.Helper()
	harness.Until(t, harness.Limit, "the process stands by", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTP+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.HasPrefix(string(body), "ready: standing by") {
			return fmt.Errorf("/readyz answers %s, %w", body, err)
		}
		return nil
	})
}

// lives writes a document that expires, and waits for its event.
func (w *world) lives(id string) {
	w.t.Helper()
	o := w.Want(201, wire.Upsert, "c", id, `{"ttl":1}`)
	w.ExpiryOf("c", id, o.Etag, harness.Limit)
}

// TestG1_AnOwnerThatReachesRedisButNotNATS: the owner reaches Redis, but not NATS: its connections are refused, or they
// stay open and nothing comes through. The standby takes over, and keeps the shard when the former owner is back.
//
// It fails if the owner steps on; if the processes take the shard in turns.
func TestG1_AnOwnerThatReachesRedisButNotNATS(t *testing.T) {
	t.Parallel()
	for name, split := range map[string]struct{ begin, end func(*harness.Proxy) }{
		"refused": {(*harness.Proxy).Down, (*harness.Proxy).Up},
		"silent": {
			func(p *harness.Proxy) { p.Hold(harness.ToServer); p.Hold(harness.ToClient) },
			(*harness.Proxy).Release,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, all := members(t, 2, 1)
			l := startLoad(t, w.Client, 31)
			l.wait(t, 100)
			owner, others := ownerAmong(t, all)
			split.begin(owner.toNATS)
			began := time.Now()
			ownerAmong(t, others)
			t.Logf("another process owned the shard after %v", time.Since(began).Round(time.Millisecond))
			l.wait(t, 100)
			w.lives("during")
			unready(t, owner.Lapse, "NATS")
			split.end(owner.toNATS)
			standsBy(t, owner)
			l.wait(t, 100)
			w.lives("after")
			l.end()
			if n := takeovers(t, all[0].Lapse, all[1].Lapse); n > 3 { // two, and one by noise
				t.Errorf("the shard was taken %d times", n)
			}
			w.verify()
			l.verifyStored(t)
		})
	}
}

// TestG1_AnOwnerThatReachesNATSButNotRedis: the owner reaches NATS, but not Redis, and the standby reaches both. Later
// it is the other way round. At last Redis answers nobody.
//
// It fails if an owner that cannot work keeps the shard; if the former owner takes it back
// when it reaches Redis again; if the processes take the shard in turns while nobody can work.
func TestG1_AnOwnerThatReachesNATSButNotRedis(t *testing.T) {
	t.Parallel()
	w, all := members(t, 2, 1)
	l := startLoad(t, w.Client, 32)
	l.wait(t, 100)
	for round, split := range []struct{ begin, end func(*harness.Proxy) }{
		{(*harness.Proxy).Down, (*harness.Proxy).Up},
		{
			func(p *harness.Proxy) { p.Hold(harness.ToServer); p.Hold(harness.ToClient) },
			(*harness.Proxy).Release,
		},
	} {
		owner, others := ownerAmong(t, all)
		split.begin(owner.toRedis)
		began := time.Now()
		unready(t, owner.Lapse, "reads")
		ownerAmong(t, others)
		t.Logf("round %d: another process owned the shard after %v", round, time.Since(began).Round(time.Millisecond))
		w.lives(fmt.Sprint("during ", round))
		l.wait(t, 100)
		split.end(owner.toRedis)
		standsBy(t, owner)
		l.wait(t, 100)
	}
	before := takeovers(t, all[0].Lapse, all[1].Lapse)
	w.redis.Stop()
	harness.At(t, time.Now().Add(16*time.Second)) // longer than an owner waits
	w.redis.Continue()
	owner, others := ownerAmong(t, all)
	owner.Ready()
	standsBy(t, others[0])
	if n := takeovers(t, all[0].Lapse, all[1].Lapse); n > before+1 { // by noise
		t.Errorf("the shard was taken %d times while Redis answered nobody", n-before)
	}
	w.lives("after")
	l.end()
	w.verify()
	l.verifyStored(t)
}

// prober writes a document again and again, and waits until each version can be read. So a
// gap in the work shows as a version that takes long.
type prober struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	n       int           // versions that can be read
	longest time.Duration // since reset
	current time.Time     // when the present write was acknowledged, or reset; zero if it is not
}

func startProber(t *testing.T, w *world) *prober {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &prober{stop: stop}
	p.done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			ack, err := w.TrySend(ctx, harness.Limit, w.Prefix.Write(wire.Upsert, "probe", "a"), `{}`, nil)
			if err != nil {
				return
			}
			p.begin()
			for applied := false; !applied; {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				d, err := w.reader.Get(ctx, "probe", "a")
				applied = err == nil && d.Etag >= wire.Etag(ack.Sequence)
			}
			p.finish()
		}
	})
	t.Cleanup(p.end)
	return p
}

func (p *prober) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = time.Now()
}

func (p *prober) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = max(p.longest, time.Since(p.current))
	p.n, p.current = p.n+1, time.Time{}
}

// reset begins a measurement.
func (p *prober) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = 0
	if !p.current.IsZero() {
		p.current = time.Now()
	}
}

// gap waits for two more versions, and returns the longest time that one took since reset.
func (p *prober) gap(t *testing.T) (longest time.Duration) {
	t.Helper()
	first := -1
	harness.Until(t, harness.Limit, "versions can be read", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if first < 0 {
			first = p.n
		}
		if longest = p.longest; p.n < first+2 {
			return errors.New("they cannot")
		}
		return nil
	})
	return longest
}

func (p *prober) end() { p.stop(); p.done.Wait() }

// TestAll_Takeovers: the owner ends, dies, or is stopped and continued, again and again under load, while another
// process stands by. LAPSE_CRASHES is how often it ends and how often it dies (2 if it is not set), LAPSE_PAUSES how
// often it is stopped (1).
//
// It fails if an event is lost, repeated or early; if a write is lost; if an owner that was
// stopped takes the shard back.
func TestAll_Takeovers(t *testing.T) {
	t.Parallel()
	crashes, pauses := number(t, "LAPSE_CRASHES", 2), number(t, "LAPSE_PAUSES", 1)
	w, all := members(t, 2, 1)
	l := startLoad(t, w.Client, 33)
	l.wait(t, 100)
	w.Configure("probe", `{"defaultTtl":-1}`)
	p := startProber(t, w)
	took := map[string][]time.Duration{}
	round := func(kind string, end, again func(*member)) {
		owner, others := ownerAmong(t, all)
		standsBy(t, others[0])
		l.wait(t, 20)
		p.reset()
		end(owner)
		ownerAmong(t, others)
		took[kind] = append(took[kind], p.gap(t))
		l.wait(t, 20)
		again(owner)
		standsBy(t, owner)
	}
	start := func(m *member) { m.Start() }
	for range crashes {
		round("clean", func(m *member) {
			if code := m.Terminate(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}, start)
		round("crash", func(m *member) { m.Kill() }, start)
	}
	for range pauses {
		round("pause", func(m *member) { m.Stop() }, func(m *member) { m.Continue() })
	}
	p.end()
	l.end()
	result := w.verify()
	l.verifyStored(t)
	for kind, all := range took {
		slices.Sort(all)
		t.Logf("%s: %d takeovers, from the end of the owner to the first version of the next: p50 %v, max %v", kind,
			len(all),
			all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	t.Logf("%d messages, %d events: none lost, repeated or early", result.Model.Seq(), len(result.Events))
}

//go:build held

package processor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// cutter dials, and ends the newest connection that it has made.
type cutter struct {
	mu   sync.Mutex
	made net.Conn
	down bool // it makes no other one
}

// Dial implements [nats.CustomDialer].
func (c *cutter) Dial(network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errors.New("the network is down")
	}
	conn, err := (&net.Dialer{Timeout: time.Minute}).Dial(network, address)
	c.made = conn
	return conn, err
}

// cut ends the connection, which is made again unless the network stays down.
func (c *cutter) cut(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	if c.made != nil {
		_ = c.made.Close()
	}
}

// connect connects to a server. A request without a connection fails at once, as in lapse.
func (c *cutter) connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, natstest.Patient, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), nats.SetCustomDialer(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// heldRegions are region a, and region b which follows it. No processor runs, and a process answers for region a.
type heldRegions struct {
	t        *testing.T
	prefix   wire.Prefix
	opts     streams.Options
	a, b     *nats.Conn
	jsA, jsB jetstream.JetStream
	cutB     *cutter
}

func startHeldRegions(t *testing.T, urlA, urlB string, prefix wire.Prefix) *heldRegions {
	t.Helper()
	r := &heldRegions{t: t, prefix: prefix, cutB: &cutter{}}
	r.a, r.b = (&cutter{}).connect(t, urlA), r.cutB.connect(t, urlB)
	r.jsA, r.jsB = natstest.JetStream(t, r.a), natstest.JetStream(t, r.b)
	opts := Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)}
	if err := opts.complete(); err != nil {
		t.Fatal(err)
	}
	r.opts = opts.streams(r.a.MaxPayload())
	r.again("region a is provisioned", func(ctx context.Context) error {
		_, err := streams.Provision(ctx, r.jsA, r.opts)
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	var answering sync.WaitGroup
	answering.Go(func() { _ = AnswerRegions(ctx, r.a, opts) })
	t.Cleanup(func() { cancel(); answering.Wait() })
	origin, err := streams.NewOrigin(r.b, "a")
	if err != nil {
		t.Fatal(err)
	}
	r.again("region b follows", func(ctx context.Context) error {
		if err := streams.ProvisionMirrors(ctx, r.jsB, origin, r.opts); err != nil {
			return err
		}
		_, err := streams.OpenMirrors(ctx, r.jsB, r.opts)
		return err
	})
	r.again("region a answers", func(ctx context.Context) error {
		_, err := origin.Ask(ctx, prefix, wire.RegionRequest{})
		if errors.Is(err, streams.ErrOrigin) {
			return err
		}
		return nil // it does not know what is asked
	})
	return r
}

// again repeats what fails while a connection is lost, as a person does.
func (r *heldRegions) again(what string, do func(context.Context) error) {
	r.t.Helper()
	if err := poll.Until(r.t.Context(), time.Minute, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return do(ctx)
	}); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// promote promotes region b, to which region a hands over.
func (r *heldRegions) promote() error {
	_, err := Promote(r.t.Context(), r.b, r.prefix, PromoteOptions{By: "a test", Drain: true})
	return err
}

// begin begins that, and goes on until region a has handed over.
func (r *heldRegions) begin() {
	r.t.Helper()
	r.again("region a hands over", func(ctx context.Context) error {
		p, _, err := newPromotion(ctx, r.b, r.prefix, "a test")
		if err != nil {
			return err
		}
		began, err := p.Begin(ctx, true)
		if err != nil {
			return err
		}
		return p.Drain(ctx, began)
	})
}

// oneFirst checks that one of both regions is the first.
func (r *heldRegions) oneFirst() (isB bool) {
	r.t.Helper()
	a, errA := streams.RoleOf(r.t.Context(), r.jsA, r.opts)
	b, errB := streams.RoleOf(r.t.Context(), r.jsB, r.opts)
	isA := a.Exists && errA == nil && !a.Mirror
	isB = b.Exists && errB == nil && !b.Mirror
	if isA == isB {
		r.t.Errorf("region a is the first: %t, %v; region b: %t, %v", isA, errA, isB, errB)
	}
	return isB
}

// TestHeldUndoPromotion: another person carries a promotion out while one undoes it. One of both regions is the first,
// and the person whose command did nothing is told so.
func TestHeldUndoPromotion(t *testing.T) {
	urlA, urlB, _ := natstest.StartJoined(t)
	tests := 0
	held.Each(t, "processor.UndoPromotion", held.Takeover, func(t *testing.T, during func(func())) {
		tests++
		r := startHeldRegions(t, urlA, urlB, wire.Prefix(fmt.Sprint("p", tests)))
		r.begin()
		promoted := errors.New("nobody promotes")
		during(func() { promoted = r.promote() })
		undone := UndoPromotion(t.Context(), r.b, r.prefix)
		if isB := r.oneFirst(); isB != (promoted == nil) || isB == (undone == nil) {
			t.Errorf("region b is the first: %t; the promotion: %v; its undoing: %v", isB, promoted, undone)
		}
	})
}

// TestHeldDemote: another person promotes a region while one demotes it. What is the first region, and has acknowledged
// writes that nobody else has, is not removed.
func TestHeldDemote(t *testing.T) {
	urlA, urlB, _ := natstest.StartJoined(t)
	tests := 0
	for _, operation := range []string{"processor.Demote", "processor/internal/streams.Options.setClaim",
		"processor/internal/streams.Demotion.Remove"} {
		held.Each(t, operation, held.Takeover, func(t *testing.T, during func(func())) {
			tests++
			r := startHeldRegions(t, urlA, urlB, wire.Prefix(fmt.Sprint("p", tests)))
			promoted := errors.New("nobody promotes")
			during(func() { promoted = r.promote() })
			_, demoted := Demote(t.Context(), r.b, r.prefix, "a", nil)
			if isB := r.oneFirst(); isB != (promoted == nil) || isB == (demoted == nil) {
				t.Errorf("region b is the first: %t; the promotion: %v; the demotion: %v", isB, promoted, demoted)
			}
			if demoted != nil {
				return
			}
			for _, name := range append(r.prefix.MirrorStreams(1), r.prefix.CheckpointStream()) {
				if _, err := r.jsB.Stream(t.Context(), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
					t.Errorf("stream %s of the region that was demoted: %v", name, err)
				}
			}
		})
	}
}

// savedFile is a file in memory.
type savedFile struct {
	bytes.Buffer
	closed bool
}

// Close implements [io.Closer].
func (f *savedFile) Close() error { f.closed = true; return nil }

// TestHeldDemoteReconnects: the connection is lost while a region that was superseded is demoted. The person runs the
// command again: what only that region has is in the file of the attempt that removes it.
func TestHeldDemoteReconnects(t *testing.T) {
	urlA, urlB, _ := natstest.StartJoined(t)
	tests := 0
	held.Each(t, "processor.Demote", held.Reconnection, func(t *testing.T, during func(func())) {
		tests++
		r := startHeldRegions(t, urlA, urlB, wire.Prefix(fmt.Sprint("p", tests)))
		if err := r.promote(); err != nil {
			t.Fatal(err)
		}
		cut := &cutter{}
		a := cut.connect(t, urlA)
		closed := streams.ClosedSubject("a", r.prefix.LogStream())
		if _, err := r.jsA.Publish(t.Context(), closed, []byte("only here")); err != nil {
			t.Fatal(err)
		}
		saved := &savedFile{}
		during(func() { cut.cut(false) })
		r.again("region a is demoted", func(ctx context.Context) error {
			there, err := r.jsA.Stream(ctx, r.prefix.LogStream())
			if errors.Is(err, jetstream.ErrStreamNotFound) { // the attempt before was cut off at its end
				return nil
			}
			if err != nil || there.CachedInfo().State.Msgs != 1 {
				return errors.Join(err, fmt.Errorf("the log has %d messages", there.CachedInfo().State.Msgs))
			}
			_, err = Demote(ctx, a, r.prefix, "", func() (io.WriteCloser, error) {
				saved = &savedFile{}
				return saved, nil
			})
			return err
		})
		if !bytes.Contains(saved.Bytes(), []byte(`"body":"only here"`)) || bytes.Count(saved.Bytes(), []byte("\n")) != 1 ||
			!saved.closed {
			t.Errorf("saved is %s, and the file is closed: %t", saved.Bytes(), saved.closed)
		}
	})
}

// TestHeldFollowsAlready: the region is promoted, or the connection is lost, while lapse finds out whom it follows. The
// answer is that region, or none: with another one lapse would follow, or drain, the wrong region.
func TestHeldFollowsAlready(t *testing.T) {
	urlA, urlB, _ := natstest.StartJoined(t)
	tests := 0
	for _, kind := range []held.Kind{held.Takeover, held.Reconnection} {
		held.Each(t, "processor.FollowsAlready", kind, func(t *testing.T, during func(func())) {
			tests++
			r := startHeldRegions(t, urlA, urlB, wire.Prefix(fmt.Sprint("p", tests)))
			during(func() {
				if kind == held.Reconnection {
					r.cutB.cut(false)
				} else if err := r.promote(); err != nil {
					t.Error(err)
				}
			})
			got := FollowsAlready(t.Context(), r.b, r.prefix)
			if got != "a" && (kind == held.Takeover || got != "") {
				t.Errorf("it follows %q", got)
			}
			r.again("it is known", func(ctx context.Context) error {
				if got := FollowsAlready(ctx, r.b, r.prefix); got != "a" {
					return fmt.Errorf("it follows %q", got)
				}
				return nil
			})
		})
	}
}

// TestHeldCopy: the connection is lost, or another configuration comes, while configurations are copied into a log that
// lacks them. The copier goes on: the log has each of them at last, and none before its predecessor.
func TestHeldCopy(t *testing.T) {
	url := natstest.Start(t, natstest.Options{})
	tests := 0
	for _, kind := range []held.Kind{held.Write, held.Reconnection} {
		held.Each(t, "processor.copier.copy", kind, func(t *testing.T, during func(func())) {
			tests++
			cut := &cutter{}
			nc := cut.connect(t, url)
			js := natstest.JetStream(t, nc)
			opts := Options{Prefix: wire.Prefix(fmt.Sprint("p", tests)), Shards: 2, Logger: slog.New(slog.DiscardHandler)}
			if err := opts.complete(); err != nil {
				t.Fatal(err)
			}
			s, err := streams.Provision(t.Context(), js, opts.streams(nc.MaxPayload()))
			if err != nil {
				t.Fatal(err)
			}
			c := s.Log.CachedInfo().Config
			c.Sources = nil // what it would source is what it lacks
			if _, err := js.UpdateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			other := natstest.JetStream(t, (&cutter{}).connect(t, url))
			want := uint64(3)
			put := func() {
				if _, err := other.Publish(t.Context(), opts.Prefix.Config("c"), []byte(`{}`)); err != nil {
					t.Error(err)
				}
			}
			for range want {
				put()
			}
			link, stop := streams.WatchLink(nc)
			defer stop()
			copies := &copier{js: js, link: link, streams: s, log: opts.log(), logger: opts.Logger}
			during(func() {
				if kind == held.Write {
					want++
					put()
				} else {
					cut.cut(false)
				}
			})
			if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
				if err := copies.copy(ctx, 1); err != nil {
					return err
				}
				seqs, err := configsOf(ctx, other, opts.log())
				if err == nil && (len(seqs) == 0 || slices.Max(seqs) < want) {
					err = fmt.Errorf("the log has the configurations %v", seqs)
				}
				for i, seq := range seqs {
					if seq > 1 && !slices.Contains(seqs[:i], seq-1) {
						t.Fatalf("the log has the configurations %v, some before their predecessors", seqs)
					}
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// configsOf are the sequences of the configurations that a log has got, in the order of the log.
func configsOf(ctx context.Context, js jetstream.JetStream, log wire.Log) (seqs []uint64, err error) {
	stream, err := js.Stream(ctx, log.Stream())
	if err != nil {
		return nil, err
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			return nil, err
		}
		if copied, ok := strings.CutPrefix(m.Subject, strings.TrimSuffix(log.Copy(0, ""), "0")); ok {
			number, _, _ := strings.Cut(copied, ".")
			of, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				return nil, err
			}
			seqs = append(seqs, of)
		}
	}
	return seqs, nil
}

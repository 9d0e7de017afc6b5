//go:build held

package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// twoRegions are two regions, whose streams have another prefix in each test.
type twoRegions struct {
	urlA, urlB string
	link       *proxy.Proxy
	tests      int
}

// follower is what one test has of the regions. Region b is to follow region a.
type follower struct {
	t      *testing.T
	mu     sync.Mutex
	o      Options
	a, b   jetstream.JetStream
	origin *Origin  // region a, as b reaches it
	made   net.Conn // the newest connection to b
}

// Dial implements [nats.CustomDialer].
func (r *follower) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: time.Minute}).Dial(network, address)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = conn
	return conn, err
}

// cut ends the connection to b, which is made again. Those of the servers stay: a mirror whose link was lost may take
// half a minute to go on.
func (r *follower) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.made.Close()
}

func startRegions(t *testing.T) *twoRegions {
	t.Helper()
	a, b, link := natstest.StartJoined(t)
	return &twoRegions{urlA: a, urlB: b, link: link}
}

// connect connects to a server. A request without a connection fails at once, as in lapse.
func connect(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append(opts, natstest.Patient, nats.ReconnectWait(10*time.Millisecond),
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// begin provisions region a.
func (j *twoRegions) begin(t *testing.T) *follower {
	t.Helper()
	j.tests++
	o := options()
	o.Prefix, o.Shards = wire.Prefix(fmt.Sprint("p", j.tests)), 1
	r := &follower{t: t, o: o, a: connect(t, j.urlA)}
	r.b = connect(t, j.urlB, nats.SetCustomDialer(r))
	r.again("region a is provisioned", func(ctx context.Context) error {
		_, err := Provision(ctx, r.a, o)
		return err
	})
	var err error
	if r.origin, err = NewOrigin(r.b.Conn(), "a"); err != nil {
		t.Fatal(err)
	}
	return r
}

// again repeats what fails while a connection is lost, as its callers in lapse do.
func (r *follower) again(what string, do func(context.Context) error) {
	r.t.Helper()
	if err := poll.Until(r.t.Context(), time.Minute, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return do(ctx)
	}); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// follow makes the mirrors.
func (r *follower) follow() {
	r.t.Helper()
	r.again("region b follows", func(ctx context.Context) error {
		return ProvisionMirrors(ctx, r.b, r.origin, r.o)
	})
}

// expired publishes events in region a.
func (r *follower) expired(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.again("an event is published", func(ctx context.Context) error {
			_, err := r.a.Publish(ctx, string(r.o.Prefix)+".expired.c."+id, nil, jetstream.WithMsgID(id))
			return err
		})
	}
}

// TestHeldMirrors: the connection is lost while the mirrors are made. The next attempt makes those that are absent, and
// each is the mirror of its original: else the region would begin without one of them.
func TestHeldMirrors(t *testing.T) {
	j := startRegions(t)
	for _, operation := range []string{"ProvisionMirrors", "makeMirror", "OpenMirrors"} {
		held.Each(t, "processor/internal/streams."+operation, held.Reconnection, func(t *testing.T, during func(func())) {
			r := j.begin(t)
			during(r.cut)
			r.follow()
			var s *Streams
			r.again("the mirrors are opened", func(ctx context.Context) (err error) {
				s, err = OpenMirrors(ctx, r.b, r.o)
				return err
			})
			for _, name := range r.o.Mirrored() {
				r.again("mirror "+name, func(ctx context.Context) error {
					mirror, err := r.b.Stream(ctx, name)
					if err != nil {
						return err
					}
					original, err := r.a.Stream(ctx, name)
					if err != nil {
						return err
					}
					if here, there := mirror.CachedInfo(), original.CachedInfo(); domainOf(here.Config) != "a" ||
						Identity(here) != Identity(there) {
						t.Errorf("%s mirrors %q, with identity %v of %v", name, domainOf(here.Config), Identity(here),
							Identity(there))
					}
					return nil
				})
			}
			if s.Log == nil || s.Events == nil || s.Checkpoints == nil || s.Snapshots == nil {
				t.Errorf("a stream is not opened: %+v", s)
			}
		})
	}
}

// TestHeldConsumers: events are published, or the connection is lost, while the durable consumers of the mirror of the
// events are noted, and while they are made again after a person has removed the mirror. The consumer is there after
// that, and gets each event that it has not acknowledged: none is passed over.
func TestHeldConsumers(t *testing.T) {
	j := startRegions(t)
	for _, operation := range []string{"Streams.NoteConsumers", "restoreConsumers", "Streams.ForgetConsumers"} {
		for _, kind := range []held.Kind{held.Write, held.Reconnection} {
			held.Each(t, "processor/internal/streams."+operation, kind, func(t *testing.T, during func(func())) {
				r := j.begin(t)
				r.follow()
				r.expired("1", "2", "3")
				name := r.o.Prefix.EventsStream()
				consumer, err := r.b.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{Durable: "d",
					AckPolicy: jetstream.AckExplicitPolicy})
				if err != nil {
					t.Fatal(err)
				}
				next := func() (jetstream.Msg, uint64) {
					t.Helper()
					m, err := consumer.Next(jetstream.FetchMaxWait(time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					meta, err := m.Metadata()
					if err != nil {
						t.Fatal(err)
					}
					return m, meta.Sequence.Stream
				}
				for range 2 {
					m, _ := next()
					if err := m.DoubleAck(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				during(func() {
					if kind == held.Write {
						r.expired("4")
					} else {
						r.cut()
					}
				})
				var s *Streams
				r.again("the mirrors are opened", func(ctx context.Context) (err error) {
					s, err = OpenMirrors(ctx, r.b, r.o)
					return err
				})
				r.again("the consumers are noted", func(ctx context.Context) error { return s.NoteConsumers(ctx, 3) })
				r.again("a mirror that is there keeps its consumers", func(ctx context.Context) error {
					return ProvisionMirrors(ctx, r.b, r.origin, r.o)
				})
				r.again("a person removes the mirror", func(ctx context.Context) error {
					if err := r.b.DeleteStream(ctx, name); !errors.Is(err, jetstream.ErrStreamNotFound) {
						return err
					}
					return nil
				})
				r.follow()
				r.expired("4", "5")
				r.again("the consumer is there", func(ctx context.Context) (err error) {
					consumer, err = r.b.Consumer(ctx, name, "d")
					return err
				})
				for want := uint64(3); want <= 5; want++ {
					if _, seq := next(); seq != want {
						t.Errorf("the consumer gets event %d, want %d", seq, want)
					}
				}
				r.again("the consumers are forgotten", func(ctx context.Context) error {
					if err := s.NoteConsumers(ctx, 3); err != nil {
						return err
					}
					if err := s.ForgetConsumers(ctx); err != nil {
						return err
					}
					value, _, err := s.Value(ctx, consumersKey)
					if value != nil {
						t.Error("the note is there, although it was forgotten")
					}
					return err
				})
			})
		}
	}
}

// TestHeldRoleOf: the connection is lost while the role of a region is found out whose promotion has begun. The answer
// names the promotion: else the region would go on to follow meanwhile.
func TestHeldRoleOf(t *testing.T) {
	j := startRegions(t)
	for _, operation := range []string{"RoleOf", "Options.infos"} {
		held.Each(t, "processor/internal/streams."+operation, held.Reconnection, func(t *testing.T, during func(func())) {
			r := j.begin(t)
			r.follow()
			p := &Promotion{JS: r.b, Origin: r.origin, Opts: r.o, Domain: "b", By: "a test"}
			r.again("a promotion begins", func(ctx context.Context) error {
				_, err := p.Begin(ctx, false)
				return err
			})
			during(r.cut)
			var role Role
			r.again("the role is told", func(ctx context.Context) (err error) {
				if role, err = RoleOf(ctx, r.b, r.o); errors.Is(err, ErrPromotion) {
					err = nil
				} else if err == nil {
					t.Error("the promotion that has begun is not told")
				}
				return err
			})
			if !role.Mirror || role.Promotion == nil || role.Promotion.By != "a test" {
				t.Errorf("the role is %+v", role)
			}
			r.again("the promotion is undone", func(ctx context.Context) error { return p.Undo(ctx, role) })
		})
	}
}

// TestHeldPromotion: the connection is lost within a promotion. lapse promote is run again and
// goes on: then no stream is a mirror, no promotion is left open, and the region takes over by itself.
func TestHeldPromotion(t *testing.T) {
	j := startRegions(t)
	for _, operation := range []string{"Promotion.Run", "Promotion.own", "Promotion.ownObjects", "Promotion.mark"} {
		held.Each(t, "processor/internal/streams."+operation, held.Reconnection, func(t *testing.T, during func(func())) {
			r := j.begin(t)
			r.follow()
			p := &Promotion{JS: r.b, Origin: r.origin, Opts: r.o, Domain: "b", By: "a test"}
			during(r.cut)
			r.again("the promotion ends", func(ctx context.Context) error {
				began, err := p.Begin(ctx, false)
				if err != nil {
					return err
				}
				_, err = p.Run(ctx, began)
				return err
			})
			r.again("region b is the first", func(ctx context.Context) error {
				role, err := RoleOf(ctx, r.b, r.o)
				if err == nil && (role.Mirror || role.Promotion != nil || len(role.Former) != 1) {
					t.Errorf("the role is %+v", role)
				}
				return err
			})
			r.again("region b works", func(ctx context.Context) error {
				for _, name := range r.o.Mirrored() {
					stream, err := r.b.Stream(ctx, name)
					if err != nil {
						return err
					}
					if stream.CachedInfo().Config.Mirror != nil {
						t.Errorf("stream %s is a mirror", name)
					}
				}
				return Check(ctx, r.b, r.o)
			})
		})
	}
}

// TestHeldUndo: the connection is lost while a promotion is undone. The next attempt undoes it, and the region follows
// as before.
func TestHeldUndo(t *testing.T) {
	j := startRegions(t)
	held.Each(t, "processor/internal/streams.Promotion.Undo", held.Reconnection, func(t *testing.T, during func(func())) {
		r := j.begin(t)
		r.follow()
		p := &Promotion{JS: r.b, Origin: r.origin, Opts: r.o, Domain: "b"}
		r.again("a promotion begins", func(ctx context.Context) error { _, err := p.Begin(ctx, false); return err })
		role, err := RoleOf(t.Context(), r.b, r.o)
		if !errors.Is(err, ErrPromotion) {
			t.Fatal(err)
		}
		during(r.cut)
		r.again("the promotion is undone", func(ctx context.Context) error { return p.Undo(ctx, role) })
		r.again("region b follows", func(ctx context.Context) error {
			role, err := RoleOf(ctx, r.b, r.o)
			if err == nil && (!role.Mirror || role.Promotion != nil || role.Follows != "a") {
				t.Errorf("the role is %+v", role)
			}
			return err
		})
	})
}

// TestHeldRemove: the connection is lost while a demotion removes the streams. The next one removes the rest, so that
// the region can follow another one.
func TestHeldRemove(t *testing.T) {
	j := startRegions(t)
	held.Each(t, "processor/internal/streams.Demotion.Remove", held.Reconnection,
		func(t *testing.T, during func(func())) {
			r := j.begin(t)
			r.follow()
			d := &Demotion{JS: r.b, First: r.origin, Opts: r.o}
			during(r.cut)
			r.again("the streams are removed", d.Remove)
			r.again("nothing is left", func(ctx context.Context) error {
				left, err := r.o.infos(ctx, r.b)
				if len(left) > 0 {
					t.Errorf("left are %v", left)
				}
				return err
			})
			r.follow()
		})
}

//go:build held

package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// promotion is a promotion of region b.
func (r *follower) promotion() *Promotion {
	return &Promotion{JS: r.b, Origin: r.origin, Opts: r.o, Domain: "b", By: "a test"}
}

// answer lets region a answer what region b asks of it, as a process of lapse does.
func (r *follower) answer() {
	r.t.Helper()
	sub, err := r.a.Conn().Subscribe(r.o.Prefix.Region("a"), func(m *nats.Msg) {
		var request wire.RegionRequest
		if json.Unmarshal(m.Data, &request) != nil {
			return
		}
		body, _ := json.Marshal(Answer(r.t.Context(), r.a, r.o, request))
		_ = m.Respond(body)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = sub.Unsubscribe() })
	r.again("region a answers", func(ctx context.Context) error { // over the leaf node, too
		asking, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := r.origin.Ask(asking, r.o.Prefix, wire.RegionRequest{Follower: "b"})
		if err != nil && !errors.Is(err, ErrOrigin) {
			return nil // it answers, and has no bucket of members
		}
		return err
	})
}

// open opens the mirrors.
func (r *follower) open() (s *Streams) {
	r.t.Helper()
	r.again("the mirrors are opened", func(ctx context.Context) (err error) {
		s, err = OpenMirrors(ctx, r.b, r.o)
		return err
	})
	return s
}

// limited gives the log of region a another limit, which its mirror has to get, and returns what the log is then.
func (r *follower) limited() *jetstream.StreamInfo {
	r.t.Helper()
	var info *jetstream.StreamInfo
	r.again("the log of region a gets a limit", func(ctx context.Context) error {
		log, err := r.a.Stream(ctx, r.o.log().Stream())
		if err != nil {
			return err
		}
		c := log.CachedInfo().Config
		c.MaxBytes = 1 << 20
		if log, err = r.a.UpdateStream(ctx, c); err == nil {
			info = log.CachedInfo()
		}
		return err
	})
	return info
}

// TestHeldFollow: a promotion begins, or is carried out, while a mirror gets the limits of its original, or the
// connection is lost. The promotion stays noted until it has ended: else the region would follow again, the first
// region, which has handed over, would take no writes, and nobody could undo that. What is no mirror any more stays as
// the promotion has made it. After a lost connection the mirror gets the limits.
func TestHeldFollow(t *testing.T) {
	j := startRegions(t)
	for _, kind := range []held.Kind{held.Write, held.Takeover, held.Reconnection} {
		held.Each(t, "processor/internal/streams.Streams.Follow", kind, func(t *testing.T, during func(func())) {
			r := j.begin(t)
			r.follow()
			s, p := r.open(), r.promotion()
			info := r.limited()
			var began wire.Promotion
			begin := func() {
				r.again("the promotion begins", func(ctx context.Context) (err error) {
					began, err = p.Begin(ctx, false)
					return err
				})
			}
			run := func() {
				r.again("the promotion ends", func(ctx context.Context) error { _, err := p.Run(ctx, began); return err })
			}
			during(map[held.Kind]func(){held.Write: begin, held.Takeover: func() { begin(); run() }, held.Reconnection: r.cut}[kind])
			err := s.Follow(t.Context(), info, s.Log, "a")
			if began.Identity == 0 && kind != held.Reconnection { // there is no such gap: it happens now
				begin()
				run()
				kind = held.Takeover
			}
			role, is := RoleOf(t.Context(), r.b, r.o)
			switch kind {
			case held.Write:
				if !errors.Is(is, ErrPromotion) || role.Promotion == nil || role.Promotion.Identity != began.Identity {
					t.Errorf("Follow returned %v; then the promotion is not noted: %+v, %v", err, role, is)
				}
				run()
			case held.Takeover:
				if err != nil && !errors.Is(err, ErrPromotion) {
					t.Errorf("Follow returned %v", err)
				}
			case held.Reconnection:
				r.again("the mirror gets the limits", func(ctx context.Context) error {
					return s.Follow(ctx, info, s.Log, "a")
				})
				if got := s.Log.CachedInfo().Config; got.MaxBytes != 1<<20 || got.Mirror == nil {
					t.Errorf("the mirror is %+v", got)
				}
				return
			}
			if role, err := RoleOf(t.Context(), r.b, r.o); err != nil || role.Mirror || len(role.Former) != 1 {
				t.Errorf("region b is not the first: %+v, %v", role, err)
			}
			r.again("region b is as lapse needs it", func(ctx context.Context) error { return Check(ctx, r.b, r.o) })
		})
	}
}

// TestHeldRelease: the connection is lost at the end of a promotion. The region is the first, whether it is noted there
// or not that the promotion has ended.
func TestHeldRelease(t *testing.T) {
	j := startRegions(t)
	held.Each(t, "processor/internal/streams.Promotion.release", held.Reconnection, func(t *testing.T, during func(func())) {
		r := j.begin(t)
		r.follow()
		r.open()
		p := r.promotion()
		began, err := p.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		during(r.cut)
		_, err = p.Run(t.Context(), began)
		t.Logf("the promotion returned %v", err)
		r.again("region b is the first", func(ctx context.Context) error {
			role, err := RoleOf(ctx, r.b, r.o)
			if err == nil && (role.Mirror || role.Promotion != nil || len(role.Former) != 1) {
				t.Errorf("the role is %+v", role)
			}
			return errors.Join(err, Check(ctx, r.b, r.o))
		})
	})
}

// TestHeldStepDown: the connection is lost while a region steps down for another one that was promoted before it. The
// next attempt goes on, and then no stream of the region takes messages: else there would be two first regions.
func TestHeldStepDown(t *testing.T) {
	j := startRegions(t)
	for _, kind := range []held.Kind{held.Write, held.Reconnection} {
		held.Each(t, "processor/internal/streams.Promotion.StepDown", kind, func(t *testing.T, during func(func())) {
			r := j.begin(t)
			r.follow()
			r.open()
			p := r.promotion()
			r.again("region b is promoted", func(ctx context.Context) error {
				began, err := p.Begin(ctx, false)
				if err == nil {
					_, err = p.Run(ctx, began)
				}
				return err
			})
			by := wire.Promotion{Domain: "c", From: "a", At: time.Now()}
			during(func() {
				if kind == held.Reconnection {
					r.cut()
					return
				}
				if err := p.StepDown(t.Context(), by); err != nil { // another process does the same
					t.Error(err)
				}
			})
			r.again("region b steps down", func(ctx context.Context) error { return p.StepDown(ctx, by) })
			if role, err := RoleOf(t.Context(), r.b, r.o); !errors.Is(err, ErrSuperseded) || role.Superseded.Domain != "c" {
				t.Errorf("the role is %+v, %v", role, err)
			}
			here, err := r.o.infos(t.Context(), r.b)
			if err != nil {
				t.Fatal(err)
			}
			for name, info := range here {
				if c := info.Config; len(c.Subjects) != 1 || c.Subjects[0] != ClosedSubject("b", name) {
					t.Errorf("stream %s takes messages: %v", name, c.Subjects)
				}
			}
		})
	}
}

// TestHeldCompleteConfigs: the connection is lost while the stream of configurations gets what the logs have sourced of
// it. The next attempt goes on: each message has the sequence that it has in the logs, and none is there twice.
func TestHeldCompleteConfigs(t *testing.T) {
	js := connect(t, natstest.Start(t, natstest.Options{}))
	tests := 0
	for _, operation := range []string{"completeConfigs", "sourcedBehind"} {
		held.Each(t, "processor/internal/streams.Promotion."+operation, held.Reconnection,
			func(t *testing.T, during func(func())) {
				tests++
				o := options()
				o.Prefix = wire.Prefix(fmt.Sprint("p", tests))
				p, stream := configsBehind(t, js, o)
				during(held.LoseConnections)
				if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
					defer cancel()
					return p.completeConfigs(ctx, stream)
				}); err != nil {
					t.Fatal(err)
				}
				checkCompleted(t, stream, o.Prefix)
			})
	}
}

// TestHeldUndoOrRun: one person undoes a promotion to which the first region has handed over, while another one carries
// it out. One of both wins, and the other one is told so: else both regions would be the first, and what one of them
// acknowledges would be lost.
func TestHeldUndoOrRun(t *testing.T) {
	j := startRegions(t)
	for _, operation := range []string{"Undo", "claimUndo", "Run", "claimStreams", "claim", "Begin"} {
		held.Each(t, "processor/internal/streams.Promotion."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			r := j.begin(t)
			r.follow()
			r.open()
			r.answer()
			p := r.promotion()
			var began wire.Promotion
			var role Role
			begin := func() {
				r.again("the first region hands over", func(ctx context.Context) (err error) {
					if began, err = p.Begin(ctx, true); err == nil {
						err = p.Drain(ctx, began)
					}
					return err
				})
				if role, _ = RoleOf(t.Context(), r.b, r.o); role.Promotion == nil {
					t.Fatalf("the promotion is not noted: %+v", role)
				}
			}
			var undone, promoted error
			undo := func() { undone = p.Undo(t.Context(), role) }
			run := func() { _, promoted = p.Run(t.Context(), began) }
			switch operation {
			case "Undo", "claimUndo":
				begin()
				during(run)
				undo()
			case "Run", "claimStreams":
				begin()
				during(undo)
				run()
			case "Begin": // nothing is noted, or half of it
				during(func() {
					if role, _ = RoleOf(t.Context(), r.b, r.o); role.Promotion != nil {
						undo()
					}
				})
				if began, promoted = p.Begin(t.Context(), true); promoted == nil {
					if promoted = p.Drain(t.Context(), began); promoted == nil {
						run()
					}
				}
			case "claim": // another promotion begins, and is undone, within the beginning of this one
				during(func() { begin(); undo() })
				if _, promoted = p.Begin(t.Context(), true); !errors.Is(promoted, errClaimed) {
					begin()
					run()
				}
			}
			t.Logf("undone: %v; promoted: %v", undone, promoted)
			a, errA := RoleOf(t.Context(), r.a, r.o)
			b, errB := RoleOf(t.Context(), r.b, r.o)
			firstA, firstB := errA == nil && a.Superseded == nil, errB == nil && !b.Mirror
			if firstA == firstB {
				t.Errorf("region a is the first: %t, %v; region b: %t, %v", firstA, errA, firstB, errB)
			}
			first := map[bool]jetstream.JetStream{true: r.a, false: r.b}[firstA]
			r.again("the first region is as lapse needs it", func(ctx context.Context) error { return Check(ctx, first, r.o) })
		})
	}
}

//go:build held

package streams

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// superseded promotes region b while region a, which has three writes more, does not reach it. Then region a is
// superseded. It returns the bodies of those writes.
func (r *follower) superseded(j *twoRegions) (alone []string) {
	r.t.Helper()
	write := func(body string) {
		r.t.Helper()
		r.again("region a stores a write", func(ctx context.Context) error {
			_, err := r.a.Publish(ctx, r.o.Prefix.Write(wire.Upsert, "c", "1"), []byte(body), jetstream.WithMsgID(body))
			return err
		})
	}
	for _, body := range []string{"both 1", "both 2", "both 3"} {
		write(body)
	}
	log := r.o.log().Stream()
	r.again("region b has the writes", func(ctx context.Context) error {
		mirror, err := r.b.Stream(ctx, log)
		if err == nil && mirror.CachedInfo().State.LastSeq < 3 {
			err = errors.New("it has not")
		}
		return err
	})
	j.link.Down()
	for _, body := range []string{"1", "2", "3"} {
		write(body)
		alone = append(alone, body)
	}
	p := r.promotion()
	var began wire.Promotion
	r.again("region b is promoted", func(ctx context.Context) (err error) {
		if began, err = p.Begin(ctx, false); err == nil {
			_, err = p.Run(ctx, began)
		}
		return err
	})
	root, err := r.a.Stream(r.t.Context(), log)
	if err != nil {
		r.t.Fatal(err)
	}
	r.again("region a is superseded", func(ctx context.Context) error {
		_, err := supersedeAll(ctx, r.a, r.o, wire.Identity(root.CachedInfo().Config.Metadata, root.CachedInfo().Created), began)
		return err
	})
	j.link.Up()
	return alone
}

// TestHeldAlone: the connection is lost, or the first region stores writes, while lapse demote finds out what its
// region alone has. It names each message that the first region has not, once, or it fails: Demote then removes
// nothing, and asks again.
func TestHeldAlone(t *testing.T) {
	j := startRegions(t)
	for _, operation := range []string{"Alone", "compare", "lacks", "read"} {
		for _, kind := range []held.Kind{held.Write, held.Reconnection} {
			if kind == held.Write && operation != "Alone" && operation != "lacks" {
				continue // it happens within Alone too
			}
			held.Each(t, "processor/internal/streams.Demotion."+operation, kind, func(t *testing.T, during func(func())) {
				r := j.begin(t)
				r.follow()
				want := r.superseded(j)
				dialer := &follower{t: t}
				a := connect(t, j.urlA, nats.SetCustomDialer(dialer))
				origin, err := NewOrigin(a.Conn(), "b")
				if err != nil {
					t.Fatal(err)
				}
				r.again("region a reaches region b", func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					_, err := origin.Info(ctx, r.o.Root())
					return err
				})
				during(func() {
					if kind == held.Reconnection {
						dialer.cut()
						return
					}
					for _, body := range []string{"4", "5", "6", "7"} {
						r.again("region b stores a write", func(ctx context.Context) error {
							_, err := r.b.Publish(ctx, r.o.Prefix.Write(wire.Upsert, "c", "1"), []byte(body), jetstream.WithMsgID(body))
							return err
						})
					}
				})
				d := &Demotion{JS: a, First: origin, Opts: r.o}
				var alone []string
				r.again("it is found out", func(ctx context.Context) error {
					alone = nil
					return d.Alone(ctx, func(_ string, m jetstream.Msg) error {
						alone = append(alone, string(m.Data()))
						return nil
					})
				})
				if !slices.Equal(alone, want) {
					t.Errorf("region a alone has %q, want %q", alone, want)
				}
			})
		}
	}
}

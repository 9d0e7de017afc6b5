//go:build held

package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldChange: while a process changes one thing in the configuration of the log, the stream of events or the stream
// of configurations, others change other things: gaps that a person accepts, or a limit. Each change is there
// afterwards, whoever was first. Without a gap, a rebuild would be refused again (G12).
//
// It fails if a process changes the configuration that it has read, whatever it is by then.
func TestHeldChange(t *testing.T) {
	shortLocks(t)
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	age := 36 * time.Hour
	for _, first := range []string{"gap", "next gap", "limit"} {
		t.Run(first, func(t *testing.T) {
			held.Each(t, "processor/internal/streams.changeLocked", held.Write, func(t *testing.T, during func(func())) {
				runs++
				o := options()
				o.Prefix, o.Objects = wire.Prefix(fmt.Sprint("change", runs)), false
				s, err := Provision(t.Context(), js, o)
				if err != nil {
					t.Fatal(err)
				}
				changes := map[string]func(context.Context) error{
					"gap":      func(ctx context.Context) error { return s.NoteGaps(ctx, []Gap{{3, 4}}) },
					"next gap": func(ctx context.Context) error { return s.NoteGaps(ctx, []Gap{{7, 9}}) },
					"limit": func(ctx context.Context) error {
						other := o
						other.LogMaxAge = &age
						return limit(ctx, js, other, s.Log, other.LogMaxAge, nil)
					},
				}
				others := sync.OnceFunc(func() {
					for name, change := range changes {
						if name != first {
							if err := change(context.Background()); err != nil {
								t.Errorf("%s: %v", name, err)
							}
						}
					}
				})
				during(others)
				if err := changes[first](t.Context()); err != nil {
					t.Fatal(err)
				}
				others()
				again, err := Provision(t.Context(), js, o)
				if err != nil {
					t.Fatal(err)
				}
				c := again.Log.CachedInfo().Config
				gaps, err := noted(c)
				if err != nil || !slices.Equal(gaps, []Gap{{3, 4}, {7, 9}}) || c.MaxAge != age {
					t.Errorf("the gaps are %v, %v, and the age is %s", gaps, err, c.MaxAge)
				}
			})
		})
	}
}

// TestHeldSuperseded: another region is promoted while a person accepts a gap of the log here. The log takes no more
// messages afterwards, and says why: else both regions would accept writes.
func TestHeldSuperseded(t *testing.T) {
	shortLocks(t)
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	for _, operation := range []string{"changeStream", "changeLocked"} {
		held.Each(t, "processor/internal/streams."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			runs++
			o := options()
			o.Prefix, o.Objects = wire.Prefix(fmt.Sprint("superseded", runs)), false
			s, err := Provision(t.Context(), js, o)
			if err != nil {
				t.Fatal(err)
			}
			name, by := s.Log.CachedInfo().Config.Name, wire.Promotion{Domain: "b", At: time.Now().UTC()}
			promote := sync.OnceFunc(func() {
				if err := supersede(context.Background(), js, o, name, "a", by); err != nil {
					t.Error(err)
				}
			})
			during(promote)
			if err := s.NoteGaps(t.Context(), []Gap{{3, 4}}); err != nil {
				t.Fatal(err)
			}
			promote()
			info, err := s.Log.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := Superseded(info); !errors.Is(err, ErrSuperseded) {
				t.Errorf("nothing says that another region is the first: %v", err)
			}
			if !slices.Equal(info.Config.Subjects, []string{ClosedSubject("a", name)}) {
				t.Errorf("the log takes messages on %v", info.Config.Subjects)
			}
			if gaps, err := noted(info.Config); err != nil || len(gaps) != 1 {
				t.Errorf("the gaps are %v, %v", gaps, err)
			}
		})
	}
}

// TestHeldLock: another process changes a stream while a process waits for the lock of it, or between the look at the
// lock and the lock. One of them has it at a time. A lock whose process has died ends.
func TestHeldLock(t *testing.T) {
	shortLocks(t)
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	for name, others := range map[string]func(c lock, err error){
		"released": func(c lock, err error) { c.release(context.Background()) }, "died": func(lock, error) {},
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/internal/streams.lockStream", held.Takeover, func(t *testing.T, during func(func())) {
				runs++
				o := options()
				o.Prefix, o.Objects = wire.Prefix(fmt.Sprint("lock", runs)), false
				if _, err := Provision(t.Context(), js, o); err != nil {
					t.Fatal(err)
				}
				bucket := o.Prefix.CheckpointBucket()
				stream, err := js.Stream(t.Context(), o.Prefix.EventsStream())
				if err != nil {
					t.Fatal(err)
				}
				var other lock
				during(func() {
					var err error
					if other, err = lockStream(context.Background(), js, bucket, stream); err != nil {
						t.Error(err)
					}
					others(other, err)
				})
				c, err := lockStream(t.Context(), js, bucket, stream)
				if err != nil {
					t.Fatal(err)
				}
				if c.seq == 0 || c.seq <= other.seq {
					t.Errorf("the lock is at %d, that of the other was at %d", c.seq, other.seq)
				}
				if name == "died" && other.seq != 0 && time.Since(other.began) < lockFor {
					t.Errorf("it has taken a lock that counts, after %s", time.Since(other.began))
				}
				other.release(t.Context()) // which does not end the lock of another process
				short, cancel := context.WithTimeout(t.Context(), lockFor/2)
				defer cancel()
				if third, err := lockStream(short, js, bucket, stream); err == nil {
					t.Errorf("two have a lock: %d and %d", c.seq, third.seq)
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				c.release(t.Context())
				if c, err = lockStream(t.Context(), js, bucket, stream); err != nil {
					t.Fatal(err)
				}
				c.release(t.Context())
			})
		})
	}
}

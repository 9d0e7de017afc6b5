package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// role is what a process is to a shard.
type role string

// The roles. A process that has lost the lease is a standby, also while its work ends.
const (
	Starting role = "starting"
	Standby  role = "standby"
	Owner    role = "owner"
	ended    role = "ended" // the member has ended
)

// Status is the state of a shard, as this process sees it.
type Status struct {
	Shard int
	Role  role
	Held  bool       // this process owns the shard, and that is proven at this moment
	Lease wire.Lease // as last known; without Owner if there is no owner, or none is known
	// Taken and Lost count how often this process took the shard over and lost it.
	Taken, Lost uint64
	// Problem is why the lease cannot be read, verified or taken; nil if there is none.
	Problem error
}

// shard is what a process does about the lease of one shard.
type shard struct {
	*Member
	id        int
	log       *slog.Logger
	pulse     *pulse
	beats     chan *nats.Msg
	suspected chan struct{} // holds a request to verify
	releases  chan bool     // holds an order to release the shard; true: before the work has ended

	mu     sync.Mutex
	status Status
	warned bool   // the problem was logged
	owner  string // as this process knows it from leases and beats; empty if there is none
	known  uint64 // the revision of the lease, as this process knows it
}

// newShard makes what m does about a shard.
func newShard(m *Member, id int) *shard {
	const room = 256 // beats; the owner soon repeats a beat for which there is no room
	return &shard{
		Member:    m,
		id:        id,
		log:       m.log.With(slog.Int("shard", id)),
		pulse:     newPulse(m.clock, m.timing.doubt),
		beats:     make(chan *nats.Msg, room),
		suspected: make(chan struct{}, 1),
		releases:  make(chan bool, 1),
		status:    Status{Shard: id, Role: Starting},
	}
}

// run stands by and owns in turn, until ctx is done or work ends by itself.
func (s *shard) run(ctx context.Context, work work) error {
	sub, err := s.nc.ChanSubscribe(s.opts.Prefix.Beat(s.id), s.beats)
	if err != nil {
		return fmt.Errorf("listen to the beats of shard %d: %w", s.id, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// The server knows the subscription before it answers the first read of the lease.
	// From then on silence has a meaning.
	for first := true; ; first = false {
		t, err := s.standBy(ctx, first)
		if err != nil || t.revision == 0 {
			return err
		}
		if ctx.Err() != nil {
			s.release(context.WithoutCancel(ctx), t.revision)
			return nil
		}
		if again, err := s.own(ctx, t, work); !again {
			return err
		}
	}
}

// publish publishes a beat. If that fails, the others do not hear it.
func (s *shard) publish(b wire.Beat) {
	b.Region = s.opts.Region
	if body, err := json.Marshal(b); err == nil {
		_ = s.nc.Publish(s.opts.Prefix.Beat(s.id), body)
	}
}

// parse reads a beat. It drops all other messages, because anybody may publish there.
func (s *shard) parse(m *nats.Msg) (b wire.Beat, ok bool) {
	if json.Unmarshal(m.Data, &b) != nil || b.Owner == "" || s.deaf(b) {
		return b, false
	}
	if b.Region != s.opts.Region {
		s.crossing.Store(&crossing{b.Region, s.now()})
		return b, false
	}
	return b, true
}

// crossing is when a beat of another region came last.
type crossing struct {
	region string
	at     time.Duration
}

// Crossing is the JetStream domain of a region whose beats have arrived here in the last seconds;
// "" if there is none. A leaf node is to keep them out, and what it lets through beside them:
// fences and events.
func (m *Member) Crossing() (region string) {
	if c := m.crossing.Load(); c != nil && m.now()-c.at < 5*time.Second {
		region = c.region
	}
	return region
}

// read reads the lease.
func (s *shard) read(ctx context.Context) (entry, error) {
	if err := s.readFail(); err != nil {
		return entry{}, err
	}
	return s.bucket.Lease(ctx, s.id)
}

// recreate creates a bucket that was deleted.
func (s *shard) recreate(ctx context.Context) error {
	created, err := s.bucket.Recreate(ctx)
	if created {
		s.log.Warn("created the bucket of members again, because it was deleted",
			slog.String("bucket", s.bucket.Name()))
	}
	return err
}

// suspect asks the owner to verify its lease soon.
func (s *shard) suspect() {
	select {
	case s.suspected <- struct{}{}:
	default:
	}
}

// Status is the state of the shard.
func (s *shard) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Held = status.Role == Owner && s.pulse.Good()
	return status
}

// update changes the status.
func (s *shard) update(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// ended notes that the member has ended.
func (s *shard) ended() {
	s.update(func(status *Status) { status.Role, status.Problem = ended, nil })
}

// problem keeps the current problem, nil if there is none, and logs when it begins and
// ends. It does not log a lost connection, because others do.
func (s *shard) problem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Problem = err
	switch {
	case err == nil && s.warned:
		s.log.Info("the lease can be read and changed again")
		s.warned = false
	case err != nil && !errors.Is(err, errDown) && !s.warned:
		s.log.Warn("the lease cannot be read or changed", slog.Any("error", err))
		s.warned = true
	}
}

package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink/wire"
)

var problemOtherRedis = health.Problem{Name: "another Redis", Advice: "Give this process the Redis of the owner, " +
	"or stop the processes that use the old one."}

const (
	identityEvery = time.Second
	identitySoon  = 10 * time.Millisecond // before the first answer
	identityFirst = 3 * time.Second       // for which the first answer may take
	identityCall  = time.Second
	// A wiped Redis gets a new identity, which the processes do not learn at the same moment.
	identityLasts = 5 * time.Second
)

// sameRedis finds out whether this process uses the Redis that the owner uses. If it does not, what
// it reads is not what the owner writes: then it answers no reads, over NATS and HTTP, and hands
// its shards over. The owner of the first shard that has one is right, because clients see its
// events; so of two owners one is right.
type sameRedis struct {
	read   func(ctx context.Context) (string, error) // the identity of this process's Redis
	member members
	shards int
	board  *health.Board
	offer  func(bool) error // answers reads over NATS, or leaves them to the others
	tell   func()           // tells the others the identity

	mu      sync.Mutex
	id      string // as last read
	decided bool   // reads were offered or refused
	since   time.Time
	other   error // the owner has another Redis; nil if it has the same, or that is not known
}

// identity is that of this process's Redis; "" if it was not read yet.
func (s *sameRedis) identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// refused is why this process must not answer reads, nor own a shard; nil if it may.
func (s *sameRedis) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.other
}

// undecided is an error until it is known whether this process answers reads.
func (s *sameRedis) undecided() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decided {
		return nil
	}
	return errors.New("this process has not found out yet whether the owner uses the same Redis")
}

// run compares until ctx is done. It returns an error if reads can be neither offered nor left.
func (s *sameRedis) run(ctx context.Context) error {
	began := time.Now()
	for {
		if err := s.runOnce(ctx, began); err != nil {
			return err
		}
		pause := identityEvery
		if s.undecided() != nil {
			pause = identitySoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (s *sameRedis) runOnce(ctx context.Context, began time.Time) error {
	asking, cancel := context.WithTimeout(ctx, identityCall)
	id, err := s.read(asking)
	cancel()
	if ctx.Err() != nil {
		return nil
	}
	now := time.Now()
	s.mu.Lock()
	if err == nil && id != s.id {
		s.id = id
		defer s.tell()
	}
	id, decided := s.id, s.decided
	s.mu.Unlock()
	if err != nil && decided {
		return nil // the last answer stays
	}
	owner, known := s.owner()
	if !decided && !known && now.Sub(began) < identityFirst {
		return nil
	}
	return s.decide(id, owner, now)
}

// owner is the entry of the process that is right; empty if that is this process, or if it does not
// tell its Redis. It is not known while it may be in a list that was not read yet.
func (s *sameRedis) owner() (owner wire.Member, known bool) {
	for i := range s.shards {
		status := s.member.Status(i)
		switch {
		case status.Role == lease.Owner:
			return wire.Member{}, true
		case status.Role != lease.Standby:
			return wire.Member{}, false
		case status.Lease.Owner == "":
			continue
		}
		for _, m := range s.member.Members() {
			if m.ID == status.Lease.Owner {
				return m, true
			}
		}
		return wire.Member{}, false
	}
	return wire.Member{}, false
}

// decide offers reads, or leaves them to the others.
func (s *sameRedis) decide(id string, owner wire.Member, now time.Time) error {
	s.mu.Lock()
	before, decided := s.other, s.decided
	s.other = nil
	switch differs := id != "" && owner.Redis != "" && owner.Redis != id; {
	case !differs:
		s.since = time.Time{}
	case decided && before == nil && s.since.IsZero():
		s.since = now
	case decided && before == nil && now.Sub(s.since) < identityLasts:
	default:
		s.other = fmt.Errorf("this process uses another Redis (%s) than the owner %s (%s), so it answers no reads and "+
			"takes no shard: use the owner's --redis, or stop the owner",
			id, owner.Name, owner.Redis)
	}
	s.decided = true
	other := s.other
	s.mu.Unlock()
	s.board.Set(problemOtherRedis, other)
	if decided && (before == nil) == (other == nil) {
		return nil
	}
	return s.offer(other == nil)
}

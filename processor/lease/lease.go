package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrLost is wrapped by every error which means that another process has the lease.
var ErrLost = errors.New("the lease is lost")

// Options are what a Member is made with. The zero value of each is its default.
type Options struct {
	Prefix   wire.Prefix // wire.DefaultPrefix if empty
	Shards   int         // 1: shard 0 alone
	Replicas int         // 1; counts when the bucket is created
	ID       string      // random; unique to this run of the process, of A-Z a-z 0-9 _ -
	Name     string      // host and process id; for people
	// Impatient: take the leases at the start at once, without waiting for a beat of their
	// owners. It is for a process that embeds the NATS server: no other process worked
	// while that server was down.
	Impatient bool
	Region    string // JetStream domain of the servers; "" if they have none
	// Describe returns what the process tells the others, every two seconds. It must not
	// block. The Member fills in ID, Name, Seen, Owns and, if it is zero, Started.
	Describe func() wire.Member
	// Unfit returns why this process cannot do the work of an owner although another may, such
	// as a lost connection to Redis; nil if it can. It must not block.
	Unfit  func() error
	Logger *slog.Logger // none
}

// Member is one process among those that serve a prefix. See the package doc.
type Member struct {
	seams
	opts    Options
	nc      *nats.Conn
	link    *link
	bucket  *bucket
	roster  *roster
	log     *slog.Logger
	started wire.Time
	shards  []*shard
	running atomic.Bool
	leaving atomic.Bool

	crossing   atomic.Pointer[crossing]
	unfitSince time.Time // zero if this process can work; the roster has it
	given      given     // what this process has released last for another member; the roster has it
}

// New validates the options. It calls no server.
func New(nc *nats.Conn, opts Options) (*Member, error) { return newMember(nc, opts, noSeams()) }

// newMember is New for tests.
func newMember(nc *nats.Conn, opts Options, seams seams) (*Member, error) {
	opts, err := opts.checked()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	m := &Member{seams: seams, opts: opts, nc: nc, log: opts.Logger, started: wire.Time(time.Now().UnixMilli())}
	m.link = newLink(nc, func() { m.each(func(s *shard) { s.pulse.Doubt() }) })
	m.bucket = newBucket(js, m.link, m.timing.call, opts.Prefix, opts.Replicas)
	m.roster = &roster{m: m, asked: make(chan struct{}, 1)}
	for i := range opts.Shards {
		m.shards = append(m.shards, newShard(m, i))
	}
	return m, nil
}

// checked validates the options and fills in the defaults.
func (o Options) checked() (Options, error) {
	const mostShards, mostReplicas = 1024, 5
	var err error
	if o.Prefix, err = o.Prefix.OrDefault(); err != nil {
		return o, err
	}
	o.Shards = cmp.Or(o.Shards, 1)
	if o.Shards < 1 || o.Shards > mostShards {
		return o, fmt.Errorf("%d shards are not possible: use 1 to %d", o.Shards, mostShards)
	}
	if o.Replicas < 0 || o.Replicas > mostReplicas {
		return o, fmt.Errorf("%d replicas are not possible: use 1 to %d", o.Replicas, mostReplicas)
	}
	o.ID = cmp.Or(o.ID, nuid.Next())
	if wire.CheckCollection(o.ID) != nil { // the same characters are allowed
		return o, fmt.Errorf("member id %q is not valid: use 1 to %d of A-Z a-z 0-9 _ -", o.ID, wire.MaxCollection)
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if o.Describe == nil {
		o.Describe = func() wire.Member { return wire.Member{} }
	}
	if o.Unfit == nil {
		o.Unfit = func() error { return nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

// ID is the id of the member, unique to this run of the process.
func (m *Member) ID() string { return m.opts.ID }

// Provision creates the bucket if it is absent. [Member.Run] does it too. Call it before
// if something else has to wait until it succeeded.
func (m *Member) Provision(ctx context.Context) error {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	created, err := m.bucket.Provision(ctx)
	if created {
		m.log.Info("created bucket", slog.String("bucket", m.bucket.Name()))
	}
	return err
}

// work is what an owner does. It ends soon after ctx is done: then the lease is lost, or
// the member is told to stop. It asks held before each step.
type work func(ctx context.Context, held *Held) error

// Run joins and stands by. It calls work each time that this process owns a shard, for as
// long as it owns it, and at the same time for each shard.
//
// When work ends because the lease was lost, Run stands by again. When work ends for
// another reason, Run releases the lease and returns what work returned. When ctx is done,
// Run waits until work has ended, releases the lease, removes the entry of the member and
// returns nil. Run may be called once.
func (m *Member) Run(ctx context.Context, work work) error {
	if m.running.Swap(true) {
		return errors.New("the member was run before: make a new one")
	}
	defer m.each((*shard).ended)
	defer m.link.Start()()
	if err := m.Provision(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	m.roster.Refresh(ctx)
	listing, stopListing := context.WithCancel(context.WithoutCancel(ctx))
	var lists, shards sync.WaitGroup
	lists.Go(func() { m.roster.Run(listing) })

	working, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	shards.Go(func() { m.leave(ctx, working); end(nil) })
	var first error
	var once sync.Once
	for _, s := range m.shards {
		shards.Go(func() {
			err := s.run(working, work)
			once.Do(func() { first = err; end(err) })
		})
	}
	shards.Wait()
	stopListing()
	lists.Wait()
	return first
}

// leave waits until this process is to leave, and tells the others before a lease is released.
// Else an owner could release a shard for it.
func (m *Member) leave(told, working context.Context) {
	select {
	case <-told.Done():
		ctx, cancel := context.WithTimeout(working, m.timing.flush)
		defer cancel()
		m.leaving.Store(true)
		_, _ = m.roster.store(ctx)
	case <-working.Done():
	}
}

// each calls f for each shard.
func (m *Member) each(f func(*shard)) {
	for _, s := range m.shards {
		f(s)
	}
}

// now is the monotonic time.
func (m *Member) now() time.Duration { return m.clock().Mono }

// describe is the entry of the member.
func (m *Member) describe() wire.Member {
	entry := m.opts.Describe()
	entry.ID, entry.Name, entry.Owns = m.opts.ID, m.opts.Name, nil
	entry.Seen = wire.Time(time.Now().UnixMilli())
	entry.Started = cmp.Or(entry.Started, m.started)
	if m.leaving.Load() {
		entry.Problem = cmp.Or(entry.Problem, "it is leaving")
	}
	for _, s := range m.shards {
		if s.Status().Role == Owner {
			entry.Owns = append(entry.Owns, s.id)
		}
	}
	return entry
}

// Members are the processes as they were last listed, at most a few seconds ago. Some may
// be gone: compare Seen.
func (m *Member) Members() []wire.Member { return m.roster.Members() }

// Tell stores the entry of the member soon, because what it describes has changed.
func (m *Member) Tell() { m.roster.Soon() }

// Store is Tell, but returns when JetStream has stored the entry, or could not.
func (m *Member) Store(ctx context.Context) { _, _ = m.roster.store(ctx) }

// Stored tells when JetStream last stored the entry of the member, and why it did not
// store the latest one. A recent time shows that JetStream stores messages.
func (m *Member) Stored() (at time.Time, err error) { return m.roster.Stored() }

// Status is the state of a shard, as this process sees it.
func (m *Member) Status(shard int) Status { return m.shards[shard].Status() }

// Problem tells why this process cannot keep or take a lease, or why JetStream does not
// store its entry. It is nil if there is no problem. To stand by is none, and neither is
// an owner's doubt.
func (m *Member) Problem() error {
	var problems []string
	for _, s := range m.shards {
		if err := s.Status().Problem; err != nil {
			problems = append(problems, fmt.Sprintf("lease of shard %d: %v", s.id, err))
		}
	}
	if _, err := m.Stored(); err != nil {
		problems = append(problems, fmt.Sprintf("bucket %s: %v", m.bucket.Name(), err))
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

package serve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink/wire"
)

var (
	problemLease    = health.Problem{Name: "lease", Advice: "Look at the bucket of members: it needs a leader."}
	problemCrossing = health.Problem{Name: "crossing", Advice: "Deny on the leaf node what must not cross: see the " +
		"document on regions. Do not promote before.", Minor: true}
	problemTakeover = health.Problem{Name: "takeover", Advice: "Look at the reason: lapse tries again by itself."}
	problemRefused  = health.Problem{Name: "refused", Advice: "Do what the reason says: lapse goes on by itself. " +
		"Nothing is changed meanwhile."}
)

const (
	takeoverAgain = time.Second      // after a takeover that failed
	refusedAgain  = 5 * time.Second  // after one that was refused: an examination reads a lot
	listedFor     = 10 * time.Second // a member that was seen since then is there
	promotedAgain = 50 * time.Millisecond
	leaseEvery    = time.Second // how often the problems of the lease are reported
)

// owner is the processor's view of the lease: it implements [processor.Lease].
type owner struct{ held *lease.Held }

func (o owner) OK(ctx context.Context) error     { return notOwner(o.held.OK(ctx)) }
func (o owner) Fenced(ctx context.Context) error { return notOwner(o.held.Fenced(ctx)) }

func notOwner(err error) error {
	if errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("%w: %w", processor.ErrNotOwner, err)
	}
	return err
}

// applier applies the log of a shard: a *processor.Processor.
type applier interface {
	RunAs(ctx context.Context, owner processor.Lease) error
	Progress() processor.Progress
	Retention() *wire.Retention
	Applying() error
	TakenOver() bool
	Following() *wire.Following
}

// members tells who serves the prefix and who owns which shard: a *lease.Member.
type members interface {
	Status(shard int) lease.Status
	Members() []wire.Member
	Problem() error
	Crossing() string
}

// shard is what this process has for a shard, whether it owns the shard or not.
type shard struct {
	applier
	board *health.Board // the problems of the shard
}

// node is this process as a member of those that serve the prefix. It runs the processors of
// the shards that it owns, and is a standby for the others.
type node struct {
	member  members
	shards  []shard
	board   *health.Board
	redis   *sameRedis
	version string
	http    string

	maxStaleness time.Duration // 0 is no limit
	first        *first        // nil without --writes-to
}

// apply runs the processor of a shard while this process holds the shard.
func (n *node) apply(ctx context.Context, held *lease.Held) error {
	return n.applyShard(ctx, held.Shard(), owner{held})
}

func (n *node) applyShard(ctx context.Context, shard int, lease processor.Lease) error {
	s := n.shards[shard]
	defer s.board.Set(problemTakeover, nil)
	defer s.board.Set(problemRefused, nil)
	for {
		err := s.RunAs(ctx, lease)
		pause := takeoverAgain
		switch {
		case errors.Is(err, processor.ErrConnectionClosed):
			return err
		case err == nil || ctx.Err() != nil || errors.Is(err, processor.ErrNotOwner):
			return nil // the process stops, or the member stands by again
		case errors.Is(err, processor.ErrPromotion):
			s.board.Set(problemTakeover, err)
			pause = promotedAgain
		case hasOtherShards(err):
			return err // its end releases the leases, for a process with the right number
		case errors.As(err, new(*processor.Refusal)):
			// The shard keeps its owner: another process would refuse it too.
			s.board.Set(problemTakeover, nil)
			s.board.Set(problemRefused, err)
			pause = refusedAgain
		default:
			// A server may have failed to answer during the takeover.
			s.board.Set(problemTakeover,
				fmt.Errorf("this process owns the shard but could not take it over, and tries again: %w", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// hasOtherShards reports whether a refusal is that the prefix has another number of shards than the options.
func hasOtherShards(err error) bool {
	r := (*processor.Refusal)(nil)
	return errors.As(err, &r) && r.OtherShards()
}

// lagsBehind is how much of the log is not applied, and how late events are, when an owner lags.
const (
	lagsBehind  = 5000
	lagsOverdue = time.Second
)

// lags reports whether this process owns a shard that is behind. Then the reads that cost Redis most give way.
func (n *node) lags() bool {
	for i, s := range n.shards {
		if p := s.Progress(); n.owns(i) && (p.Lag > lagsBehind || p.Overdue > lagsOverdue) {
			return true
		}
	}
	return false
}

// describe is the entry of this process in the list of members.
func (n *node) describe() wire.Member {
	m := wire.Member{Version: n.version, HTTP: n.http, Redis: n.redis.identity(), Following: n.ownFollowing()}
	if _, problems := n.ready(); problems != nil {
		m.Problem, m.AwaitsPromotion = problems.Error(), awaitsPromotion(problems)
	}
	for i, s := range n.shards {
		if !n.owns(i) {
			continue
		}
		p := s.Progress()
		m.Applied += p.Applied
		m.LagMessages += p.Lag
		m.Overdue = max(m.Overdue, p.Overdue.Seconds())
		if len(n.shards) > 1 {
			m.Shards = append(m.Shards,
				wire.ShardProgress{Shard: i, Applied: p.Applied, LagMessages: p.Lag, Overdue: p.Overdue.Seconds(),
					Retention: s.Retention()})
		} else {
			m.Retention = s.Retention()
		}
	}
	return m
}

// awaitsPromotion reports whether all problems follow from a promotion that has begun: the process has stopped for it,
// so it applies nothing. A problem without a name is one that a process only passes through.
func awaitsPromotion(problems health.Problems) (begun bool) {
	for _, p := range problems {
		if errors.Is(p.Reason, processor.ErrPromotion) {
			begun = true
		} else if p.Name != "" && p.Name != problemStale.Name {
			return false
		}
	}
	return begun
}

// ready returns the role in which the process is ready, and no problems; or why it is not: also a
// shard of its own whose log it has not applied yet, or a shard that nobody owns.
func (n *node) ready() (role string, problems health.Problems) {
	problems = n.board.Problems()
	var own, unknown, ownerless []int
	var others []string
	for i, s := range n.shards {
		switch status := n.member.Status(i); {
		case status.Role == lease.Owner:
			own = append(own, i)
			behind := health.Problem{Reason: s.Applying(), Advice: "Wait while lapse applies the log. Do not restart it: " +
				"with the embedded Redis it would begin again."}
			if len(n.shards) > 1 {
				behind.Shards = []int{i}
			}
			problems.Add(behind)
		case status.Role != lease.Standby:
			unknown = append(unknown, i)
		case status.Lease.Owner == "":
			ownerless = append(ownerless, i)
		default:
			others = append(others, fmt.Sprintf("the owner of %s is %s since %s", n.names([]int{i}), status.Lease.Name,
				status.Lease.Since))
		}
	}
	const wait = "Wait a second. If it stays: look at the bucket of members, which needs a leader."
	problems.Add(health.Problem{Reason: n.redis.undecided(), Advice: wait})
	following := n.following()
	if unknown != nil {
		problems.Add(health.Problem{Reason: fmt.Errorf("this process has not found out yet which process owns %s",
			n.names(unknown)), Advice: wait})
	}
	if ownerless != nil {
		problems.Add(health.Problem{Reason: fmt.Errorf("no process owns %s at this moment", n.names(ownerless)),
			Advice: "Wait a second for a takeover. If it stays: look at the bucket of members, which needs a leader."})
	}
	role = n.role(own, others)
	if following != nil {
		role += "; " + following.String()
	}
	for _, p := range n.board.Minor() {
		role += "; " + p.String() + " (" + p.Link() + ")"
	}
	return role, problems
}

// names names shards, where there are several.
func (n *node) names(shards []int) string {
	if len(n.shards) == 1 {
		return "the shard"
	}
	return health.Shards(shards)
}

// role says which shards this process owns, and who owns the others.
func (n *node) role(own []int, others []string) string {
	const standby = "ready: standing by, ready to take over; "
	switch {
	case len(n.shards) == 1 && len(own) == 1:
		return "ready"
	case len(n.shards) == 1:
		return strings.Replace(standby+strings.Join(others, ""), "the owner of the shard is", "the owner is", 1)
	case len(own) == 0:
		return standby + strings.Join(others, "; ")
	default:
		return strings.Join(append([]string{"ready: owns " + n.names(own)}, others...), "; ")
	}
}

// owns reports whether this process owns a shard.
func (n *node) owns(shard int) bool { return n.member.Status(shard).Role == lease.Owner }

// counts reports whether this process counts the documents of all shards: one process does.
func (n *node) counts() bool { return n.owns(0) }

// crossing is what is wrong where beats of another region arrive here.
func crossing(region string) error {
	if region == "" {
		return nil
	}
	return fmt.Errorf("beats of the region in the JetStream domain %q arrive here, so its fences and events may too: "+
		"a promotion while that region works would mix them with those of this one", region)
}

// watch reports on the board why the member cannot get or keep its lease, until ctx is done.
func (n *node) watch(ctx context.Context) {
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for {
		n.board.Set(problemLease, n.member.Problem())
		n.board.Set(problemStale, n.stale(n.following()))
		n.board.Set(problemCrossing, crossing(n.member.Crossing()))
		for _, s := range n.shards {
			if s.TakenOver() {
				s.board.Set(problemTakeover, nil)
				s.board.Set(problemRefused, nil)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

var (
	ownsShard = prometheus.NewDesc("lapse_shard_owner", "1 while this process owns the shard.", []string{"shard"}, nil)
	takeovers = prometheus.NewDesc("lapse_shard_taken_total", "How often this process has taken the shard over.",
		[]string{"shard"}, nil)
	losses = prometheus.NewDesc("lapse_shard_lost_total", "How often another process has taken the shard over "+
		"from this one.", []string{"shard"}, nil)
	isReady    = prometheus.NewDesc("lapse_ready", "1 while /readyz answers 200.", nil, nil)
	membersNow = prometheus.NewDesc("lapse_members", "Processes that serve the prefix, by their entries of the last "+
		"10 seconds.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (n *node) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ownsShard, takeovers, losses, membersNow, isReady, followsNow, followsSeconds,
		followsLink} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (n *node) Collect(c chan<- prometheus.Metric) {
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	for i := range n.shards {
		status, label := n.member.Status(i), strconv.Itoa(i)
		c <- prometheus.MustNewConstMetric(ownsShard, prometheus.GaugeValue, truth(status.Role == lease.Owner), label)
		c <- prometheus.MustNewConstMetric(takeovers, prometheus.CounterValue, float64(status.Taken), label)
		c <- prometheus.MustNewConstMetric(losses, prometheus.CounterValue, float64(status.Lost), label)
	}
	n.collectFollowing(c)
	_, problems := n.ready()
	alive, since := 0, wire.Time(time.Now().Add(-listedFor).UnixMilli())
	for _, m := range n.member.Members() {
		if m.Seen > since {
			alive++
		}
	}
	c <- prometheus.MustNewConstMetric(isReady, prometheus.GaugeValue, truth(problems == nil))
	c <- prometheus.MustNewConstMetric(membersNow, prometheus.GaugeValue, float64(alive))
}

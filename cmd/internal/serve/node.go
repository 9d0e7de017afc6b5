package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	problemLease    = "lease"
	problemTakeover = "takeover"

	takeoverAgain = time.Second // after a takeover that failed
	leaseEvery    = time.Second // how often the problems of the lease are reported
)

// shard is the only shard: it has all partitions of a prefix.
const shard = 0

// owner is the processor's view of the lease: it implements [processor.Owner].
type owner struct{ held *lease.Held }

func (o owner) OK(ctx context.Context) error     { return notOwner(o.held.OK(ctx)) }
func (o owner) Fenced(ctx context.Context) error { return notOwner(o.held.Fenced(ctx)) }

func notOwner(err error) error {
	if errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("%w: %w", processor.ErrNotOwner, err)
	}
	return err
}

// node is this process as a member of those that serve the prefix. It is the owner of the
// shard, and then runs the processor, or a standby.
type node struct {
	member  *lease.Member
	proc    *processor.Processor
	board   *health.Board
	version string
	http    string
}

// run joins the members, and runs the processor whenever this process owns the shard.
func (n *node) run(ctx context.Context) error {
	return n.member.Run(ctx, func(ctx context.Context, held *lease.Held) error {
		defer n.board.Set(problemTakeover, nil)
		for {
			err := n.proc.RunAs(ctx, owner{held})
			switch {
			case errors.Is(err, processor.ErrNotOwner):
				return nil // the member stands by again
			case err == nil || processor.IsFinal(err) || ctx.Err() != nil:
				return err
			}
			// A server may have failed to answer during the takeover.
			n.board.Set(problemTakeover, fmt.Errorf("this process owns the shard but could not take its partitions over, and tries again: %w", err))
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(takeoverAgain):
			}
		}
	})
}

// describe is the entry of this process in the list of members.
func (n *node) describe() wire.Member {
	m := wire.Member{Version: n.version, HTTP: n.http}
	if _, err := n.ready(); err != nil {
		m.Problem = err.Error()
	}
	if n.owns() {
		p := n.proc.Progress()
		m.Applied, m.LagMessages, m.Overdue = p.Applied, p.Lag, p.Overdue.Seconds()
	}
	return m
}

// ready returns the role in which the process is ready, or why it is not.
func (n *node) ready() (role string, err error) {
	status := n.member.Status(shard)
	switch status.Role {
	case lease.Owner:
		return "ready", errors.Join(n.board.Err(), n.proc.Applying())
	case lease.Standby:
		if status.Lease.Owner == "" {
			return "", errors.Join(n.board.Err(), errors.New("no process owns the shard at this moment"))
		}
		return fmt.Sprintf("ready: standing by, ready to take over; the owner is %s since %s", status.Lease.Name, status.Lease.Since), n.board.Err()
	default:
		return "", errors.Join(n.board.Err(), errors.New("this process has not found out yet which process owns the shard"))
	}
}

// owns reports whether this process owns the shard.
func (n *node) owns() bool { return n.member.Status(shard).Role == lease.Owner }

// watch reports on the board why the member cannot get or keep its lease, until ctx is done.
func (n *node) watch(ctx context.Context) {
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for {
		n.board.Set(problemLease, n.member.Problem())
		if n.proc.TakenOver() {
			n.board.Set(problemTakeover, nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

var (
	ownsShard  = prometheus.NewDesc("lapse_shard_owner", "1 while this process owns the shard.", []string{"shard"}, nil)
	takeovers  = prometheus.NewDesc("lapse_shard_taken_total", "How often this process has taken the shard over.", []string{"shard"}, nil)
	losses     = prometheus.NewDesc("lapse_shard_lost_total", "How often another process has taken the shard over from this one.", []string{"shard"}, nil)
	isReady    = prometheus.NewDesc("lapse_ready", "1 while /readyz answers 200.", nil, nil)
	membersNow = prometheus.NewDesc("lapse_members", "Processes that serve the prefix, by their entries of the last 10 seconds.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (n *node) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ownsShard, takeovers, losses, membersNow, isReady} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (n *node) Collect(c chan<- prometheus.Metric) {
	const label = "0"
	status := n.member.Status(shard)
	owns, ready := 0.0, 0.0
	if status.Role == lease.Owner {
		owns = 1
	}
	if _, err := n.ready(); err == nil {
		ready = 1
	}
	alive, since := 0, wire.Time(time.Now().Add(-10*time.Second).UnixMilli())
	for _, m := range n.member.Members() {
		if m.Seen > since {
			alive++
		}
	}
	c <- prometheus.MustNewConstMetric(ownsShard, prometheus.GaugeValue, owns, label)
	c <- prometheus.MustNewConstMetric(takeovers, prometheus.CounterValue, float64(status.Taken), label)
	c <- prometheus.MustNewConstMetric(losses, prometheus.CounterValue, float64(status.Lost), label)
	c <- prometheus.MustNewConstMetric(isReady, prometheus.GaugeValue, ready)
	c <- prometheus.MustNewConstMetric(membersNow, prometheus.GaugeValue, float64(alive))
}

package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/wire"
)

var problemStale = health.Problem{Name: "stale", Advice: "Look at the link to the first region, and at the first " +
	"region. If that is lost, run lapse promote here."}

// follows is the JetStream domain of the region that this one is to follow; "" if it is to follow none.
func (p *process) follows(ctx context.Context) (domain string, err error) {
	if p.opts.Follow == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	domain, err = processor.Follows(ctx, p.opts.Follow, func(url string) (*nats.Conn, error) {
		opts := p.opts
		opts.NATS = url
		return connectNATS(opts, nil, "follow")
	})
	if err != nil {
		// The first region may be lost, and the mirrors tell which one it was.
		if known := processor.FollowsAlready(ctx, p.log.nats, p.opts.Processor.Prefix); known != "" {
			return known, nil
		}
		err = fmt.Errorf("--follow: %w", err)
	}
	return domain, err
}

// region is the JetStream domain of the servers; "" if they have none.
func (p *process) region(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	js, err := jetstream.New(p.log.nats)
	if err != nil {
		return ""
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return ""
	}
	return account.Domain
}

// following is how far this region is behind the first; nil if it is the first. For shards that other processes own it
// is what these have told. Of several shards it is that of the one that is furthest behind.
func (n *node) following() *wire.Following {
	all, told := n.ownFollowing(), map[string]bool{}
	for i, s := range n.shards {
		switch owner := n.member.Status(i).Lease.Owner; {
		case n.owns(i):
		case owner == "":
			all = wire.Further(all, s.Following())
		case !told[owner]:
			told[owner] = true
			for _, m := range n.member.Members() {
				if m.ID == owner {
					all = wire.Further(all, m.Following)
				}
			}
		}
	}
	return all
}

// ownFollowing is following of the shards that this process owns.
func (n *node) ownFollowing() (all *wire.Following) {
	for i, s := range n.shards {
		if n.owns(i) {
			all = wire.Further(all, s.Following())
		}
	}
	return all
}

// stale is why reads are refused: they are further behind the first region than may be.
func (n *node) stale(f *wire.Following) error {
	if f == nil || n.maxStaleness == 0 {
		return nil
	}
	if d, ok := f.Staleness(time.Now()); !ok || d > n.maxStaleness {
		return fmt.Errorf("reads answer 503, as they may be %s behind the first region at most (--max-staleness): this "+
			"region %s", n.maxStaleness, f)
	}
	return nil
}

// refused is why this process must not answer reads; nil if it may.
func (n *node) refused() error {
	if err := n.redis.refused(); err != nil {
		return err
	}
	if n.maxStaleness == 0 {
		return nil
	}
	return n.stale(n.following())
}

var (
	followsNow = prometheus.NewDesc("lapse_follower_behind_messages", "Messages of the first region's log that "+
		"this region has not applied, as far as is known. Absent in the first region.", nil, nil)
	followsSeconds = prometheus.NewDesc("lapse_follower_staleness_seconds", "For how long what this region has may "+
		"differ from what the first region has. Absent in the first region.", nil, nil)
	followsLink = prometheus.NewDesc("lapse_follower_link_up", "1 while the first region answers. Absent in the "+
		"first region.", nil, nil)
)

// collectFollowing writes the metrics of a region that follows another one.
func (n *node) collectFollowing(c chan<- prometheus.Metric) {
	f := n.following()
	if f == nil {
		return
	}
	up := 1.0
	if f.Down != 0 {
		up = 0
	}
	c <- prometheus.MustNewConstMetric(followsNow, prometheus.GaugeValue, float64(f.Behind))
	c <- prometheus.MustNewConstMetric(followsLink, prometheus.GaugeValue, up)
	if d, ok := f.Staleness(time.Now()); ok {
		c <- prometheus.MustNewConstMetric(followsSeconds, prometheus.GaugeValue, d.Seconds())
	}
}

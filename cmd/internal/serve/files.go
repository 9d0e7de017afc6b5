package serve

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	leastFiles = 1024
	mostFiles  = 1 << 16

	idleEvery = 250 * time.Millisecond // how often the embedded NATS server is asked whether it is nearly full
)

// openFiles is how many files the process may have open.
func (o Options) openFiles() int { return cmp.Or(o.files, openFiles()) }

// shares divides the files that the process may have open. The store of an embedded NATS server keeps half of them:
// a stream that cannot open a file refuses writes until a restart. A quarter each is for the connections
// of HTTP, and of the embedded NATS server; without that one, half is for HTTP.
func shares(files int, embedded bool) (http, nats int) {
	if embedded {
		return files / 4, files / 4
	}
	return files / 2, 0
}

// natsClients keeps room for new connections to the embedded NATS server. It is a [prometheus.Collector] of how many
// there are.
type natsClients struct {
	srv    *server.Server
	most   int
	closed prometheus.Counter
	open   *prometheus.Desc
}

func newNATSClients(srv *server.Server, most int) *natsClients {
	return &natsClients{
		srv: srv, most: most,
		closed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "lapse", Name: "nats_connections_closed_total",
			Help: "Connections to the embedded NATS server that were closed to make room, those first that had done nothing " +
				"for the longest time.",
		}),
		open: prometheus.NewDesc("lapse_nats_connections", "Connections to the embedded NATS server, with those of lapse "+
			"itself.", nil, nil),
	}
}

// Run closes connections while less than an eighth of them is free, until ctx is done.
func (c *natsClients) Run(ctx context.Context) {
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.makeRoom()
	}
}

// makeRoom closes the connections that did nothing for the longest time, if less than an eighth is free.
// First come those that never did anything, then those without a subscription.
func (c *natsClients) makeRoom() {
	room := c.most - c.most/8
	over := c.srv.NumClients() - room
	if over <= 0 {
		return
	}
	all, err := c.srv.Connz(&server.ConnzOptions{Limit: 2 * c.most})
	if err != nil {
		return // the server is stopping
	}
	// the others are of this process
	remote := slices.DeleteFunc(all.Conns, func(i *server.ConnInfo) bool { return i.Port == 0 })
	used := func(i *server.ConnInfo) int {
		switch {
		case i.InMsgs == 0 && i.NumSubs == 0:
			return 0
		case i.NumSubs == 0:
			return 1
		}
		return 2
	}
	slices.SortFunc(remote, func(a, b *server.ConnInfo) int {
		return cmp.Or(cmp.Compare(used(a), used(b)), a.LastActivity.Compare(b.LastActivity))
	})
	for _, i := range remote[:min(over, len(remote))] {
		if c.srv.DisconnectClientByID(i.Cid) == nil {
			c.closed.Inc()
		}
	}
}

// Describe implements [prometheus.Collector].
func (c *natsClients) Describe(to chan<- *prometheus.Desc) { c.closed.Describe(to); to <- c.open }

// Collect implements [prometheus.Collector].
func (c *natsClients) Collect(to chan<- prometheus.Metric) {
	c.closed.Collect(to)
	to <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(c.srv.NumClients()))
}

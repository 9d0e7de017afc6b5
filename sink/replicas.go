package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

const (
	timeout    = 500 * time.Millisecond // of a script on a replica
	roundTrips = 4                      // under way to one replica, as to the master
	tries      = 2                      // on one replica that is behind: mostly by less than a round trip
	manyBehind = 8                      // reads, one after the other, after which the replica rests

	restBehind = 250 * time.Millisecond
	restFailed = time.Second
	patience   = 500 * time.Millisecond // with a replica that is behind, of a read that needs that one
	againAfter = 5 * time.Millisecond

	reloadEvery = time.Second
)

// master is the server of a read that only the master may answer.
const master = "master"

// errBehind: the replica that the read needs does not answer, or is behind its master.
var errBehind = fmt.Errorf("%w: the replica of Redis from which the list is read does not answer, or is behind its master: try again, or begin the list anew", layout.ErrUnavailable)

// replicaSet runs scripts on replicas, and returns what the master would have answered. It is safe
// for concurrent use. A nil one has no replicas.
//
// A replica may be behind its master, and it may have another clock. So [replicaSet.Run] first
// asks the master how far the partition is, and what time it is: the lead. It then runs the
// script on a replica, and takes the reply only if the replica is not behind the lead. The
// master's clock judges the documents. Reads that begin while the master is being asked share
// the next question. So a read from a replica is as fresh as one from the master:
//
//   - L1: it has every commit that took effect on the master before the read began.
//   - L2: its documents are judged by an instant that the master's clock showed, or that was
//     committed, after the read began. No clock of a replica counts.
//
// In return the master has to answer: while it does not, nobody can tell what is the newest.
//
// A replica that does not answer, or that is behind again and again, rests for a while. A
// caller that gets no reply asks the master.
type replicaSet struct {
	client *redis.ClusterClient
	leads  func(key string) *leads

	mu       sync.Mutex
	nodes    map[*redis.Client]*node
	reloaded time.Time

	answered, behind, failed atomic.Uint64
}

// node is one replica.
type node struct {
	runner *layout.Runner

	// The rest is guarded by Replicas.mu.
	server string    // the run id of its process; "" if it is not known
	behind int       // reads that found it behind, one after the other
	failed bool      // it did not answer the last read
	rests  time.Time // until then
}

// newReplicas makes the replicas of a client's slots; nil without a client. master runs scripts on their
// masters.
func newReplicas(client *redis.ClusterClient, master *layout.Runner) *replicaSet {
	if client == nil {
		return nil
	}
	return &replicaSet{client: client, leads: newLeads(master), nodes: make(map[*redis.Client]*node)}
}

// Counts returns how many scripts replicas have answered, and how many the master had to answer
// because a replica was behind, or because none answered.
func (r *replicaSet) Counts() (answered, behind, failed uint64) {
	if r == nil {
		return 0, 0, 0
	}
	return r.answered.Load(), r.behind.Load(), r.failed.Load()
}

// Run runs a script whose reply begins with a head, and whose first two keys are those of the
// state and the configurations. The clock in the head that it returns is the master's. It
// returns no reply if the caller has to ask the master. server is "" for any replica, or
// [master], or the run id of the server that has to answer; then the error may be a
// [layout.ErrUnavailable].
func (r *replicaSet) Run(ctx context.Context, server string, script *redis.Script, keys []string, args []any) (layout.Reply, layout.Head, error) {
	if r == nil || server == master {
		return nil, layout.Head{}, nil
	}
	var n *node
	if server == "" {
		behind := false
		if n, behind = r.pick(ctx, keys[0]); n == nil {
			if behind {
				r.behind.Add(1)
			} else {
				r.failed.Add(1)
				r.reload(ctx)
			}
			return nil, layout.Head{}, nil
		}
	}
	lead, err := r.leads(keys[0]).get(ctx, keys[:2])
	if err != nil || !lead.Initialised || lead.Rebuild != "" {
		return nil, layout.Head{}, err // the master knows why it must not be read
	}
	if server != "" {
		return r.runOn(ctx, server, lead, script, keys, args)
	}
	for range tries {
		reply, head, err := r.try(ctx, n, script, keys, args)
		if err != nil {
			r.failed.Add(1)
			return nil, layout.Head{}, ctx.Err()
		}
		if fresh(head, lead) {
			head.Clock = lead.Clock
			r.answered.Add(1)
			r.note(n, true)
			return reply, head, nil
		}
	}
	r.behind.Add(1)
	r.note(n, false)
	return nil, layout.Head{}, nil
}

// runOn is Run on the server with a run id. It waits a little for a replica that is behind.
func (r *replicaSet) runOn(ctx context.Context, server string, lead layout.Head, script *redis.Script, keys []string, args []any) (layout.Reply, layout.Head, error) {
	n, err := r.named(ctx, server)
	if n == nil {
		return nil, layout.Head{}, err // if it has ended, the master answers that
	}
	for began := time.Now(); time.Since(began) < patience; {
		reply, head, err := r.try(ctx, n, script, keys, args)
		if err != nil {
			break
		}
		if fresh(head, lead) {
			head.Clock = lead.Clock
			r.answered.Add(1)
			return reply, head, nil
		}
		select {
		case <-ctx.Done():
			return nil, layout.Head{}, ctx.Err()
		case <-time.After(againAfter):
		}
	}
	r.behind.Add(1)
	return nil, layout.Head{}, errBehind
}

// try runs a script on a replica.
func (r *replicaSet) try(ctx context.Context, n *node, script *redis.Script, keys []string, args []any) (layout.Reply, layout.Head, error) {
	trying, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := n.runner.Run(trying, script, keys, args...)
	if err != nil && ctx.Err() == nil {
		r.rest(n, err)
		r.reload(ctx)
	}
	return reply, reply.Head(0), err
}

// pick returns a replica that has the key; nil if there is none, or all rest. behind reports
// that one rests because it was behind.
func (r *replicaSet) pick(ctx context.Context, key string) (n *node, behind bool) {
	for range 3 {
		client, err := r.client.SlaveForKey(ctx, key)
		if err != nil {
			return nil, behind
		}
		if master, err := r.client.MasterForKey(ctx, key); err != nil || master == client {
			return nil, behind
		}
		n := r.node(client)
		wakes, failed := r.wakes(n)
		if wakes {
			return n, false
		}
		behind = behind || !failed
	}
	return nil, behind
}

// wakes reports whether a replica does not rest, and whether it did not answer. Of the reads
// that come after the rest of one that did not answer, only the first tries whether it does.
func (r *replicaSet) wakes(n *node) (wakes, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(n.rests) {
		return false, n.failed
	}
	if n.failed {
		n.rests = now.Add(restFailed)
	}
	return true, n.failed
}

// reload finds the replicas anew, now and then: Sentinels do not tell of a replica that comes
// back.
func (r *replicaSet) reload(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.reloaded) > reloadEvery {
		r.reloaded = time.Now()
		r.client.ReloadState(ctx)
	}
}

// rest lets a replica rest that did not answer.
func (r *replicaSet) rest(n *node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.failed, n.rests = true, time.Now().Add(restFailed)
	if errors.Is(err, redis.ErrClosed) { // go-redis has dropped it
		maps.DeleteFunc(r.nodes, func(_ *redis.Client, other *node) bool { return other == n })
	}
}

// note notes whether a replica that answered was fresh.
func (r *replicaSet) note(n *node, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.behind++
	if fresh {
		n.behind = 0
	}
	if n.failed {
		n.failed, n.rests = false, time.Time{}
	}
	if n.behind >= manyBehind {
		n.rests = time.Now().Add(restBehind)
	}
}

// mostNodes limits how many clients are remembered: go-redis makes new ones when the cluster
// changes.
const mostNodes = 100

func (r *replicaSet) node(client *redis.Client) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[client]
	if n == nil {
		if len(r.nodes) == mostNodes {
			clear(r.nodes)
		}
		n = &node{runner: layout.NewReplicaRunner(client, roundTrips)}
		r.nodes[client] = n
	}
	return n
}

// named returns the server with a run id, which may have become a master since. It returns nil
// if none has it, and errBehind if one that did not answer may have it.
func (r *replicaSet) named(ctx context.Context, server string) (*node, error) {
	if n := r.known(server); n != nil {
		return n, nil
	}
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.client.ForEachShard(asking, func(ctx context.Context, client *redis.Client) error {
		info, err := client.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		_, id, _ := strings.Cut(info, "run_id:")
		id, _, _ = strings.Cut(id, "\r\n")
		n := r.node(client)
		r.mu.Lock()
		n.server = id
		r.mu.Unlock()
		return nil
	})
	n := r.known(server)
	if n == nil && err != nil {
		return nil, errBehind
	}
	return n, nil
}

func (r *replicaSet) known(server string) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		if n.server == server {
			return n
		}
	}
	return nil
}

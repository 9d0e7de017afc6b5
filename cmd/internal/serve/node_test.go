package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink/wire"
)

// applies is an applier that is so far.
type applies struct {
	progress  processor.Progress
	applying  error
	runs      func() error
	following *wire.Following
}

func (a applies) RunAs(context.Context, processor.Lease) error { return a.runs() }
func (a applies) Progress() processor.Progress                 { return a.progress }
func (a applies) Retention() *wire.Retention                   { return nil }
func (a applies) Applying() error                              { return a.applying }
func (a applies) TakenOver() bool                              { return a.applying == nil }
func (a applies) Following() *wire.Following                   { return a.following }

// statuses are the shards as a member sees them.
type statuses []lease.Status

func (s statuses) Status(shard int) lease.Status { return s[shard] }
func (s statuses) Members() []wire.Member        { return nil }
func (s statuses) Problem() error                { return nil }
func (s statuses) Crossing() string              { return "" }

func newTestNode(see statuses, apply ...applies) *node {
	n := &node{member: see, board: health.New(slog.New(slog.DiscardHandler)), redis: &sameRedis{decided: true}}
	for i := range see {
		board := n.board
		if len(see) > 1 {
			board = board.Of(i)
		}
		n.shards = append(n.shards, shard{apply[min(i, len(apply)-1)], board})
	}
	return n
}

var (
	mine    = lease.Status{Role: lease.Owner, Taken: 3}
	another = lease.Status{Role: lease.Standby, Lease: wire.Lease{Owner: "b", Name: "host/2", Since: 1769860800000}}
	nobody  = lease.Status{Role: lease.Standby}
	unknown = lease.Status{Role: lease.Starting}
)

func TestReady(t *testing.T) {
	slow := applies{applying: errors.New("42 messages of the log are not applied yet")}
	for name, tt := range map[string]struct {
		see   statuses
		apply applies
		role  string
		err   string
	}{
		"one shard, owner": {see: statuses{mine}, role: "ready"},
		"one shard, standby": {see: statuses{another}, role: "ready: standing by, ready to take over; the owner is " +
			"host/2 since 2026-01-31T12:00:00.000Z"},
		"one shard, nobody": {see: statuses{nobody}, err: "no process owns the shard at this moment"},
		"one shard, starting": {see: statuses{unknown}, err: "this process has not found out yet which process owns the " +
			"shard"},
		"one shard, behind": {see: statuses{mine}, apply: slow, err: "42 messages of the log are not applied yet"},
		"owner of some": {see: statuses{mine, another, mine}, role: "ready: owns shards 0, 2; the owner of shard 1 " +
			"is host/2 since 2026-01-31T12:00:00.000Z"},
		"owner of one": {see: statuses{another, mine}, role: "ready: owns shard 1; the owner of shard 0 is host/2 " +
			"since 2026-01-31T12:00:00.000Z"},
		"owner of all": {see: statuses{mine, mine}, role: "ready: owns shards 0, 1"},
		"owner of none": {see: statuses{another, another}, role: "ready: standing by, ready to take over; the " +
			"owner of shard 0 is host/2 since 2026-01-31T12:00:00.000Z; the owner of shard 1 is host/2 since " +
			"2026-01-31T12:00:00.000Z"},
		"one without owner": {see: statuses{mine, nobody}, err: "no process owns shard 1 at this moment"},
		"most without owner": {see: statuses{nobody, nobody, nobody, mine, nobody}, err: "no process owns shards 0 to " +
			"2, 4 at this moment"},
		"most unknown": {see: statuses{unknown, unknown, mine}, err: "this process has not found out yet which " +
			"process owns shards 0, 1"},
		"own ones are behind": {see: statuses{mine, mine, another}, apply: slow, err: "shards 0, 1: 42 messages of the " +
			"log are not applied yet"},
		"own one is behind": {see: statuses{another, mine}, apply: slow, err: "shard 1: 42 messages of the log are not " +
			"applied yet"},
	} {
		t.Run(name, func(t *testing.T) {
			role, problems := newTestNode(tt.see, tt.apply).ready()
			err := problems.Err()
			if tt.err == "" && (err != nil || role != tt.role) || tt.err != "" && (err == nil || err.Error() != tt.err) {
				t.Errorf("%q, %v", role, err)
			}
		})
	}
	n := newTestNode(statuses{another, another}, applies{})
	n.shards[1].board.Set(health.Problem{Name: "Redis"}, errors.New("it does not answer"))
	if _, problems := n.ready(); problems.Error() != "shard 1: Redis: it does not answer" {
		t.Errorf("%v", problems)
	}
}

func TestDescribeHasTheProgressOfEachShard(t *testing.T) {
	first := applies{progress: processor.Progress{Applied: 5, Lag: 3, Overdue: time.Second}}
	second := applies{progress: processor.Progress{Applied: 7, Overdue: 2500 * time.Millisecond}}
	got := newTestNode(statuses{mine, another, mine}, first, second, second).describe()
	want := wire.Member{Applied: 12, LagMessages: 3, Overdue: 2.5, Shards: []wire.ShardProgress{
		{Shard: 0, Applied: 5, LagMessages: 3, Overdue: 1}, {Shard: 2, Applied: 7, Overdue: 2.5},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("several shards (-want +got):\n%s", diff)
	}
	got = newTestNode(statuses{mine}, first).describe()
	if diff := cmp.Diff(wire.Member{Applied: 5, LagMessages: 3, Overdue: 1}, got); diff != "" {
		t.Errorf("one shard (-want +got):\n%s", diff)
	}
}

func TestMetricsOfShards(t *testing.T) {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(newTestNode(statuses{mine, another}, applies{}))
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"lapse_ready": 1, "lapse_members": 0,
		"lapse_shard_owner shard=0": 1, "lapse_shard_owner shard=1": 0,
		"lapse_shard_taken_total shard=0": 3, "lapse_shard_taken_total shard=1": 0,
		"lapse_shard_lost_total shard=0": 0, "lapse_shard_lost_total shard=1": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestG12_ARefusalIsTriedAgain: a shard that is refused is a problem until it can be taken over. The owner
// tries again, and keeps the shard unless another member was started to begin it anew.
func TestG12_ARefusalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, tries := time.Now(), 0
		refusal := &processor.Refusal{Kind: processor.ErrStreamGone, Reason: errors.New("stream LAPSE_LOG")}
		n := newTestNode(statuses{mine}, applies{})
		n.shards[0].applier = applies{runs: func() error {
			if err := n.board.Err(); (err != nil) != (tries > 0) || err != nil && err.Error() != "refused: "+refusal.Error() {
				t.Errorf("before attempt %d: %v", tries, err)
			}
			if tries++; tries == 3 {
				cancel()
				return nil
			}
			return refusal
		}}
		if err := n.applyShard(ctx, 0, nil); err != nil || tries != 3 || time.Since(began) != 2*refusedAgain ||
			n.board.Err() != nil {
			t.Errorf("%v after %d attempts in %s; %v", err, tries, time.Since(began), n.board.Err())
		}
	})
}

// Fails if a process ends because a server failed while it handed a shard over, or goes on
// without a connection.
func TestEndsOfApply(t *testing.T) {
	failed := errors.New("i/o timeout")
	for name, tt := range map[string]struct {
		err   error
		ended bool // the shard is handed over or lost, or the process stops
		want  error
	}{
		"told to end":             {nil, true, nil},
		"a failure while it ends": {failed, true, nil},
		"no owner any more":       {notOwner(fmt.Errorf("%w to another", lease.ErrLost)), false, nil},
		"a refusal while it ends": {&processor.Refusal{Kind: processor.ErrStreamGone,
			Reason: errors.New("stream LAPSE_LOG")}, true, nil},
		"a closed connection": {processor.ErrConnectionClosed, false, processor.ErrConnectionClosed},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tries := 0
			n := newTestNode(statuses{mine}, applies{runs: func() error {
				if tries++; tt.ended || tries > 1 {
					cancel()
				}
				return tt.err
			}})
			if err := n.applyShard(ctx, 0, nil); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || tries > 1 {
				t.Errorf("%v after %d attempts", err, tries)
			}
		})
	}
}

// TestNotOwner: the processor learns that the lease is lost, and of other errors as they are.
func TestNotOwner(t *testing.T) {
	failed := errors.New("i/o timeout")
	if err := notOwner(lease.ErrLost); !errors.Is(err, processor.ErrNotOwner) || !errors.Is(err, lease.ErrLost) {
		t.Errorf("a lost lease: %v", err)
	}
	if notOwner(failed) != failed || notOwner(nil) != nil {
		t.Errorf("%v, %v", notOwner(failed), notOwner(nil))
	}
}

// TestAwaitsPromotion: what a process lacks because a promotion has begun is told apart from what else it lacks.
func TestAwaitsPromotion(t *testing.T) {
	begun := health.Problem{Name: problemTakeover.Name, Reason: fmt.Errorf("%w by a test", processor.ErrPromotion)}
	behind := health.Problem{Reason: errors.New("the log has not been applied yet")}
	for _, row := range []struct {
		problems health.Problems
		want     bool
	}{
		{health.Problems{begun, behind}, true},
		{health.Problems{begun}, true},
		{health.Problems{behind}, false},
		{health.Problems{begun, {Name: "Redis", Reason: errors.New("refused")}}, false},
		{nil, false},
	} {
		if got := awaitsPromotion(row.problems); got != row.want {
			t.Errorf("%v: %t", row.problems, got)
		}
	}
}

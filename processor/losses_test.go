package processor

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// The streams that a NATS server may lose the end of, each without the others.
var (
	theLog         = prefix.LogStream()
	theEvents      = prefix.EventsStream()
	theCheckpoints = "KV_" + prefix.CheckpointBucket()
	theSnapshots   = prefix.SnapshotStream()
)

// moment is what the servers have at an instant.
type moment struct {
	streams string // a copy of them
	redis   dump
}

// lossRig is a rig whose NATS server loses ends of streams.
type lossRig struct {
	*rig
	server *natstest.Server
	dumps  bool // Redis knows DUMP
	round  int  // of live
}

func newLossRig(t *testing.T, b backend, streams string) *lossRig {
	t.Helper()
	server := natstest.NewServer(t, streams)
	server.Start()
	return &lossRig{rig: newRigAt(t, server.URL, b, Options{}), server: server, dumps: b.name == "redis"}
}

// noPurge keeps the log whole, although there are snapshots.
func noPurge(here crash.Point) error {
	if here == crash.BeforePurge {
		return errFail
	}
	return nil
}

// live writes documents, most of which expire at once, and messages that are rejected, and waits for
// all that follows.
func (r *lossRig) live(p *process) {
	r.t.Helper()
	r.round++
	r.sendAsync(prefix.Config("c"), `{"defaultTtl":-1}`)
	for i := range 20 {
		id := fmt.Sprintf("%d.%d", r.round, i)
		r.sendAsync(prefix.Write(wire.Upsert, "c", id), `{"ttl":1}`)
		r.sendAsync(prefix.Write(wire.Upsert, "c", "kept"+id), `{"n":1}`)
		r.sendAsync(prefix.Write("frob", "c", id), ``)
	}
	last := r.put("c", "last", `{"ttl":1}`)
	r.expires(p, "c", last)
	r.all(p)
}

// lives starts a process, with which clients live.
func (r *lossRig) lives(fault func(crash.Point) error) *process {
	r.t.Helper()
	p := r.start(fault)
	p.ready(r.t)
	r.live(p)
	return p
}

// past is what the servers had when a process had lived, perhaps with snapshots, and had ended.
func (r *lossRig) past(fault func(crash.Point) error, snapshots bool) moment {
	r.t.Helper()
	p := r.lives(fault)
	if snapshots {
		r.snapshot(p)
	}
	p.stop(r.t)
	return r.now()
}

// all waits until all that follows from the log has come about, and its checkpoints are stored.
func (r *lossRig) all(p *process) {
	r.t.Helper()
	p.ready(r.t)
	r.caughtUp(p)
	r.reaped("c")
	r.caughtUp(p)
	comes(r.t, "the checkpoints are stored",
		func() error { return p.current().checkpointer.RunOnce(context.Background()) })
}

// snapshot waits until each shard has a snapshot more.
func (r *lossRig) snapshot(p *process) {
	r.t.Helper()
	newest := func() uint64 {
		all, err := p.session.keeper.Desk.Store().Recorded(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		if len(all) == 0 {
			return 0
		}
		return all[0].Generation
	}
	before := newest()
	eventually(r.t, "there are snapshots", func() bool {
		r.askSnapshot()
		return newest() > before
	})
}

// now is what the servers have. No process runs.
func (r *lossRig) now() moment {
	r.t.Helper()
	var m moment
	if r.dumps {
		m.redis = r.dump()
	}
	r.server.Kill()
	m.streams = r.server.Copy()
	r.server.Start()
	r.connected()
	return m
}

// putBack lets the NATS server die, and puts streams back to what they were.
func (r *lossRig) putBack(m moment, streams ...string) {
	r.t.Helper()
	r.server.Kill()
	r.server.PutBack(m.streams, streams...)
	r.server.Start()
	r.connected()
}

func (r *lossRig) connected() {
	r.t.Helper()
	eventually(r.t, "NATS answers", func() bool {
		// a connection that is just lost brings no answer
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := r.js.AccountInfo(ctx)
		return err == nil
	})
}

// TestG12_Matrix: log, events, checkpoints and snapshots are each as they are, or as they were some time
// ago; Redis too, or empty. Where the log is whole, lapse goes on, and each event is there once. Where
// the log has lost messages that anything else remembers, lapse refuses it by name, also if clients
// have written again, and touches nothing.
//
// It fails if lapse takes what a server has for the whole without a comparison.
func TestG12_Matrix(t *testing.T) {
	t.Parallel()
	r := newLossRig(t, backends[1], "")
	old := r.past(noPurge, true)
	p := r.lives(noPurge)
	r.snapshot(p)
	r.put("c", "after", `{"n":1}`)
	r.all(p)
	p.stop(t)
	now := r.now()

	streams := []string{theLog, theEvents, theCheckpoints, theSnapshots}
	for back := range 1 << len(streams) {
		for i, redis := range []string{"kept", "old", "empty"} {
			if quick && (bits.OnesCount(uint(back))+i)%2 == 1 {
				continue
			}
			for _, written := range []bool{false, true} {
				var which []string
				for at, s := range streams {
					if back&(1<<at) != 0 {
						which = append(which, s)
					}
				}
				logBack := back&1 != 0
				if written && !logBack {
					continue
				}
				name := fmt.Sprintf("%s back, Redis %s, written %v", strings.Join(which, " "), redis, written)
				remembered := back&2 == 0 || back&4 == 0 || redis == "kept"
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := newLossRig(t, backends[1], now.streams)
					r.putBack(old, which...)
					switch redis {
					case "kept":
						r.restore(now.redis)
					case "old":
						r.restore(old.redis)
					}
					if written {
						for i := range 300 {
							r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("again", i)), `{"n":1}`)
						}
						r.flush()
					}
					before, p := r.dump(), r.start(noPurge)
					if !logBack || !remembered {
						r.all(p)
						r.agrees()
						p.stop(t)
						return
					}
					want := ErrLogBehind
					if written {
						want = ErrLogChanged
					}
					p.ends(t, want)
					if !maps.Equal(r.dump(), before) {
						t.Error("the refusal has changed Redis")
					}
				})
			}
		}
	}
}

// TestG12_EventsLost: the stream of events loses its end while lapse runs, or while it does not, with Redis
// kept or empty. The lost events are published again: with snapshots, or from the beginning of the log.
// It fails if what the checkpoint names is taken for stored.
func TestG12_EventsLost(t *testing.T) {
	t.Parallel()
	for i, running := range []bool{true, false} {
		for j, snapshots := range []bool{true, false} {
			for _, wiped := range []bool{false, true} {
				t.Run(fmt.Sprintf("running %v, snapshots %v, wiped %v", running, snapshots, wiped), func(t *testing.T) {
					t.Parallel()
					r := newLossRig(t, backends[(i+j)%2], "")
					was := r.past(nil, snapshots)
					p := r.lives(nil)
					lost := r.storedOf("c")
					if !running {
						p.stop(t)
					}
					r.putBack(was, theEvents)
					if wiped {
						r.wipe()
					}
					if !running {
						p = r.start(nil)
					}
					eventually(t, "the events are published again", func() bool { return r.storedOf("c") >= lost })
					r.live(p)
					r.agrees()
					p.stop(t)
					r.agrees()
				})
			}
		}
	}
}

// TestG12_EventsLostDuringATakeover: the stream of events loses outputs that an owner has just read there,
// or has just published and not committed. It fails if the owner takes them for stored afterwards.
func TestG12_EventsLostDuringATakeover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"read", "published"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newLossRig(t, backends[0], "")
			was := r.past(nil, false)
			reject := func() {
				for i := range 20 {
					r.sendAsync(prefix.Write("frob", "c", fmt.Sprint(i)), ``)
				}
				r.flush()
			}
			held, release := make(chan struct{}), make(chan struct{})
			var holding sync.Once
			hold := func() {
				holding.Do(func() { close(held) })
				<-release
			}
			outputs := func() int { return len(r.outputs()) }
			before := outputs()
			var p *process
			if how == "read" {
				// The outputs are published, and not committed; the next owner reads them.
				p = r.start(func(here crash.Point) error {
					if here == crash.BeforeCommit && outputs() > before {
						return errDead
					}
					return nil
				})
				reject()
				<-p.done
				p = r.start(func(here crash.Point) error {
					if here == crash.AfterRead {
						hold()
					}
					return nil
				})
			} else {
				var reading sync.Mutex // nobody reads while the server is killed
				published := func() bool {
					reading.Lock()
					defer reading.Unlock()
					select {
					case <-held:
						return true
					default:
					}
					if outputs() <= before {
						return false
					}
					holding.Do(func() { close(held) })
					return true
				}
				p = r.start(func(here crash.Point) error {
					if here != crash.BeforeCommit || !published() {
						return nil
					}
					select {
					case <-release:
						return nil
					default:
						<-release
						return errFail
					}
				})
				reject()
			}
			<-held
			r.putBack(was, theEvents)
			close(release)
			eventually(t, "the rejections are published again", func() bool { return outputs() >= before+20 })
			r.all(p)
			r.agrees()
			p.stop(t)
		})
	}
}

// TestG12_CrashAtEveryPoint: the stream of events has lost its end, or a part of it, and processes die or
// fail at every named point while the lost events are made again. It fails if a rebuild that was
// interrupted goes on without some of them.
func TestG12_CrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	all := append(slices.Clone(points), loadPoints...)
	for i, at := range all {
		if at == crash.AfterControl {
			continue // nothing is configured while events are made again
		}
		for n, how := range []struct {
			err error
			nth int
		}{{errDead, 1}, {errFail, 2}} {
			if !chosen(i, n) || quick && i%2 == 1 { // TestG1_G3_CrashAtEveryPoint passes each of these points too
				continue
			}
			if slices.Contains(loadPoints, at) || slices.Contains(takeoverPoints, at) {
				how.nth = 1 // a process takes over once, and loads a small snapshot in one part
			}
			t.Run(fmt.Sprintf("%s/%v", at, how.err), func(t *testing.T) {
				t.Parallel()
				r := newLossRig(t, backends[(i+n)%2], "")
				was := r.past(nil, n == 0 || slices.Contains(loadPoints, at))
				p := r.lives(nil)
				p.stop(t)
				r.putBack(was, theEvents)
				s := &survivor{r: r.rig, at: at, nth: how.nth, err: how.err, times: 3}
				s.settles()
				eventually(t, "a fault has happened there", func() bool {
					if s.alive() && !s.hit.Load() { // so that there is something to do, such as a checkpoint
						r.send(prefix.Write(wire.Upsert, "c", "more"), `{"n":1}`)
					}
					return s.hit.Load()
				})
				s.p.cancel()
				<-s.p.done
				p = r.start(nil)
				r.live(p)
				r.agrees()
				p.stop(t)
			})
		}
	}
}

func (r *rig) eventsInfo() *jetstream.StreamInfo {
	r.t.Helper()
	s, err := r.js.Stream(context.Background(), theEvents)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo()
}

// TestG12_EventsPurged: a person purges the stream of events while lapse runs. What was removed does not
// come again, and what comes later does, once: also after Redis was wiped, and after a restart.
func TestG12_EventsPurged(t *testing.T) {
	t.Parallel()
	for i, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("all of it %v", whole), func(t *testing.T) {
			t.Parallel()
			r := newLossRig(t, backends[i], "")
			p := r.lives(nil)
			s, err := r.js.Stream(t.Context(), theEvents)
			if err == nil && whole {
				err = s.Purge(t.Context())
			} else if err == nil {
				err = s.Purge(t.Context(), jetstream.WithPurgeSubject("lapse.expired.>"))
			}
			if err != nil {
				t.Fatal(err)
			}
			r.wipe()
			for n := range 3 {
				r.live(p)
				if got, want := r.storedOf("c"), 21*(n+1); got != want {
					t.Errorf("%d events since the purge, want %d", got, want)
				}
				if n == 0 {
					r.wipe()
				} else {
					p.stop(t)
					p = r.start(nil)
				}
			}
			r.all(p)
			p.stop(t)
		})
	}
}

//go:build held

package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// heldLog is a log of a prefix of its own.
type heldLog struct {
	*Log
	t  *testing.T
	js jetstream.JetStream
	o  Options
}

// newLog provisions the streams of a prefix, whose log has some messages.
func newLog(t *testing.T, js jetstream.JetStream, prefix string, messages int) *heldLog {
	t.Helper()
	return newReplicatedLog(t, js, prefix, 1, messages)
}

// newReplicatedLog is newLog with so many replicas.
func newReplicatedLog(t *testing.T, js jetstream.JetStream, prefix string, replicas, messages int) *heldLog {
	t.Helper()
	o := options()
	o.Prefix, o.Objects, o.Replicas = wire.Prefix(prefix), false, replicas
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	link, stop := WatchLink(js.Conn())
	t.Cleanup(stop)
	l := &heldLog{NewLog(s, link), t, js, o}
	l.append(messages)
	return l
}

// append appends messages, each with a subject of its own: its sequence.
func (l *heldLog) append(n int) {
	l.t.Helper()
	for range n {
		info, err := l.Streams.Log.Info(l.t.Context())
		if err == nil {
			_, err = l.js.Publish(l.t.Context(), l.o.Prefix.Write(wire.Upsert, "c", fmt.Sprint(info.State.LastSeq+1)), nil)
		}
		if err != nil {
			l.t.Error(err)
		}
	}
}

// lose loses messages from the middle of the log.
func (l *heldLog) lose(sequences ...int) {
	l.t.Helper()
	for _, seq := range sequences {
		if err := l.Streams.Log.Purge(l.t.Context(),
			jetstream.WithPurgeSubject(l.o.Prefix.Write(wire.Upsert, "c", fmt.Sprint(seq)))); err != nil {
			l.t.Error(err)
		}
	}
}

// truncate removes what comes before a sequence.
func (l *heldLog) truncate(first uint64) {
	l.t.Helper()
	if err := l.Streams.Log.Purge(l.t.Context(), jetstream.WithPurgeSequence(first)); err != nil {
		l.t.Error(err)
	}
}

// TestHeldStamp: the log has lost its end, and grows again while an owner compares the stamp of a message that it has
// seen. The owner does not take the new message for the one that it knows.
func TestHeldStamp(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/streams.Log.CheckStamp", held.Write, func(t *testing.T, during func(func())) {
		gap++
		l := newLog(t, js, fmt.Sprint("stamp", gap), 5)
		during(func() { l.append(5) })
		err := l.CheckStamp(t.Context(), store.Stamp{Seq: 8, At: 1}, "this process has read", nil)
		if !errors.Is(err, ErrLogBehind) && !errors.Is(err, ErrLogChanged) {
			t.Errorf("with a log that has lost its end it goes on: %v", err)
		}
	})
}

// appender appends a tick to a log.
type appender struct{ *heldLog }

// Barrier appends a tick.
func (a appender) Barrier(ctx context.Context) (uint64, error) {
	ack, err := a.js.Publish(ctx, a.o.log().Tick(), nil)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// TestHeldInfoUpTo: the log seems to end before what a process knows of it, and gets a message before the process
// appends its tick. The process knows of the tick, thus that the log has all that comes before it.
func TestHeldInfoUpTo(t *testing.T) {
	nc, err := nats.Connect(natstest.StartCluster(t, 3)[0], natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, runs := natstest.JetStream(t, nc), 0
	held.Each(t, "processor/internal/streams.Log.InfoUpTo", held.Write, func(t *testing.T, during func(func())) {
		runs++
		l := newReplicatedLog(t, js, fmt.Sprint("upto", runs), 3, 2)
		during(func() { l.append(1) })
		info, err := l.InfoUpTo(t.Context(), 3, appender{l})
		if err != nil {
			t.Fatal(err)
		}
		tick, err := l.Streams.Log.GetLastMsgForSubject(t.Context(), l.o.log().Tick())
		if err != nil || info.State.LastSeq != tick.Sequence {
			t.Errorf("the log is said to end at %d, and its tick is %+v, %v", info.State.LastSeq, tick, err)
		}
	})
}

// TestHeldRule: another process appends the rules of the log while a process does. The last ones are those of the
// options, and they are there once.
func TestHeldRule(t *testing.T) {
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/streams.Streams.rule", held.Takeover, func(t *testing.T,
		during func(func())) {
		runs++
		l := newLog(t, js, fmt.Sprint("rule", runs), 1)
		l.o.OpenCollections = true
		rule := func() uint64 {
			seq, err := l.Streams.Rule(context.WithoutCancel(t.Context()), js, l.o, wire.LogRulesBody{}, false)
			if err != nil {
				t.Error(err)
			}
			return seq
		}
		other := uint64(0)
		during(func() { other = rule() })
		seq := rule()
		info, err := l.Streams.Log.Info(t.Context(), jetstream.WithSubjectFilter(l.o.Prefix.Config(wire.LogRules)))
		if err != nil {
			t.Fatal(err)
		}
		if n := info.State.Subjects[l.o.Prefix.Config(wire.LogRules)]; n != 1 || other != 0 && other != seq {
			t.Errorf("the rules are there %d times, at %d, and those of the other process at %d", n, seq, other)
		}
	})
}

// TestHeldGaps: the log has lost messages, and more of them, or its beginning with them, while a process asks which. It
// does not go on as if nothing was lost: it names the gap, or says that the log does not reach back (G12).
func TestHeldGaps(t *testing.T) {
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	for _, operation := range []string{"CheckGaps", "TellNeighbours", "CheckJump"} {
		for name, happen := range map[string]func(*heldLog){
			"a neighbour is lost": func(l *heldLog) { l.lose(2, 8) },
			"it is truncated":     func(l *heldLog) { l.truncate(9) },
			"it grows":            func(l *heldLog) { l.append(3) },
		} {
			t.Run(operation+" "+name, func(t *testing.T) {
				held.Each(t, "processor/internal/streams.Log."+operation, held.Write, func(t *testing.T, during func(func())) {
					runs++
					l := newLog(t, js, fmt.Sprint("gaps", runs), 10)
					l.lose(3, 4, 5, 6, 7)
					info, err := l.Info(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					during(func() { happen(l) })
					switch err := l.CheckJump(t.Context(), info, "server", 2, 8); {
					case errors.Is(err, ErrLogGap):
						if text := err.Error(); !strings.Contains(text, "messages are missing (sequences ") ||
							!strings.Contains(text, " to ") || AsRefusal(err).Accept != LostLogMessages {
							t.Errorf("it is named as %q", text)
						}
					case name != "it grows" && errors.Is(err, ErrLogTruncated):
					case name == "a neighbour is lost" && err != nil && strings.Contains(err.Error(), "message"):
					default:
						t.Errorf("it goes on behind messages that are lost: %v", err)
					}
				})
			})
		}
	}
}

// TestHeldConfigs: configurations are stored while a process compares those of the log with the stream that they come
// from. It does not take them for an end that was lost.
func TestHeldConfigs(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/streams.Streams.CheckConfigs", held.Write, func(t *testing.T, during func(func())) {
		gap++
		s, o := newSharded(t, js, fmt.Sprint("configs", gap))
		configure(t, js, s, o, "a", "b", "c")
		during(func() { configure(t, js, s, o, "d", "e") })
		for range 3 {
			if err := s.CheckConfigs(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestHeldLostConfigs: the stream of configurations has lost its end, and grows again while a process compares. At the
// latest when it compares once more, it refuses to go on: the logs have another configuration (G12).
func TestHeldLostConfigs(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	for _, operation := range []string{"sourced", "CheckConfigs"} {
		held.Each(t, "processor/internal/streams.Streams."+operation, held.Write, func(t *testing.T, during func(func())) {
			gap++
			s, o := newSharded(t, js, fmt.Sprint("lost", gap))
			configure(t, js, s, o, "a", "b", "c")
			was := s.Configs.CachedInfo()
			if err := js.DeleteStream(t.Context(), was.Config.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), was.Config); err != nil {
				t.Fatal(err)
			}
			publish := func(names ...string) {
				for _, name := range names {
					if _, err := js.Publish(t.Context(), o.Prefix.Config(name), []byte(`{"defaultTtl":1}`)); err != nil {
						t.Error(err)
					}
				}
			}
			publish("x")
			during(func() { publish("y", "z") })
			err := s.CheckConfigs(t.Context())
			if err == nil {
				err = s.CheckConfigs(t.Context())
			}
			if !errors.Is(err, ErrConfigsBehind) {
				t.Errorf("it goes on with other configurations: %v", err)
			}
		})
	}
}

// TestHeldLateConfigs: a leader of the stream of configurations that was just elected does not have all messages yet,
// and has them a moment later. The process does not take that for a loss.
func TestHeldLateConfigs(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	const operation = "processor/internal/streams.Streams.compareConfig"
	held.Each(t, operation, held.Restart, func(t *testing.T, during func(func())) {
		gap++
		s, o := newSharded(t, js, fmt.Sprint("late", gap))
		configure(t, js, s, o, "a", "b")
		was := s.Configs.CachedInfo()
		if err := js.DeleteStream(t.Context(), was.Config.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), was.Config); err != nil {
			t.Fatal(err)
		}
		s.Configs = replicated{s.Configs}
		apply := func() {
			for _, name := range []string{"a", "b"} {
				if _, err := js.Publish(t.Context(), o.Prefix.Config(name), []byte(`{}`)); err != nil {
					t.Error(err)
				}
			}
		}
		if during(apply); gap > 1 {
			apply() // in time
		}
		last, err := s.lastOf(t.Context(), s.Log, o.Prefix.Config("b"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.compareConfig(t.Context(), last); err != nil {
			t.Error(err)
		}
	})
}

// TestHeldForget: a process forgets a region, while another process forgets it too and a second region asks. That one
// stays.
func TestHeldForget(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/streams.Forget", held.Write, func(t *testing.T, during func(func())) {
		gap++
		o := options()
		o.Prefix = wire.Prefix(fmt.Sprint("forget", gap))
		if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: o.Prefix.MembersBucket()}); err != nil {
			t.Fatal(err)
		}
		follow := func(domain string) {
			if err := remember(context.Background(), js, o, domain); err != nil {
				t.Error(err)
			}
		}
		follow("b")
		during(func() {
			if _, err := Forget(context.Background(), js, o.Prefix, "b"); err != nil {
				t.Error(err)
			}
			follow("c")
		})
		if known, err := Forget(t.Context(), js, o.Prefix, "b"); !known || err != nil {
			t.Errorf("it was known: %t, %v", known, err)
		}
		follow("c")
		all, err := Followers(t.Context(), js, o.Prefix)
		if _, c := all["c"]; err != nil || len(all) != 1 || !c {
			t.Errorf("the followers are %v, %v", all, err)
		}
	})
}

// TestHeldReopen: another process of the region is asked to reopen it too, while one does. The region takes messages
// again, and its logs source each configuration once, also one that a client stores as soon as it can.
func TestHeldReopen(t *testing.T) {
	js, runs := natstest.Connect(t, natstest.Options{JetStream: "domain: a"}), 0
	for _, operation := range []string{"reopen", "sourcedUpTo"} {
		held.Each(t, "processor/internal/streams."+operation, held.Write, func(t *testing.T, during func(func())) {
			runs++
			s, o := newSharded(t, js, fmt.Sprint("reopen", runs))
			for o.Shard = range o.Shards {
				if _, err := Provision(t.Context(), js, o); err != nil {
					t.Fatal(err)
				}
			}
			o.Shard = 0
			configure(t, js, s, o, "a", "b")
			by, root := wire.Promotion{Domain: "b"}, s.Configs.CachedInfo()
			if reply := Answer(t.Context(), js, o, wire.RegionRequest{Supersede: &by,
				Identity: wire.Identity(root.Config.Metadata, root.Created)}); reply.Error != "" {
				t.Fatal(reply.Error)
			}
			stored := []string{"a", "b"}
			during(func() {
				if err := reopen(context.Background(), js, o, by); err != nil {
					t.Error(err)
				}
				configure(t, js, s, o, "c")
				stored = append(stored, "c")
			})
			if err := reopen(t.Context(), js, o, by); err != nil {
				t.Fatal(err)
			}
			configure(t, js, s, o, "last")
			for _, name := range append(stored, "last") {
				info, err := s.Log.Info(t.Context(), jetstream.WithSubjectFilter(o.Prefix.Config(name)))
				if n := info.State.Subjects[o.Prefix.Config(name)]; err != nil || n != 1 {
					t.Errorf("the log has the configuration %s %d times, %v", name, n, err)
				}
			}
			if _, err := js.Publish(t.Context(), o.log().Tick(), nil); err != nil {
				t.Error(err)
			}
			if err := Check(t.Context(), js, o); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHeldProvision: another process, of another shard, provisions the same prefix while a process does, and a third one
// changes a limit. All come to the same streams, and to the snapshots of which one is stored by then.
func TestHeldProvision(t *testing.T) {
	js, runs := natstest.Connect(t, natstest.Options{JetStream: "max_file_store: 3GiB"}), 0
	for _, operation := range []string{"Options.present", "Streams.provisionLog", "provisionObjects", "createEvents",
		"Provision"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "processor/internal/streams."+operation, held.Write, func(t *testing.T, during func(func())) {
				runs++
				o := options()
				o.Prefix, o.Shards = wire.Prefix(fmt.Sprint("provision", runs)), 2
				other, age := o, time.Hour
				other.Shard, other.EventsMaxAge = 1, &age
				provision := func(o Options) *Streams {
					s, err := Provision(context.Background(), js, o)
					if err != nil {
						t.Errorf("shard %d: %v", o.Shard, err)
					}
					return s
				}
				t.Cleanup(func() {
					for name := range js.StreamNames(context.Background()).Name() {
						if err := js.DeleteStream(context.Background(), name); err != nil {
							t.Error(err)
						}
					}
				})
				during(func() {
					if s := provision(other); s != nil {
						put(t, s.Snapshots, before, "1.1.0")
					}
				})
				s := provision(o)
				if s == nil {
					return
				}
				again := provision(other)
				if again == nil || !s.Sources(again.Configs.CachedInfo()) || !again.Sources(s.Configs.CachedInfo()) {
					t.Error("the logs source different streams")
				}
				if c := again.Events.CachedInfo().Config; c.MaxAge != age {
					t.Errorf("the events are kept for %s", c.MaxAge)
				}
				if got, err := s.Snapshots.Get(t.Context(), "1.1.0"); err != nil || got != nil && string(got) != string(before) {
					t.Errorf("the snapshot is %q, %v", got, err)
				}
			})
		})
	}
}

// TestHeldReaders: while a process keeps the mirror of an account, another process does the same, the stream of events
// gets messages and loses its beginning, and its limits are changed. The mirror comes to have what the stream has, and
// nobody is told to remove it.
func TestHeldReaders(t *testing.T) {
	for _, operation := range []string{"Keep", "create", "feed", "compare"} {
		t.Run(operation, func(t *testing.T) {
			heldReaders(t, operation)
		})
	}
}

func heldReaders(t *testing.T, operation string) {
	held.Each(t, "processor/internal/streams.Readers."+operation, held.Write, func(t *testing.T, during func(func())) {
		js := natstest.Connect(t, natstest.Options{Config: readersAccounts})
		o := options()
		s, err := Provision(t.Context(), js, o)
		if err != nil {
			t.Fatal(err)
		}
		readers := func() *Readers {
			r, err := NewReaders(js, o.Prefix, "READERS", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		publish := func(n int) {
			for i := range n {
				if _, err := js.Publish(context.Background(), o.Prefix.Expired("orders", fmt.Sprint(i)), []byte("{}")); err != nil {
					t.Error(err)
				}
			}
		}
		equal := func() {
			t.Helper()
			untilMirror(t, "the mirror has the same messages", func(ctx context.Context) error {
				mirror, err := readers().there.Stream(ctx, o.Prefix.EventsStream())
				if err != nil {
					return err
				}
				original, err := s.Events.Info(ctx)
				if err != nil {
					return err
				}
				if have, want := mirror.CachedInfo().State, original.State; have.LastSeq != want.LastSeq ||
					!have.LastTime.Equal(want.LastTime) || have.Msgs < want.Msgs {
					return fmt.Errorf("%+v, want %+v", have, want)
				}
				return nil
			})
		}
		publish(9)
		age := time.Hour
		limit := func(to time.Duration) {
			age, o.EventsMaxAge = to, &age
			if _, err := Provision(context.Background(), js, o); err != nil {
				t.Error(err)
			}
		}
		if operation == "compare" {
			if err := readers().Keep(t.Context()); err != nil {
				t.Fatal(err)
			}
			equal()
			limit(2 * time.Hour)
			mirror, err := readers().there.Stream(t.Context(), o.Prefix.EventsStream())
			if err == nil {
				err = mirror.DeleteMsg(t.Context(), 5)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		truncate := func() {
			if err := s.Events.Purge(context.Background(), jetstream.WithPurgeSequence(7)); err != nil {
				t.Error(err)
			}
		}
		happened := false
		during(func() {
			happened = true
			publish(2)
			truncate()
			limit(3 * time.Hour)
			if err := readers().Keep(context.Background()); err != nil && operation != "compare" {
				t.Error(err)
			}
			publish(2)
		})
		if err := readers().Keep(t.Context()); err != nil && (happened || operation != "compare") {
			t.Error(err)
		}
		if operation == "compare" && !happened {
			return // the message is missing indeed
		}
		publish(3)
		equal()
		if err := readers().Keep(t.Context()); err != nil {
			t.Error(err)
		}
		mirror, err := readers().there.Stream(t.Context(), o.Prefix.EventsStream())
		if err != nil {
			t.Fatal(err)
		}
		if got := mirror.CachedInfo().Config.MaxAge; happened && got != 3*time.Hour {
			t.Errorf("the mirror keeps events for %s", got)
		}
	})
}

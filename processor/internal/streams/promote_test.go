package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// A region is superseded from its root on. A process that takes over there meanwhile asks the root first, and would
// take other streams that are superseded for ones that somebody has changed.
func TestSupersedeTheRootFirst(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{JetStream: "domain: a"})
	for _, shards := range []int{1, 2} {
		o := options()
		o.Prefix, o.Shards = wire.Prefix([]string{"one", "two"}[shards-1]), shards
		for o.Shard = range shards {
			if _, err := Provision(t.Context(), js, o); err != nil {
				t.Fatal(err)
			}
		}
		root, err := js.Stream(t.Context(), o.Root())
		if err != nil {
			t.Fatal(err)
		}
		ask := func(identity int64, domain string) wire.RegionReply {
			return Answer(t.Context(), js, o, wire.RegionRequest{Supersede: &wire.Promotion{Domain: domain}, Identity: identity})
		}
		identity := wire.Identity(root.CachedInfo().Config.Metadata, root.CachedInfo().Created)
		if reply := ask(identity+1, "b"); !strings.Contains(reply.Error, "another one") || reply.Superseded != nil {
			t.Errorf("it is superseded for another log: %+v", reply)
		}
		const updated = "$JS.EVENT.ADVISORY.STREAM.UPDATED."
		heard, err := js.Conn().SubscribeSync(updated + "*")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if reply := ask(identity, "b"); reply.Error != "" || reply.Superseded == nil || len(reply.Ends) == 0 {
				t.Fatalf("%+v", reply)
			}
		}
		if reply := ask(identity, "c"); !strings.Contains(reply.Error, "another region was promoted") ||
			reply.Superseded.Domain != "b" {
			t.Errorf("it is superseded by a second region: %+v", reply)
		}
		first, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(first.Subject, updated); got != o.Root() {
			t.Errorf("%d shards, %s is superseded first, want %s", shards, got, o.Root())
		}
		if _, err := RoleOf(t.Context(), js, o); err == nil || !strings.Contains(err.Error(), "another region was promoted") {
			t.Errorf("%d shards: the role is told with %v", shards, err)
		}
		if err := heard.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// A region asks those that follow it whether one was promoted. It waits for the answer of one that has followed until
// its log ended, but not for one that had gone long before: else each start would wait, for ever. A command forgets it.
func TestFollowersAreRemembered(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{JetStream: "domain: a"})
	o := options()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: o.Prefix.MembersBucket()}); err != nil {
		t.Fatal(err)
	}
	if _, err := Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	for _, domain := range []string{"b", "c"} {
		if reply := Answer(t.Context(), js, o, wire.RegionRequest{Follower: domain}); reply.Error != "" {
			t.Fatal(reply.Error)
		}
	}
	known, err := Forget(t.Context(), js, o.Prefix, "c")
	if again, _ := Forget(t.Context(), js, o.Prefix, "c"); err != nil || !known || again {
		t.Errorf("forgot region c: %t, again %t, %v", known, again, err)
	}
	all, err := Followers(t.Context(), js, o.Prefix)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	seen := all["b"]
	for ended, waits := range map[time.Time]bool{{}: true, seen.Add(-time.Hour): true,
		seen.Add(waitForFollower - 1): true, seen.Add(waitForFollower): false} {
		if got := awaited(ended, seen); got != waits {
			t.Errorf("the log ended %s after the follower was seen: it is waited for: %t", ended.Sub(seen), got)
		}
	}
	if unanswered, err := SupersededBy(t.Context(), js, o); err != nil || !slices.Equal(unanswered, []string{"b"}) {
		t.Errorf("%v did not answer, %v", unanswered, err)
	}
}

// A region that was asked to hand over takes messages again when that is undone, as it did before, and only by the
// promotion that had asked.
func TestReopen(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{JetStream: "domain: a"})
	for _, shards := range []int{1, 2} {
		o := options()
		o.Prefix, o.Shards, o.Objects = wire.Prefix([]string{"one", "two"}[shards-1]), shards, true
		for o.Shard = range shards {
			if _, err := Provision(t.Context(), js, o); err != nil {
				t.Fatal(err)
			}
		}
		config := o.Prefix.Config("c")
		put := func() {
			t.Helper()
			if _, err := js.Publish(t.Context(), config, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		put()
		root, err := js.Stream(t.Context(), o.Root())
		if err != nil {
			t.Fatal(err)
		}
		by := wire.Promotion{Domain: "b", At: time.Unix(1, 0)}
		identity := wire.Identity(root.CachedInfo().Config.Metadata, root.CachedInfo().Created)
		for range 2 {
			reply, err := supersedeAll(t.Context(), js, o, identity, by)
			if err != nil {
				t.Fatal(err)
			}
			if got := reply.Ends[o.Root()].Seq; got != 1 {
				t.Errorf("%d shards: the root ends at %d, want 1", shards, got)
			}
		}
		if err := reopen(t.Context(), js, o, wire.Promotion{Domain: "c", At: by.At}); err == nil {
			t.Errorf("%d shards: a region is reopened for another promotion", shards)
		}
		for range 2 {
			if err := reopen(t.Context(), js, o, by); err != nil {
				t.Fatal(err)
			}
		}
		if err := Check(t.Context(), js, o); err != nil {
			t.Errorf("%d shards: after it was reopened: %v", shards, err)
		}
		put()
		for o.Shard = range shards {
			if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
				log, err := js.Stream(ctx, o.log().Stream())
				if err == nil && log.CachedInfo().State.LastSeq != 2 {
					err = fmt.Errorf("it ends at %d, want 2", log.CachedInfo().State.LastSeq)
				}
				return err
			}); err != nil {
				t.Errorf("%d shards: log %d: %v", shards, o.Shard, err)
			}
		}
	}
}

// A stream cannot be changed when a region is to be reopened. The region that asked hears so, and asks again: else it
// would take this one for the first, while the stream takes no messages.
func TestReopenFails(t *testing.T) {
	t.Parallel()
	o := options()
	o.Shards = 1
	nc, err := nats.Connect(natstest.StartMapped(t, natstest.Options{JetStream: "domain: a"},
		"$JS.API.STREAM.UPDATE."+o.Root(), "nobody"), natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js := natstest.JetStream(t, nc)
	permitted, err := jetstream.NewWithDomain(nc, "a")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Provision(t.Context(), permitted, o)
	if err != nil {
		t.Fatal(err)
	}
	by := wire.Promotion{Domain: "b", At: time.Unix(1, 0)}
	info := s.Log.CachedInfo()
	if _, err := supersedeAll(t.Context(), permitted, o, wire.Identity(info.Config.Metadata, info.Created), by); err != nil {
		t.Fatal(err)
	}
	if reply := Answer(t.Context(), js, o, wire.RegionRequest{Reopen: &by}); !strings.Contains(reply.Error,
		"change stream "+o.Root()) {
		t.Errorf("the root was not changed, and the answer is %+v", reply)
	}
	if reply := Answer(t.Context(), permitted, o, wire.RegionRequest{Reopen: &by}); reply.Error != "" {
		t.Errorf("asked again: %+v", reply)
	}
	if err := Check(t.Context(), js, o); err != nil {
		t.Error(err)
	}
}

// A stream that is made of a mirror notes in its metadata up to where it has the messages of the former one, and has
// an identity of its own: by that a region finds out what it has lost, and another one that it was superseded.
func TestOwnNotesTheFormerLog(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	want := o.logConfig("")
	was := want
	was.Subjects = []string{ClosedSubject("b", want.Name)} // an attempt has ended the mirror
	was.Metadata = map[string]string{wire.RegionKey: wire.Region{Identity: 7, Follows: "a"}.String()}
	if _, err := js.CreateStream(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), was.Subjects[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	began := wire.Promotion{Identity: 8, Domain: "b", From: "a", At: time.Unix(1, 0).UTC()}
	p := &Promotion{JS: js, Opts: o, Domain: "b"}
	for range 2 { // it may be interrupted
		if lost, err := p.own(t.Context(), want, began, 3, true); err != nil || lost.Last != ack.Sequence {
			t.Fatalf("it says %+v, %v", lost, err)
		}
	}
	stream, err := js.Stream(t.Context(), want.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	r, err := wire.ParseRegion(c.Metadata)
	if err != nil || r.Identity != 8 || len(r.Former) != 1 || r.Promotion == nil || !slices.Equal(c.Subjects, want.Subjects) {
		t.Fatalf("it takes messages on %q, and is %+v, %v", c.Subjects, r, err)
	}
	if f := r.Former[0]; f.Identity != 7 || f.Last != ack.Sequence || f.Stamp == 0 || f.Events != 3 || f.Domain != "b" {
		t.Errorf("the former one is %+v", f)
	}
}

// The mirror of the configurations is behind what a log has sourced of it when the region is promoted, and another log
// has nothing that it lacks: the stream gets the rest from the first, at the same sequences.
//
// It fails if the next configuration gets a sequence that a log has already: the region would refuse for good (F4).
func TestConfigurationsAreCompleted(t *testing.T) {
	t.Parallel()
	o := options()
	p, stream := configsBehind(t, natstest.Connect(t, natstest.Options{}), o)
	for range 2 { // it may be interrupted
		if err := p.completeConfigs(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	checkCompleted(t, stream, o.Prefix)
}

// configsBehind makes a closed stream of configurations with three messages, and two logs that have sourced five. It
// returns a promotion that is to complete the stream.
func configsBehind(t *testing.T, js jetstream.JetStream, o Options) (p *Promotion, stream jetstream.Stream) {
	t.Helper()
	ctx := t.Context()
	o.Shards = 2
	var logs []*Streams
	for o.Shard = range o.Shards {
		s, err := Provision(ctx, js, o)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, s)
	}
	for i := range 5 {
		subject := o.Prefix.Config("c")
		if i == 3 {
			subject = o.Prefix.Drop("d")
		}
		if _, err := js.Publish(ctx, subject, fmt.Appendf(nil, `{"defaultTtl":%d}`, i+1),
			jetstream.WithMsgID(fmt.Sprint("id", i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range logs {
		if err := poll.Until(ctx, time.Minute, func(ctx context.Context) error {
			if info, err := s.Log.Info(ctx); err != nil || info.State.Msgs < 5 {
				return errors.Join(err, errors.New("the log has not sourced all"))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	closed := logs[0].Configs.CachedInfo().Config
	if err := js.DeleteStream(ctx, closed.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, closed); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := js.Publish(ctx, o.Prefix.Config("c"), fmt.Appendf(nil, `{"defaultTtl":%d}`, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	closed.Subjects = []string{ClosedSubject("b", closed.Name)}
	stream, err := js.UpdateStream(ctx, closed)
	if err != nil {
		t.Fatal(err)
	}
	if err := logs[0].Log.Purge(ctx); err != nil { // its age has removed them
		t.Fatal(err)
	}
	o.Shard = 0
	return &Promotion{JS: js, Opts: o, Domain: "b"}, stream
}

// checkCompleted checks that the stream of [configsBehind] has what the logs have.
func checkCompleted(t *testing.T, stream jetstream.Stream, prefix wire.Prefix) {
	t.Helper()
	for seq, want := range map[uint64]string{4: prefix.Drop("d"), 5: prefix.Config("c")} {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != want || string(m.Data) != fmt.Sprintf(`{"defaultTtl":%d}`, seq) ||
			m.Header.Get(jetstream.MsgIDHeader) != fmt.Sprint("id", seq-1) {
			t.Errorf("message %d is %s %s %v", seq, m.Subject, m.Data, m.Header)
		}
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := info.State.LastSeq; last > 5 {
		t.Errorf("it ends at %d", last)
	}
}

package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
)

// The mirror of the configurations is behind what the logs have sourced of it when the region is promoted: the stream gets
// the rest from them, at the same sequences.
//
// It fails if the next configuration gets a sequence that a log has already: the region would refuse for good (F4).
func TestConfigurationsAreCompleted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js := natstest.Connect(t, natstest.Options{})
	o := options()
	o.Shards = 2
	var logs []*Streams
	for o.Shard = range o.Shards {
		s, err := Provision(ctx, js, o)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, s)
	}
	configs := logs[0].Configs
	for i := range 5 {
		subject := o.Prefix.Config("c")
		if i == 3 {
			subject = o.Prefix.Drop("d")
		}
		if _, err := js.Publish(ctx, subject, fmt.Appendf(nil, `{"defaultTtl":%d}`, i+1), jetstream.WithMsgID(fmt.Sprint("id", i))); err != nil {
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
	closed := configs.CachedInfo().Config
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
	o.Shard = 0
	p := &Promotion{JS: js, Opts: o, Domain: "b"}
	for range 2 { // it may be interrupted
		if err := p.completeConfigs(ctx, stream); err != nil {
			t.Fatal(err)
		}
	}
	for seq, want := range map[uint64]string{4: "lapse.drop.d", 5: "lapse.config.c"} {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != want || string(m.Data) != fmt.Sprintf(`{"defaultTtl":%d}`, seq) || m.Header.Get(jetstream.MsgIDHeader) != fmt.Sprint("id", seq-1) {
			t.Errorf("message %d is %s %s %v", seq, m.Subject, m.Data, m.Header)
		}
	}
	if last := stream.CachedInfo().State.LastSeq; last > 5 {
		t.Errorf("it ends at %d", last)
	}
}

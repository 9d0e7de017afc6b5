package events

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// afterInfo is JetStream where something happens once a stream has said what it has.
type afterInfo struct {
	jetstream.JetStream
	happen func()
	within time.Duration // that the stream had to say so; 0 if it had what the client library allows
}

func (j *afterInfo) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := j.JetStream.Stream(ctx, name)
	return &afterInfoStream{s, j}, err
}

// afterInfoStream is a stream of afterInfo.
type afterInfoStream struct {
	jetstream.Stream
	of *afterInfo
}

func (s *afterInfoStream) Info(ctx context.Context, options ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	if end, ok := ctx.Deadline(); ok {
		s.of.within = time.Until(end)
	}
	info, err := s.Stream.Info(ctx, options...)
	if s.of.happen != nil {
		s.of.happen()
		s.of.happen = nil
	}
	return info, err
}

// TestLeftOut: what a stream has between two sequences is neither deleted nor removed at its ends.
func TestLeftOut(t *testing.T) {
	r := newRig(t, natstest.Options{}, atomicBatches)
	r.publish(rejections("a", 1, 8)...)
	if err := r.stream.Purge(t.Context(), jetstream.WithPurgeSequence(3)); err != nil { // the first is 3
		t.Fatal(err)
	}
	if err := r.stream.DeleteMsg(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after, before uint64
		want          string
	}{{0, 99, "[3 4 6 7 8]"}, {3, 7, "[4 6]"}, {4, 6, "[]"}, {6, 7, "[]"}, {7, 6, "[]"}, {7, 9, "[8]"}, {8, 99, "[]"}, {0, 3, "[]"}} {
		if left, err := LeftOut(t.Context(), r.stream, c.after, c.before); err != nil || fmt.Sprint(left) != c.want {
			t.Errorf("between %d and %d: %v, %v, want %s", c.after, c.before, left, err, c.want)
		}
	}
}

// TestPassed: a reading asks the leader for what another server has passed over, and gets it as a direct get has it. A
// message that is removed meanwhile is not missed, and those behind it are read all the same. The leader has more time
// than the client library allows: behind a restore it has to list a million sequences.
func TestPassed(t *testing.T) {
	r := newRig(t, natstest.Options{}, atomicBatches)
	messages := rejections("a", 1, 8)
	r.publish(messages...)
	js := &afterInfo{JetStream: r.js, happen: func() {
		if err := r.stream.DeleteMsg(t.Context(), 4); err != nil {
			t.Error(err)
		}
	}}
	r.p.js = js
	var got []uint64
	found := map[uint64]*nats.Msg{}
	if err := r.p.passed(t.Context(), 2, 8, func(m *nats.Msg, seq uint64) {
		got, found[seq] = append(got, seq), m
	}); err != nil || !slices.Equal(got, []uint64{3, 5, 6, 7}) {
		t.Fatalf("%v are read, %v", got, err)
	}
	if js.within < standsAfter/2 { // the test may have stood still before it was asked
		t.Errorf("the leader had %s", js.within)
	}
	direct, err := GetMessage(t.Context(), r.nc, r.p.stream, map[string]any{"seq": 5})
	if err != nil {
		t.Fatal(err)
	}
	m := found[5]
	if m.Header.Get(jetstream.SubjectHeader) != direct.Subject || string(m.Data) != string(direct.Data) ||
		m.Header.Get(jetstream.TimeStampHeaer) == "" {
		t.Errorf("message 5 is read as %+v", m)
	}
}

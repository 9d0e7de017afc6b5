package announce

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// TestG7_ADamagedCheckpointIsNoOtherLog: a value that cannot be read is no reason to tell a person to remove
// the bucket. One of another log is.
func TestG7_ADamagedCheckpointIsNoOtherLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	log := streams.NewLog(r.streams, r.channel.Link)
	s := NewCheckpoints(log)
	for value, want := range map[string]bool{`{"seq":`: false, `{"format":3,"stamp":"x"}`: false, `{"format":99}`: false, `{"log":"1"}`: false, `{"format":3,"log":"1"}`: true} {
		if _, err := s.parse(0, []byte(value)); err == nil || errors.Is(err, streams.ErrLogChanged) != want {
			t.Errorf("checkpoint %s: %v", value, err)
		}
	}
	if c, err := s.parse(0, fmt.Appendf(nil, `{"format":3,"seq":7,"log":%q}`, log.ID())); err != nil || c.Seq != 7 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestG3_CheckpointsMoveOn: each round stores the checkpoints that have moved on since the one before.
func TestG3_CheckpointsMoveOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := NewCheckpoints(streams.NewLog(r.streams, r.channel.Link))
	if err := s.Replace(t.Context(), 0, Checkpoint{}); err != nil {
		t.Fatal(err)
	}
	a := NewAnnouncer(r.channel, 0, self{})
	r.takeOver(a, Checkpoint{}, 0)
	c := NewCheckpointer(s, []*Announcer{a}, nil, nil)
	for _, seq := range []uint64{5, 5, 9} {
		a.Settle(&Checkpoint{Seq: seq, Watermark: 1})
		if err := c.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stored, err := s.Load(t.Context(), 0); err != nil || stored.Seq != seq {
			t.Errorf("after checkpoint %d, the stored one is %+v, %v", seq, stored, err)
		}
	}
}

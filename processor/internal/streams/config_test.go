package streams

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// TestEventsAreBounded: the stream of events has a bound of bytes unless the user sets another one; less where NATS has
// less room, which leaves room for other streams, and none where it has nearly none. A bound that the user sets is not
// made smaller.
//
// It fails if clients can fill the disk with events, or if lapse does not start where there is little room.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		room string
		set  *int64
		want int64 // 0: it is refused
	}{
		{"100GiB", nil, 4032 << 20}, {"4GiB", nil, 4032 << 20}, {"3GiB", nil, 1008 << 20}, {"1GiB", nil, 1008 << 20},
		{"256MiB", nil, 252 << 20}, {"10MiB", nil, -1}, {"100GiB", new(int64(-1)), -1},
		{"3GiB", new(int64(1 << 30)), 1 << 30}, {"3GiB", new(int64(5 << 30)), 0},
	} {
		t.Run(fmt.Sprint(c.room, " ", c.want), func(t *testing.T) {
			js := natstest.Connect(t, natstest.Options{JetStream: "max_file_store: " + c.room})
			o := options()
			o.EventsMaxBytes = c.set
			s, err := Provision(t.Context(), js, o)
			switch {
			case c.want == 0 && (err == nil || !strings.Contains(err.Error(), "storage")):
				t.Errorf("room %s: %v", c.room, err)
			case c.want != 0 && err != nil:
				t.Errorf("room %s: %v", c.room, err)
			case c.want != 0 && s.Log.CachedInfo().Config.MaxBytes != -1:
				t.Errorf("room %s: the log has the bound %d", c.room, s.Log.CachedInfo().Config.MaxBytes)
			case c.want != 0 && s.Events.CachedInfo().Config.MaxBytes != c.want:
				t.Errorf("room %s: the bound is %d, want %d", c.room, s.Events.CachedInfo().Config.MaxBytes, c.want)
			}
		})
	}
}

// TestCheckSize: the problem is there before the stream removes a message.
func TestCheckSize(t *testing.T) {
	info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "E", MaxBytes: 1000},
		State: jetstream.StreamState{Bytes: 799}}
	if err := CheckSize(info); err != nil {
		t.Error(err)
	}
	if info.State.Bytes = 800; CheckSize(info) == nil {
		t.Error("a stream with 80 % of its bytes is no problem")
	}
	if info.Config.MaxBytes = -1; CheckSize(info) != nil {
		t.Error("a stream without a limit is a problem")
	}
}

// TestLimits: a limit that somebody has changed is named, and nothing else of a stream.
func TestLimits(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	s, err := Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	limits, c := s.Limits(), s.Log.CachedInfo().Config
	if c.Description = "other"; limits.Check(c) != nil {
		t.Errorf("the description is a limit: %v", limits.Check(c))
	}
	c.MaxMsgs, c.MaxAge = 1, time.Hour
	if err := limits.Check(c); err == nil || !strings.HasSuffix(err.Error(), "max_age is 1h0m0s, and was 0s; max_msgs "+
		"is 1, and was -1") {
		t.Errorf("it says %v", err)
	}
}

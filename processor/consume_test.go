package processor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestReadAhead: of messages that are large more is read than is held at a time, and
// there is always room for the largest that the server takes, also when it takes larger
// ones than it did.
//
// Goes red if a request for messages is too small for one of them: it never comes.
func TestReadAhead(t *testing.T) {
	t.Run("large messages", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		p := r.start(nil)
		p.ready(t)
		const body = 900_000
		for i := range 2*pullBytes/body + 1 {
			r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{"a":"`+strings.Repeat("x", body)+`"}`)
		}
		r.caughtUp(p)
		count, err := r.reader.Count(context.Background(), "c")
		if want := int64(2*pullBytes/body + 1); err != nil || count.Live != want {
			t.Errorf("%+v documents (%v), want %d", count, err, want)
		}
		p.stop(t)
	})
	t.Run("the server takes larger ones", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			largest := int64(1 << 20)
			c := &consumer{largest: func() int64 { return largest }, rewound: make(chan struct{}, 1)}
			ahead := c.ahead()
			if ahead != pullBytes {
				t.Errorf("%d bytes are read ahead, want %d", ahead, pullBytes)
			}
			largest = 64 << 20
			if again, err := c.watch(t.Context(), ahead); !again || err != nil {
				t.Errorf("reading does not begin again: %v", err)
			}
			if c.ahead() < 128<<20 {
				t.Errorf("%d bytes are read ahead, and a message may have %d", c.ahead(), largest)
			}
		})
	})
}

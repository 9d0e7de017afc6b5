package forward

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// TestGiveUpAfter: a message that the receiver calls wrong is tried for minutes, and so is one that it does not take
// while it takes others. Any other one is tried for as long as the user wants: the receiver is down, or busy.
//
// It fails if an outage of the receiver gives messages up, or if one message is tried for a day beside others.
func TestGiveUpAfter(t *testing.T) {
	const day = 24 * time.Hour
	f := &forwarding{opts: Options{GiveUpAfter: day, Patience: patience}}
	for _, c := range []struct {
		status, attempts int
		tried            time.Duration
		others           bool
		want             time.Duration
	}{
		{400, 1, 0, false, patience}, {401, 1, 0, false, patience}, {404, 1, 0, false, patience}, {422, 1, 0, false, patience},
		{408, 99, day / 2, true, day}, {425, 99, day / 2, true, day}, {429, 99, day / 2, true, day}, {503, 99, day / 2, true, day},
		{500, leastAttempts, patience, true, patience}, {302, leastAttempts, patience, true, patience},
		{500, leastAttempts, patience, false, day}, {500, leastAttempts - 1, patience, true, day}, {500, leastAttempts, patience - 1, true, day},
	} {
		if got := f.giveUpAfter(judge(c.status, "", time.Now()), &client.Ordered{}, c.attempts, c.tried, c.others); got != c.want {
			t.Errorf("%+v: given up after %s", c, got)
		}
	}
	f.opts.GiveUpAfter = time.Second
	if got := f.giveUpAfter(judge(400, "", time.Now()), &client.Ordered{}, 1, 0, false); got != time.Second {
		t.Errorf("given up after %s", got)
	}
}

// TestMakesRoom: one message is given up so that others come, and not all of them.
func TestMakesRoom(t *testing.T) {
	f := &forwarding{opts: Options{Patience: time.Hour}}
	if !f.makesRoom() || f.makesRoom() {
		t.Error("it gives none up, or all")
	}
}

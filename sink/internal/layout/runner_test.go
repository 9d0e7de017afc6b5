package layout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
)

// TestRunner: concurrent calls each get their own answer and their own error, although they
// share round trips, and although the server has forgotten the scripts.
//
// Goes red if a call gets another call's answer, or if the failure of one call is that of all.
func TestRunner(t *testing.T) {
	client := redistest.StartMini(t).Client
	c := &Runner{client: client, limit: 2}
	echo := redis.NewScript(`if ARGV[1] == 'bad' then return {err = 'BAD ' .. KEYS[1]} end return {ARGV[1]}`)
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			for j := range 50 {
				if i == 0 && j%10 == 0 {
					if err := client.ScriptFlush(t.Context()).Err(); err != nil {
						t.Error(err)
					}
				}
				key, arg := fmt.Sprintf("k%d", i), fmt.Sprintf("%d.%d", i, j)
				if j%7 == 0 {
					arg = "bad"
				}
				v, err := c.Run(t.Context(), echo, []string{key}, arg)
				switch {
				case arg == "bad" && (err == nil || !strings.Contains(err.Error(), "BAD "+key)):
					t.Errorf("%s: %v, %v; want its error", key, v, err)
				case arg != "bad" && (err != nil || v[0] != arg):
					t.Errorf("%s: %v, %v; want %s", key, v, err, arg)
				}
			}
		})
	}
	calls.Wait()
	// A round trip is over just after its calls are answered.
	limit := time.After(time.Minute)
	for {
		c.mu.Lock()
		underWay, waiting := c.underWay, len(c.waiting)
		c.mu.Unlock()
		if underWay == 0 && waiting == 0 {
			return
		}
		select {
		case <-limit:
			t.Fatalf("%d round trips under way, %d calls wait", underWay, waiting)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestRunnerWaitsNoLonger: a call whose context ends while it waits returns, and its script does
// not run later.
func TestRunnerWaitsNoLonger(t *testing.T) {
	client := redistest.StartMini(t).Client
	c := &Runner{client: client, limit: 1, underWay: 1} // one is under way, and does not come back
	set := redis.NewScript(`redis.call('SET', KEYS[1], '1') return {1}`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Run(ctx, set, []string{"late"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a call that waits: %v", err)
	}
	// It may learn of that and of its turn at the same moment.
	late := &call{ctx: ctx, script: set, keys: []string{"late"}, done: make(chan struct{})}
	beside := &call{ctx: t.Context(), script: redis.NewScript(`return {1}`), done: make(chan struct{})}
	c.underWay++
	c.runTogether([]*call{late, beside})
	if <-beside.done; beside.cmd.Err() != nil {
		t.Fatalf("a call in the same round trip: %v", beside.cmd.Err())
	}
	if <-late.done; late.cmd == nil || !errors.Is(late.cmd.Err(), context.DeadlineExceeded) {
		t.Fatalf("a call whose turn comes too late: %v", late.cmd)
	}
	c.finish(true) // now it does
	if _, err := c.Run(t.Context(), set, []string{"next"}); err != nil {
		t.Fatal(err)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != "next" {
		t.Errorf("keys %v", keys)
	}
}

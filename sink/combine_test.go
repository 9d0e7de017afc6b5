package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestCombiner: calls at the same time each get their own answer, and their own error,
// though they go out together, and though the server has forgotten the scripts.
//
// Goes red if an answer goes to another call, or one call's failure to all.
func TestCombiner(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	c := &combiner{client: client, most: 2}
	echo := redis.NewScript(`if ARGV[1] == 'bad' then return redis.error_reply('BAD ' .. KEYS[1]) end return {ARGV[1]}`)
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
				v, err := c.run(t.Context(), echo, []string{key}, arg).Slice()
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
	limit := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		flights, waiting := c.flights, len(c.waiting)
		c.mu.Unlock()
		if flights == 0 && waiting == 0 {
			return
		}
		select {
		case <-limit:
			t.Fatalf("%d round trips under way, %d calls wait", flights, waiting)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestCombinerWaitsNoLonger: a call whose time is up returns, whatever is under way,
// and does not run later.
func TestCombinerWaitsNoLonger(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	c := &combiner{client: client, most: 1, flights: 1} // one is under way, and does not come back
	set := redis.NewScript(`redis.call('SET', KEYS[1], '1') return {1}`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.run(ctx, set, []string{"late"}).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a call that waits: %v", err)
	}
	// It may learn of that and of its turn at the same moment.
	late := &call{ctx: ctx, script: set, keys: []string{"late"}, done: make(chan struct{})}
	c.flights++
	c.fly([]*call{late})
	if <-late.done; late.cmd == nil || !errors.Is(late.cmd.Err(), context.DeadlineExceeded) {
		t.Fatalf("a call whose turn comes too late: %v", late.cmd)
	}
	c.land() // now it does
	if err := c.run(t.Context(), set, []string{"next"}).Err(); err != nil {
		t.Fatal(err)
	}
	if server.Exists("late") || !server.Exists("next") {
		t.Errorf("keys %v", server.Keys())
	}
}

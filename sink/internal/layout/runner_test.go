package layout

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// pipelines notes how many scripts go out in each pipeline.
type pipelines struct {
	redis.Hook
	sizes chan int
}

func (p pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" { // a connection begins with a pipeline too
			p.sizes <- len(cmds)
		}
		return next(ctx, cmds)
	}
}

// TestOnlySmallScriptsShareAPipeline: the scripts that wait go out in their order, as many in a pipeline as have its
// number of arguments together. One that has more goes out alone.
func TestOnlySmallScriptsShareAPipeline(t *testing.T) {
	client := redistest.StartMini(t).Client
	sizes := make(chan int, 10)
	client.AddHook(pipelines{sizes: sizes})
	r := NewRunner(client, 1)
	r.underWay = 1
	script := redis.NewScript(`return {#ARGV}`)
	var calls []*call
	for _, n := range []int{128, 128, 1, 255, 1, pipelineArgs + 1, 2, 3} {
		c := &call{ctx: t.Context(), script: script, args: make([]any, n), done: make(chan struct{})}
		for i := range c.args {
			c.args[i] = i
		}
		calls = append(calls, c)
	}
	r.waiting = calls
	r.finish(true)
	for _, c := range calls {
		<-c.done
		if v, err := c.cmd.Slice(); err != nil || Reply(v).Int(0) != int64(len(c.args)) {
			t.Errorf("a script with %d arguments: %v, %v", len(c.args), v, err)
		}
	}
	var got []int
	for len(sizes) > 0 { // each is there before its scripts are done
		got = append(got, <-sizes)
	}
	if want := []int{2, 2, 1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("the pipelines have %d scripts, want %d", got, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent || len(r.waiting) > 0 {
		t.Errorf("silent %t, %d wait", r.silent, len(r.waiting))
	}
}

// TestASilentMaster: where other masters may answer, a call gets an error at once if enough others wait for a master
// that has not answered for a while. It waits if fewer do, if the master answered just now, or if there is no other.
func TestASilentMaster(t *testing.T) {
	client := redistest.StartMini(t).Client
	script := redis.NewScript(`return {1}`)
	long := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		runner *Runner
		want   error
	}{
		"silent":             {&Runner{cluster: true, heard: long, waiting: make([]*call, mostWaiting)}, ErrUnavailable},
		"few wait":           {&Runner{cluster: true, heard: long, waiting: make([]*call, mostWaiting-1)}, context.DeadlineExceeded},
		"answered just now":  {&Runner{cluster: true, heard: time.Now().Add(time.Hour), waiting: make([]*call, mostWaiting)}, context.DeadlineExceeded},
		"there is one alone": {&Runner{heard: long, waiting: make([]*call, mostWaiting)}, context.DeadlineExceeded},
	} {
		c.runner.client, c.runner.limit, c.runner.underWay = client, 1, 1
		waits := 50 * time.Millisecond
		if errors.Is(c.want, ErrUnavailable) {
			waits = time.Minute // it does not wait
		}
		ctx, cancel := context.WithTimeout(t.Context(), waits)
		if _, err := c.runner.Run(ctx, script, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		cancel()
	}
}

// TestWhenAServerIsSilent: the time for which a server is silent begins with the first call that it does not answer,
// and an answer ends it, be that an error.
func TestWhenAServerIsSilent(t *testing.T) {
	client := redistest.StartMini(t).Client
	r := NewRunner(client, 1)
	bad, good := redis.NewScript(`return {err = 'BAD'}`), redis.NewScript(`return {1}`)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, step := range []struct {
		name   string
		ctx    context.Context
		script *redis.Script
		silent bool
	}{{"an answer", t.Context(), good, false}, {"no answer", stopped, good, true}, {"no answer again", stopped, good, true},
		{"an error", t.Context(), bad, false}} {
		before, begin := r.heard, time.Now()
		_, _ = r.Run(step.ctx, step.script, nil)
		if r.silent != step.silent || r.underWay != 0 {
			t.Errorf("%s: silent %t, %d under way", step.name, r.silent, r.underWay)
		}
		if again := r.heard.Equal(before); again != (step.name == "no answer again") || !again && r.heard.Before(begin) {
			t.Errorf("%s: heard at %s, before that at %s", step.name, r.heard, before)
		}
	}
	if NewReadRunner(client, 3).limit != 3 || r.cluster || r.reads {
		t.Error("the options of the runners are mixed up")
	}
}

//go:build held

package layout

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/held"
)

// TestHeldRunAlone: the server has refused a script that only reads, and forgets all scripts before it is asked
// otherwise. The caller gets the answer of the moment at which the script has run.
//
// It fails if the caller gets the error that the server does not know the script.
func TestHeldRunAlone(t *testing.T) {
	held.Each(t, "sink/internal/layout.Runner.runAlone", held.Restart, func(t *testing.T, during func(func())) {
		client := redistest.StartMiniredis(t).Client // it refuses TIME in such a script
		get := redis.NewScript(`redis.call('TIME') return {redis.call('GET', KEYS[1])}`)
		if err := get.Load(t.Context(), client).Err(); err != nil {
			t.Fatal(err)
		}
		want := "before"
		set := func(value string) {
			want = value
			if err := client.Set(t.Context(), "k", value, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("before")
		during(func() {
			set("after")
			if err := client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		})
		if v, err := NewReadRunner(client, 1).Run(t.Context(), get, []string{"k"}); err != nil || v.Str(0) != want {
			t.Errorf("read %v (%v), want %s", v, err, want)
		}
	})
}

// TestHeldRunTogether: the server forgets all scripts before or after calls go out in one round trip. Each call gets
// its own answer, and the place of the round trip is free again.
//
// It fails if a call gets no answer, or that of another one.
func TestHeldRunTogether(t *testing.T) {
	held.Each(t, "sink/internal/layout.Runner.runTogether", held.Restart, func(t *testing.T, during func(func())) {
		client := redistest.StartMini(t).Client
		echo := redis.NewScript(`return {ARGV[1]}`)
		r := NewReadRunner(client, 1)
		r.underWay = 1
		var calls []*call
		for i := range 3 {
			ctx := t.Context()
			if i == 1 { // one that no longer waits
				ended, cancel := context.WithCancel(ctx)
				cancel()
				ctx = ended
			}
			calls = append(calls, &call{ctx: ctx, script: echo, args: []any{fmt.Sprint("call", i)}, done: make(chan struct{})})
		}
		during(func() {
			if err := client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		})
		r.runTogether(calls)
		for i, c := range calls {
			<-c.done
			v, err := c.cmd.Slice()
			if i == 1 && err == nil || i != 1 && (err != nil || v[0] != fmt.Sprint("call", i)) {
				t.Errorf("call %d: %v, %v", i, v, err)
			}
		}
		if r.underWay != 0 {
			t.Errorf("%d round trips are under way", r.underWay)
		}
	})
}

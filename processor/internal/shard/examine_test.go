package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

var errLost = errors.New("the answer was lost")

// disturbed is a stored shard to which something happens before one of the questions, in the order
// in which they are asked. A disturbance may lose the answer.
type disturbed struct {
	*store.Shard
	before []func() error
}

func (d *disturbed) next() error {
	if len(d.before) == 0 {
		return nil
	}
	do := d.before[0]
	d.before = d.before[1:]
	if do == nil {
		return nil
	}
	return do()
}

func (d *disturbed) Load(ctx context.Context) (store.State, error) {
	if err := d.next(); err != nil {
		return store.State{}, err
	}
	return d.Shard.Load(ctx)
}

func (d *disturbed) Leftovers(ctx context.Context) ([]string, error) {
	if err := d.next(); err != nil {
		return nil, err
	}
	return d.Shard.Leftovers(ctx)
}

// call is something that happens in place of a question.
type call = func() error

// TestG7_NoAnswerIsNoAdvice: keys without a state are named only if each question about them was
// answered, and they are still there. A person may remove what is named.
//
// Goes red if a question whose answer was lost counts as one that was answered.
func TestG7_NoAnswerIsNoAdvice(t *testing.T) {
	ctx := context.Background()
	log := streams.NewLog(&streams.Streams{ID: "1"}, nil)
	lost := func() error { return errLost }
	for _, tt := range []struct {
		name   string
		taken  bool
		before func(docs, takes, removes call) []call // Load, Leftovers, Load, Leftovers
		want   error                                  // nil: there is nothing
		names  bool
	}{
		{"nothing is there", false, func(docs, takes, removes call) []call { return nil },
			nil, false},
		{"keys of somebody", false, func(docs, takes, removes call) []call { return []call{docs} },
			store.ErrForeign, true},
		{"the state has been lost", true, func(docs, takes, removes call) []call { return []call{docs} },
			nil, true},
		{"the first answer is lost", false, func(docs, takes, removes call) []call { return []call{lost} },
			errLost, false},
		{"the keys are not known", false, func(docs, takes, removes call) []call { return []call{docs, lost} },
			errLost, false},
		{"another process takes over", false, func(docs, takes, removes call) []call { return []call{nil, takes} },
			store.ErrFenced, false},
		{"another process takes over, and the answer is lost", false,
			func(docs, takes, removes call) []call { return []call{nil, takes, lost} }, errLost, false},
		{"they are not read once more", false,
			func(docs, takes, removes call) []call { return []call{docs, nil, nil, lost} }, errLost, false},
		{"somebody removes them", false,
			func(docs, takes, removes call) []call { return []call{docs, nil, nil, removes} }, store.ErrFenced, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := redistest.StartMini(t)
			p := store.New(s.Client, "lapse", 0, 1)
			docs := func() error {
				if err := p.Take(ctx, store.State{Log: "1"}, "v0", 0); err != nil {
					return err
				}
				keys, err := p.Leftovers(ctx)
				if err != nil {
					return err
				}
				return s.Client.Rename(ctx, keys[0], strings.TrimSuffix(keys[0], "state")+"docs:c").Err()
			}
			takes := func() error { return p.Take(ctx, store.State{Log: "1"}, "other", 0) }
			removes := func() error { return s.Client.FlushAll(ctx).Err() }
			e := examiner{&Parts{Store: &disturbed{p, tt.before(docs, takes, removes)}, Log: log}}
			f, err := e.State(ctx, known{EverTaken: tt.taken})
			if !errors.Is(err, tt.want) {
				t.Fatalf("the examination returns %v, want %v", err, tt.want)
			}
			text := ""
			if err = errors.Join(err, f.Damage); err != nil {
				text = err.Error()
			}
			if strings.Contains(text, "docs:c") != tt.names || strings.Contains(text, ":state)") {
				t.Errorf("it says: %s", text)
			}
			if tt.taken != errors.Is(f.Damage, store.ErrDamaged) {
				t.Errorf("the damage is %v", f.Damage)
			}
		})
	}
}

// TestG7_Lacks: a shard lacks what it had behind its offset, by its own mark, by the checkpoint, or as the
// owner remembers it. It lacks nothing at the offset itself: readers get answers from there on.
func TestG7_Lacks(t *testing.T) {
	state := store.State{Version: "v", Offset: 10}
	rebuilding := state
	rebuilding.Rebuild = 12
	for _, tt := range []struct {
		state      store.State
		checkpoint uint64
		known      known
		want       uint64
	}{
		{state, 0, known{}, 0},
		{state, 10, known{}, 0},
		{state, 11, known{}, 11},
		{rebuilding, 11, known{}, 12},
		{rebuilding, 13, known{}, 13},
		{state, 0, known{EverTaken: true, Committed: 10}, 0},
		{state, 11, known{EverTaken: true, Committed: 14}, 14},
		{state, 11, known{Committed: 14}, 11},
		{store.State{}, 11, known{}, 20},
	} {
		v := verdict{facts: &facts{State: tt.state}, trial: trial{Known: Checkpoint{Seq: tt.checkpoint}}}
		if got := v.Rebuild(tt.known, 20); got != tt.want {
			t.Errorf("%+v, checkpoint %d, %+v: it lacks what is up to %d, want %d", tt.state, tt.checkpoint, tt.known,
				got, tt.want)
		}
	}
}

// TestG7_WhatAShardLacks: a shard in Redis that is older than it was lacks all that came since,
// and readers get errors until it has that again. How far it was is known from the rebuild that has not
// ended, from the checkpoint, and to its owner from the last commit.
//
// It fails if one of them does not count: readers would get what Redis has gone back to.
func TestG7_WhatAShardLacks(t *testing.T) {
	for name, tt := range map[string]struct {
		state      store.State
		checkpoint uint64
		known      known
		want       uint64
	}{
		"there is no state":      {store.State{}, 5, known{EverTaken: true, Committed: 7}, 99},
		"nothing is known of it": {store.State{Version: "v", Offset: 10}, 0, known{}, 0},
		"it is as far as it was": {store.State{Version: "v", Offset: 10}, 10, known{EverTaken: true,
			Committed: 10}, 0},
		"it is farther": {store.State{Version: "v", Offset: 10}, 9, known{EverTaken: true,
			Committed: 9}, 0},
		"the checkpoint is farther": {store.State{Version: "v", Offset: 10}, 11, known{}, 11},
		"its last commit is farther": {store.State{Version: "v", Offset: 10}, 9, known{EverTaken: true,
			Committed: 11}, 11},
		"a commit of another life": {store.State{Version: "v", Offset: 10}, 9, known{Committed: 11}, 0},
		"it is being rebuilt": {store.State{Version: "v", Offset: 10, Rebuild: 20}, 11, known{EverTaken: true,
			Committed: 12}, 20},
		"it has just been rebuilt": {store.State{Version: "v", Offset: 10, Rebuild: 10}, 0, known{}, 0},
		"it went back while rebuilding": {store.State{Version: "v", Offset: 10, Rebuild: 11}, 20, known{EverTaken: true,
			Committed: 12}, 20},
	} {
		v := verdict{facts: &facts{State: tt.state}, trial: trial{Known: Checkpoint{Seq: tt.checkpoint}}}
		if got := v.Rebuild(tt.known, 99); got != tt.want {
			t.Errorf("%s: it lacks what came up to %d, want %d", name, got, tt.want)
		}
	}
}

// answers is a stored shard with these answers.
type answers struct {
	Store
	state     store.State
	err       error      // of Load
	damaged   string     // a collection
	lost      string     // one without an answer
	verified  []int      // collections of each call
	leftovers [][]string // of each call
}

func (a *answers) Load(context.Context) (store.State, error) { return a.state, a.err }

func (a *answers) Leftovers(context.Context) (keys []string, err error) {
	keys, a.leftovers = a.leftovers[0], a.leftovers[1:]
	return keys, nil
}

func (a *answers) Verify(_ context.Context, version string, collections []string, _ ...store.IndexOf) error {
	a.verified = append(a.verified, len(collections))
	switch {
	case version != a.state.Version:
		return store.ErrFenced
	case slices.Contains(collections, a.damaged):
		return store.ErrDamaged
	case slices.Contains(collections, a.lost):
		return errLost
	}
	return nil
}

// TestG7_TheStateIsVerified: what is stored is whole only if each collection is, and only of this log. Damage is
// something that the owner mends; without an answer it asks again.
func TestG7_TheStateIsVerified(t *testing.T) {
	var many []string
	for i := range 201 {
		many = append(many, fmt.Sprint("c", i))
	}
	state := func(log string, collections ...string) store.State {
		return store.State{Version: "v", Log: log, Collections: collections}
	}
	keys := []string{"d", "c", "b", "a"}
	for _, tt := range []struct {
		name     string
		store    answers
		known    known
		verified []int
		damage   bool
		want     error
		says     string
	}{
		{"collections", answers{state: state("1", many...)}, known{}, []int{100, 100, 1}, false, nil, ""},
		{"none", answers{state: state("1")}, known{}, []int{0}, false, nil, ""},
		{"another log", answers{state: state("2", many...)}, known{}, nil, false, nil, ""},
		{"damage", answers{state: state("1", many...), damaged: "c150"}, known{}, []int{100, 100}, true, nil, ""},
		{"no answer", answers{state: state("1", many...), lost: "c0"}, known{}, []int{100}, false, errLost, ""},
		{"the owner knows of damage", answers{state: state("1")}, known{Damage: store.ErrDamaged}, []int{0}, true, nil,
			""},
		{"the state is damaged", answers{err: store.ErrDamaged}, known{}, nil, true, nil, ""},
		{"the state is not known", answers{err: errLost}, known{Damage: store.ErrDamaged}, nil, false, errLost, ""},
		{"nothing", answers{leftovers: [][]string{nil}}, known{}, nil, false, nil, ""},
		{"keys of others", answers{leftovers: [][]string{keys, {"a", "e", "b", "c", "d"}}}, known{}, nil, false,
			store.ErrForeign, "there are 4 keys without the state that belongs to them (a, b, c)"},
		{"a key of others", answers{leftovers: [][]string{keys, {"c"}}}, known{}, nil, false, store.ErrForeign,
			"there are 1 keys without the state that belongs to them (c)"},
		{"the rest of a shard", answers{leftovers: [][]string{keys, keys}}, known{EverTaken: true}, nil, true, nil,
			"its state is gone, and 4 keys are left (a, b, c)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := examiner{&Parts{Store: &tt.store, Log: streams.NewLog(&streams.Streams{ID: "1"}, nil)}}
			f, err := e.State(t.Context(), tt.known)
			if !errors.Is(err, tt.want) || errors.Is(f.Damage, store.ErrDamaged) != tt.damage ||
				!strings.Contains(fmt.Sprint(errors.Join(err, f.Damage)), tt.says) {
				t.Errorf("%v, damage %v", err, f.Damage)
			}
			if want := max(tt.store.state.Log, "1"); f.State.Log != want {
				t.Errorf("the state is of log %q, want %s", f.State.Log, want)
			}
			if !slices.Equal(tt.store.verified, tt.verified) {
				t.Errorf("%v collections were verified, want %v", tt.store.verified, tt.verified)
			}
		})
	}
}

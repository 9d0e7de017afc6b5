package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

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
		{"the owner knows of damage", answers{state: state("1")}, known{Damage: store.ErrDamaged}, []int{0}, true, nil, ""},
		{"the state is damaged", answers{err: store.ErrDamaged}, known{}, nil, true, nil, ""},
		{"the state is not known", answers{err: errLost}, known{Damage: store.ErrDamaged}, nil, false, errLost, ""},
		{"nothing", answers{leftovers: [][]string{nil}}, known{}, nil, false, nil, ""},
		{"keys of others", answers{leftovers: [][]string{keys, {"a", "e", "b", "c", "d"}}}, known{}, nil, false, store.ErrForeign, "there are 4 keys without the state that belongs to them (a, b, c)"},
		{"a key of others", answers{leftovers: [][]string{keys, {"c"}}}, known{}, nil, false, store.ErrForeign, "there are 1 keys without the state that belongs to them (c)"},
		{"the rest of a shard", answers{leftovers: [][]string{keys, keys}}, known{EverTaken: true}, nil, true, nil, "its state is gone, and 4 keys are left (a, b, c)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := examiner{&Parts{Store: &tt.store, Log: streams.NewLog(&streams.Streams{ID: "1"}, nil)}}
			f, err := e.State(t.Context(), tt.known)
			if !errors.Is(err, tt.want) || errors.Is(f.Damage, store.ErrDamaged) != tt.damage || !strings.Contains(fmt.Sprint(errors.Join(err, f.Damage)), tt.says) {
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

package shard

import (
	"context"
	"errors"
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
		before func(docs, takes, removes func() error) []func() error // Load, Leftovers, Load, Leftovers
		want   error                                                  // nil: there is nothing
		names  bool
	}{
		{"nothing is there", false, func(docs, takes, removes func() error) []func() error { return nil }, nil, false},
		{"keys of somebody", false, func(docs, takes, removes func() error) []func() error { return []func() error{docs} }, store.ErrForeign, true},
		{"the state has been lost", true, func(docs, takes, removes func() error) []func() error { return []func() error{docs} }, nil, true},
		{"the first answer is lost", false, func(docs, takes, removes func() error) []func() error { return []func() error{lost} }, errLost, false},
		{"the keys are not known", false, func(docs, takes, removes func() error) []func() error { return []func() error{docs, lost} }, errLost, false},
		{"another process takes over", false, func(docs, takes, removes func() error) []func() error { return []func() error{nil, takes} }, store.ErrFenced, false},
		{"another process takes over, and the answer is lost", false, func(docs, takes, removes func() error) []func() error { return []func() error{nil, takes, lost} }, errLost, false},
		{"they are not read once more", false, func(docs, takes, removes func() error) []func() error { return []func() error{docs, nil, nil, lost} }, errLost, false},
		{"somebody removes them", false, func(docs, takes, removes func() error) []func() error { return []func() error{docs, nil, nil, removes} }, store.ErrFenced, false},
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

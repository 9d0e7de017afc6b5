package simulation

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/plan"
)

// objects are the objects of the snapshots as a process sees them: over the network. Those of the second region are a
// mirror: it gets what the first one stores, and does not see what that removes.
type objects struct{ process *process }

// shelf is where the objects of the snapshots are. Its last changes can be lost.
type shelf struct {
	objects map[string][]byte
	past    []stocktaking // before each change
}

// stocktaking is what a shelf had at an instant.
type stocktaking struct {
	at      time.Time
	objects map[string][]byte
}

// change makes a change of a copy.
func (s *shelf) change(do func(objects map[string][]byte)) error {
	s.past = append(s.past, stocktaking{time.Now(), s.objects})
	s.objects = maps.Clone(s.objects)
	if s.objects == nil {
		s.objects = map[string][]byte{}
	}
	do(s.objects)
	return nil
}

// loseEnd loses the last n objects that were stored, but none that was stored longer ago than the sync
// interval. What was removed since is not back: the server removes files at once.
func (s *shelf) loseEnd(n int, interval time.Duration) {
	synced := time.Now().Add(-interval)
	s.past = slices.DeleteFunc(s.past, func(past stocktaking) bool { return !past.at.After(synced) })
	if n = min(n, len(s.past)); n == 0 {
		return
	}
	had := s.past[len(s.past)-n].objects
	s.past = s.past[:len(s.past)-n]
	objects := maps.Clone(s.objects)
	maps.DeleteFunc(objects, func(name string, _ []byte) bool { return had[name] == nil })
	s.objects = objects
}

func (s *shelf) Put(_ context.Context, name string, data []byte) error {
	return s.change(func(objects map[string][]byte) { objects[name] = bytes.Clone(data) })
}

func (s *shelf) Get(_ context.Context, name string) ([]byte, error) {
	return bytes.Clone(s.objects[name]), nil
}

func (s *shelf) Names(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(s.objects)), nil
}

func (s *shelf) Remove(_ context.Context, tokens string) error {
	return s.change(func(objects map[string][]byte) {
		maps.DeleteFunc(objects, func(name string, _ []byte) bool { return strings.HasPrefix(name, tokens+".") })
	})
}

// request makes a call to the objects. If a message is lost, the call has no end but that of ctx, as
// those of JetStream.
func request[T any](ctx context.Context, o objects, lane string, do func() (T, error)) (T, error) {
	return submit(ctx, &call{process: o.process, lane: "objects " + lane, silent: true, done: make(chan struct{})}, do)
}

func (o objects) Put(ctx context.Context, name string, data []byte) error {
	_, err := request(ctx, o, "put "+name, func() (struct{}, error) {
		if w := o.process.world; w.second != nil && !w.second.promoted && o.process.site == &w.site {
			_ = w.second.objects.Put(ctx, name, data)
		}
		return struct{}{}, o.process.site.objects.Put(ctx, name, data)
	})
	return err
}

func (o objects) Get(ctx context.Context, name string) ([]byte, error) {
	return request(ctx, o, "get "+name, func() ([]byte, error) { return o.process.site.objects.Get(ctx, name) })
}

func (o objects) Names(ctx context.Context) ([]string, error) {
	return request(ctx, o, "names", func() ([]string, error) { return o.process.site.objects.Names(ctx) })
}

func (o objects) Remove(ctx context.Context, tokens string) error {
	_, err := request(ctx, o, "remove "+tokens, func() (struct{}, error) {
		return struct{}{},
			o.process.site.objects.Remove(ctx, tokens)
	})
	return err
}

// snapshots lets somebody ask for a snapshot, or harms a generation.
func (w *World) snapshots(s plan.Step) {
	if s.Verb == "snapshot" {
		_, sent := w.nats.Append(prefix.Snapshot(0), nil, nil)
		w.deliver(sent)
		return
	}
	ctx := context.Background()
	names, _ := w.objects.Names(ctx)
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	name := names[s.Number(0)%len(names)]
	if s.Verb == "snapshot-lose" {
		_ = w.objects.Remove(ctx, name[:strings.LastIndexByte(name, '.')])
		return
	}
	data, _ := w.objects.Get(ctx, name)
	data[len(data)/2] ^= 1
	_ = w.objects.Put(ctx, name, data)
}

package shard

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/store"
)

const (
	loadedAtOnce = 1 << 20 // in the values of the entries of a batch
	stepTime     = 50 * time.Millisecond
)

// configsAtOnce is how many configurations one commit brings at the end of a load. Redis limits how
// many arguments a command has, and Lua how many values a call has.
const configsAtOnce = 1000

// entriesAtOnce is how many entries a batch has. A test changes it.
var entriesAtOnce = 1000

// loader loads a snapshot into a shard that was cleared.
//
// The state of the shard says that it is being removed until everything is loaded, and the last commit ends that. So
// readers get an error meanwhile, and a load that was interrupted is begun again by the next takeover.
type loader struct {
	Manifest *snapshot.Manifest
	Began    time.Time
	// Documents is how many documents the shard has, after End.
	Documents uint64

	store       Store
	cleared     string // the version of the shard after it was cleared
	version     string // of the shard
	fills       int
	next        func() (snapshot.Entry, error, bool)
	stop        func()
	collections map[string]struct{} // that may have documents
	batch       batch
}

// newLoader makes a loader of a snapshot with entries, into a shard that was cleared and is at a
// version. The caller has to call Close.
func newLoader(to Store, version string, m *snapshot.Manifest, entries iter.Seq2[snapshot.Entry, error]) *loader {
	l := &loader{Manifest: m, Began: time.Now(), store: to, cleared: version, version: version,
		collections: make(map[string]struct{})}
	l.next, l.stop = iter.Pull2(entries)
	return l
}

// Close ends the reading of the snapshot. A nil loader has nothing to end.
func (l *loader) Close() {
	if l != nil {
		l.stop()
	}
}

// Load loads some of the snapshot. done reports that there is no more.
func (l *loader) Load(ctx context.Context) (done bool, err error) {
	for until := time.Now().Add(stepTime); !done && time.Now().Before(until); {
		l.batch.clear()
		for !l.batch.full() {
			e, err, more := l.next()
			if err != nil {
				return false, err
			}
			if done = !more; done {
				break
			}
			if err := l.take(e); err != nil {
				return false, err
			}
		}
		if len(l.batch.changes) > 0 {
			l.fills++
			next := fmt.Sprintf("%s-%d", l.cleared, l.fills)
			if err := l.store.Fill(ctx, l.version, next, l.batch.changes); err != nil {
				return false, err
			}
			l.version = next
		}
	}
	return done, nil
}

func (l *loader) take(e snapshot.Entry) error {
	switch e.Kind {
	case snapshot.Put:
		l.collections[e.Collection] = struct{}{}
	case snapshot.Move:
		l.collections[string(e.Value)] = struct{}{}
	}
	return l.batch.add(e)
}

// End ends the load: the shard is as the manifest describes it, and lacks what the log has up
// to rebuild. It returns the state. A shard may have any number of configurations.
func (l *loader) End(ctx context.Context, version string, rebuild uint64) (s store.State, err error) {
	m := l.Manifest
	s = store.State{Version: version, Log: m.Log, Offset: m.Offset, Watermark: m.Watermark, Stamp: m.Stamp,
		Rebuild: rebuild, Configured: m.Configured,
		Configs: make(map[string]store.Config, len(m.Configs))}
	if s.Collections, l.Documents, err = l.store.Count(ctx, l.version,
		slices.Sorted(maps.Keys(l.collections))); err != nil {
		return s, err
	}
	at := store.Progress{Version: l.version, Offset: m.Offset, Watermark: m.Watermark, Stamp: m.Stamp,
		Rebuild: store.Clearing, Configured: m.Configured}
	var configs []store.ConfigChange
	var changes []store.CollectionChanges
	// commit brings the configurations so far. Until the last one, the state says that the load has not ended.
	commit := func(next string) error {
		at.Next = next
		err := l.store.Commit(ctx, at, configs, changes)
		at.Version, configs, changes = next, configs[:0], changes[:0]
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Configs)) {
		if len(configs) == configsAtOnce {
			if err := commit(fmt.Sprintf("%s-configs-%d", l.cleared, len(s.Configs))); err != nil {
				return s, err
			}
		}
		c, err := store.DecodeConfig(m.Configs[name])
		if err != nil {
			return s, fmt.Errorf("%w: %w", snapshot.ErrDamaged, err)
		}
		s.Configs[name] = c
		configs = append(configs, store.ConfigChange{Collection: name, Config: &c})
		// A snapshot has no entries of property indexes: they are made again.
		if _, full := slices.BinarySearch(s.Collections, name); full && len(c.Indexes) > 0 {
			m := fold.BeginMaking(c)
			if s.Making == nil {
				s.Making = make(map[string]store.Making)
			}
			s.Making[name] = m
			changes = append(changes, store.CollectionChanges{Collection: name, Making: &m})
		}
	}
	at.Rebuild = rebuild
	return s, commit(version)
}

// batch gathers entries that are written in one call, one change after the other. A change has no document twice: a
// second entry of one begins another change of its collection.
type batch struct {
	changes []store.CollectionFill
	open    map[string]int // the last change of each collection, where more may be added to it
	last    map[key]int    // the change that has the last entry of each document
	entries int
	bytes   int
}

// key names a document.
type key struct{ collection, id string }

// full reports whether the batch is large enough to be written.
func (b *batch) full() bool { return b.entries >= entriesAtOnce || b.bytes >= loadedAtOnce }

// clear empties the batch.
func (b *batch) clear() {
	*b = batch{open: make(map[string]int), last: make(map[key]int, entriesAtOnce)}
}

// add adds an entry, whose value it copies.
func (b *batch) add(e snapshot.Entry) error {
	b.entries++
	b.bytes += len(e.Value)
	switch e.Kind {
	case snapshot.Drop:
		b.begin(store.CollectionFill{Collection: e.Collection, Drop: true})
		return nil
	case snapshot.Move:
		to := string(e.Value)
		b.begin(store.CollectionFill{Collection: e.Collection, MoveTo: to})
		delete(b.open, e.Collection)
		delete(b.open, to)
		return nil
	}
	k := key{e.Collection, e.ID}
	i, open := b.open[e.Collection]
	if last, again := b.last[k]; !open || again && last == i {
		i = b.begin(store.CollectionFill{Collection: e.Collection})
	}
	b.last[k] = i
	c, document := &b.changes[i], store.Document{Collection: e.Collection, ID: e.ID, Value: string(e.Value)}
	switch e.Kind {
	case snapshot.Put:
		c.Put = append(c.Put, document)
	case snapshot.Renew:
		c.Renew = append(c.Renew, document)
	case snapshot.Remove:
		c.Remove = append(c.Remove, e.ID)
	default:
		return fmt.Errorf("%w: it has an entry of kind %d, which this version of lapse does not know",
			snapshot.ErrDamaged, e.Kind)
	}
	return nil
}

// begin begins another change of a collection, and returns its place.
func (b *batch) begin(c store.CollectionFill) int {
	b.open[c.Collection] = len(b.changes)
	b.changes = append(b.changes, c)
	return len(b.changes) - 1
}

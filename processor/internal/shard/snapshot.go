package shard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// errAgain is why a snapshot is abandoned when the shard is taken over again.
var errAgain = errors.New("the shard is taken over again")

// errEnds is why a snapshot is abandoned when the owner ends.
var errEnds = errors.New("the process ends, or gives the shard up")

// record scans some documents for a snapshot, if one is wanted and it is time to. A shard
// that lacks documents takes none.
func (p *Owner) record(ctx context.Context) error {
	t := &p.tenure
	if t.recording == nil && p.progress.Rebuild == 0 {
		if w := p.Desk.Order(); w != nil {
			t.recording = beginRecording(w, p.collections)
		}
	}
	if t.recording.Failed() {
		t.recording = nil // the writer says why
	}
	if t.recording == nil || t.recording.Wait(time.Now()) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (documents of a snapshot)")()
	began := time.Now()
	done, err := t.recording.Scan(ctx, p.Store, p.progress.Version, p.collections, p.Queue.ReadUpTo().Seq)
	if err != nil {
		return err
	}
	t.verified = began
	if err := p.Hook.At(crash.AfterCopy); err != nil || !done {
		return err
	}
	return p.recorded(ctx)
}

// recorded ends a snapshot at the committed position.
func (p *Owner) recorded(ctx context.Context) error {
	if !p.progress.IsCommitted() {
		if err := p.commit(ctx, p.progress.Here(), nil, nil); err != nil {
			return err
		}
	}
	if err := p.Hook.At(crash.BeforeSnapshot); err != nil {
		return err
	}
	published := p.announcer.PublishedUpTo()
	p.tenure.recording.Finish(snapshot.Manifest{
		Offset: p.progress.CommittedOffset, Watermark: p.progress.CommittedWatermark, Stamp: p.progress.Stamp,
		Configured: p.progress.Configured,
		Published:  published.Seq, PublishedTime: published.Watermark, From: published.From, Last: p.announcer.Last(),
	})
	p.tenure.recording = nil
	return nil
}

// rest is how long the owner waits for messages before it looks after its duties.
func (p *Owner) rest() time.Duration {
	rest := p.lookUpIn()
	if p.tenure.recording != nil {
		rest = min(rest, p.tenure.recording.Wait(time.Now()))
	}
	if p.collections != nil && p.collections.IndexesMade() > 0 {
		rest = min(rest, max(p.makeIn(), time.Millisecond))
	}
	return rest
}

// abandon gives up the snapshot that is being taken, and the load of one.
func (p *Owner) abandon(why error) {
	p.tenure.recording.Abandon(why)
	p.tenure.loader.Close()
	p.tenure.recording, p.tenure.loader, p.tenure.loads = nil, nil, nil
}

// clear clears the shard, to load the snapshot that was found. The state says so until the
// load has ended. It returns the state at the snapshot's offset.
func (p *Owner) clear(ctx context.Context, m *snapshot.Manifest) (store.State, error) {
	version := p.progress.Version
	next := store.State{Version: p.progress.Cleared(), Log: m.Log, Offset: m.Offset, Watermark: m.Watermark,
		Stamp: m.Stamp, Configured: m.Configured, Events: p.announcer.Last().String()}
	err := p.Store.Take(ctx, store.State{Version: version}, version, store.Clearing)
	if err == nil {
		err = p.Store.Clear(ctx, version, next, store.Clearing)
	}
	if err == nil {
		err = p.Hook.At(crash.AfterClear)
	}
	return next, err
}

// load loads some of the snapshot that was found.
func (p *Owner) load(stop context.Context) error {
	t := &p.tenure
	if t.loader == nil {
		p.Logger.Info("the shard is loaded from a snapshot", slog.Uint64("generation", t.loads.Generation),
			slog.Uint64("offset", t.loads.Offset))
		t.loader = newLoader(p.Store, p.progress.Version, t.loads, p.Desk.Store().Entries(stop, t.loads))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("loading a snapshot, from NATS into Redis")()
	began := time.Now()
	done, err := t.loader.Load(ctx)
	if err != nil {
		return err
	}
	t.verified = began
	if err := p.Hook.At(crash.AfterFill); err != nil || !done {
		return err
	}
	if err := p.Hook.At(crash.BeforeLoaded); err != nil {
		return err
	}
	s, err := t.loader.End(ctx, p.progress.Claimed(), p.progress.Rebuild)
	if err != nil {
		return err
	}
	if err := p.Hook.At(crash.AfterLoaded); err != nil {
		return err
	}
	p.progress.Resume(s, s.Version, s.Rebuild)
	p.collections = p.collections.Anew(s.Configs, s.Collections)
	p.collections.ResumeMaking(s.Making)
	p.warnFrom()
	p.Logger.Info("the shard was loaded from a snapshot", slog.Uint64("generation", t.loads.Generation),
		slog.Uint64("offset", s.Offset),
		slog.Uint64("documents", t.loader.Documents), slog.Duration("took", time.Since(t.loader.Began)))
	p.abandon(nil)
	return nil
}

const (
	collectionsAtOnce = 32
	documentsAtOnce   = 128
	bytesAtOnce       = 128 << 10 // in the values of these documents

	// Beside traffic a scan takes a fifth of the owner's time at most, else half of it. At 5,000
	// writes a second, a tenth of the time and 64 documents took a third of the snapshots, and the
	// p99 of the events was the same (12.4 and 12.9 ms).
	restBusy    = 4
	restIdle    = 1
	waitForRoom = 10 * time.Millisecond
)

// snapshotWriter takes the entries of a snapshot: see [snapshot.Writer].
type snapshotWriter interface {
	Room() bool
	Add(e snapshot.Entry)
	Failed() bool
	Finish(m snapshot.Manifest)
	Abandon(why error)
}

// recording is a snapshot that is being taken, while the owner goes on. A nil one takes none. Only the
// owner's goroutine uses it.
//
// It scans the documents, some at a time, between the steps of the owner. From its
// beginning on it also adds the effect of each commit. The entries come in the order in which
// this happens, and each collection is scanned from its beginning to its end. Then:
//
//   - current: Applied in their order to an empty shard, the entries so far give some of the documents that are stored,
//     each as it is stored now. An entry of the scan is the document as it is stored at that moment. The entries of a
//     commit do to the documents what the commit does to them; those that are not there yet stay away.
//   - still to come: A document that is stored and that the entries do not give yet was there when the scan of its
//     collection began, if it has begun: what a commit puts is given from then on. So the scan
//     will find it, as HSCAN returns what is there from the beginning of a scan to its end.
//   - renamed: A collection that is renamed keeps what the entries do not give of it yet. So it is scanned under
//     its new name too, from the beginning.
//   - complete: When all collections are scanned, the entries give exactly the documents that are
//     stored, which are those of the last commit: its offset is that of the snapshot.
//
// The second one needs that a scan does not go on in another process of Redis: Copy begins the
// collection again there. It also needs that Redis has lost nothing: the scan compares the size of
// each collection with what the last commit left.
//
// The configurations are collected in the same way. The indexes follow from the documents.
type recording struct {
	writer  snapshotWriter
	left    []string        // collections to scan; the first one has begun
	place   store.CopyPlace // in the first one
	configs map[string]string
	next    time.Time // when to scan some more
	seen    uint64    // how far the log was read at the last scan
}

// beginRecording begins a snapshot of collections.
func beginRecording(w snapshotWriter, collections *fold.Collections) *recording {
	return &recording{writer: w, left: collections.All(), configs: make(map[string]string)}
}

// Failed reports whether the writer has failed: then the snapshot is over.
func (r *recording) Failed() bool { return r != nil && r.writer.Failed() }

// Wait is how long to wait before the next scan.
func (r *recording) Wait(now time.Time) time.Duration {
	if !r.writer.Room() {
		return waitForRoom
	}
	return max(0, r.next.Sub(now))
}

// Scan scans some documents of a shard that is at a version. The log was read up to read: it
// scans more where that does not move. done reports that all documents are scanned.
func (r *recording) Scan(ctx context.Context, from Store, version string, collections *fold.Collections,
	read uint64) (done bool, err error) {
	began := time.Now()
	some := r.left[:min(collectionsAtOnce, len(r.left))]
	copied, err := from.Copy(ctx, version, some, r.place, documentsAtOnce, bytesAtOnce)
	if err != nil {
		return false, err
	}
	for _, d := range copied.Documents {
		r.writer.Add(snapshot.Entry{Kind: snapshot.Put, Collection: d.Collection, ID: d.ID, Value: []byte(d.Value)})
	}
	for _, name := range some[:copied.Done] {
		if c := collections.Collection(name); c != nil && c.IsConfigured() {
			r.configs[name] = c.Config.Encode()
		}
	}
	r.left, r.place = r.left[copied.Done:], copied.Next
	rest := time.Duration(restIdle)
	if read != r.seen {
		rest, r.seen = restBusy, read
	}
	now := time.Now()
	r.next = now.Add(rest * now.Sub(began))
	return len(r.left) == 0, nil
}

// Commit adds what a commit has changed.
func (r *recording) Commit(configs []store.ConfigChange, changes []store.CollectionChanges) {
	if r == nil {
		return
	}
	for _, c := range configs {
		if c.Config == nil {
			delete(r.configs, c.Collection)
		} else {
			r.configs[c.Collection] = c.Config.Encode()
		}
	}
	for i, c := range changes {
		switch c.Drop {
		case store.DropAll:
			r.writer.Add(snapshot.Entry{Kind: snapshot.Drop, Collection: c.Collection})
		case store.DropMoves:
			to := changes[i+1].Collection
			r.writer.Add(snapshot.Entry{Kind: snapshot.Move, Collection: c.Collection, Value: []byte(to)})
			r.left = append(r.left, to)
		}
		for _, ch := range c.Changes {
			e := snapshot.Entry{Kind: snapshot.Remove, Collection: c.Collection, ID: ch.ID}
			switch {
			case ch.New == nil:
			case ch.Body == nil:
				e.Kind, e.Value = snapshot.Renew, ch.New.Append(nil)
			default:
				e.Kind, e.Value = snapshot.Put, append(ch.New.Append(nil), ch.Body...)
			}
			r.writer.Add(e)
		}
	}
}

// Finish ends the snapshot, at the state that m describes.
func (r *recording) Finish(m snapshot.Manifest) {
	m.Configs = r.configs
	r.writer.Finish(m)
}

// Abandon gives the snapshot up.
func (r *recording) Abandon(why error) {
	if r != nil {
		r.writer.Abandon(why)
	}
}

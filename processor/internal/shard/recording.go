package shard

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/store"
)

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
//   - R1: Applied in their order to an empty shard, the entries so far give some of the
//     documents that are stored, each as it is stored now. An entry of the scan is the document
//     as it is stored at that moment. The entries of a commit do to the documents what the commit
//     does to them; those that are not there yet stay away.
//   - R2: A document that is stored and that R1 does not give was there when the scan of its
//     collection began, if it has begun: what a commit puts is given from then on. So the scan
//     will find it, as HSCAN returns what is there from the beginning of a scan to its end.
//   - R3: A collection that is renamed keeps what R1 does not give of it. So it is scanned under
//     its new name too, from the beginning.
//   - R4: When all collections are scanned, the entries give exactly the documents that are
//     stored, which are those of the last commit: its offset is that of the snapshot.
//
// R2 needs that a scan does not go on in another process of Redis: Copy begins the
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
func (r *recording) Scan(ctx context.Context, from Store, version string, collections *fold.Collections, read uint64) (done bool, err error) {
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

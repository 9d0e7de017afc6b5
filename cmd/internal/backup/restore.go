package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// backupKey is the metadata key of a restored stream that names its backup.
const backupKey = "lapse-backup"

// committedKey is the metadata key of the root of a restore that completes its streams, and is not removed any more.
const committedKey = "lapse-restore-committed"

// removeWithin limits the time in which a failed restore removes the streams that it has made.
const removeWithin = 30 * time.Second

// Target is where a backup is restored.
type Target struct {
	NATS     *nats.Conn
	Replicas int  // of each stream; as in the backup if 0
	Paused   bool // all collections, as of the end of what is restored
	// Applying reports whether a process of lapse runs there.
	Applying func(context.Context) (bool, error)
	// Progress, if set, is called with what is being done.
	Progress func(text string)
}

// restorer restores a backup.
type restorer struct {
	Target
	js       jetstream.JetStream
	contents *Contents
	id       string                            // of the restore: the file, and until where
	made     []string                          // streams
	root     jetstream.StreamConfig            // the configuration of the root when all streams are there
	last     map[string]jetstream.StreamConfig // the configuration of each stream when it is complete
}

// Restore makes the streams of a backup that was scanned. It reads the backup a second time. If ctx
// ends it, and nothing is left of it, the error is that of ctx.
func (c *Contents) Restore(ctx context.Context, t Target, in io.Reader, until Until) error {
	js, err := connect(t.NATS)
	if err != nil {
		return err
	}
	r := &restorer{Target: t, js: js, contents: c, id: c.id(until), last: make(map[string]jetstream.StreamConfig)}
	if t.Paused {
		if err := c.pause(); err != nil {
			return err
		}
		r.id += " paused"
	}
	if r.Progress == nil {
		r.Progress = func(string) {}
	}
	begun, err := r.prepare(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if err := r.transfer(ctx, in, !begun); err != nil {
		if begun {
			return err
		}
		removed := r.removeAll()
		if removed == nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.Join(err, removed)
	}
	// What is complete stays, so an interrupt waits.
	return r.complete(context.WithoutCancel(ctx))
}

// id names what a restore of this backup makes.
func (c *Contents) id(until Until) string {
	id := c.end.SHA256[:32]
	if until.Seq != 0 {
		id += fmt.Sprintf(" until %d", until.Seq)
	}
	if !until.Time.IsZero() {
		id += fmt.Sprintf(" until %d ns", until.Time.UnixNano())
	}
	return id
}

// prepare refuses servers that are not empty, and removes what an interrupted restore has left.
// begun reports that such a restore had begun to complete the streams.
func (r *restorer) prepare(ctx context.Context) (begun bool, err error) {
	applying, err := r.Applying(ctx)
	if err != nil {
		return false, err
	}
	p := r.contents.Prefix
	if applying {
		return false, fmt.Errorf("a process of lapse serves the prefix %q there: stop it first. Nothing is changed", p)
	}
	var marked []string
	var complete string // one of this restore
	names := r.contents.streams()
	for _, name := range []string{p.LogStream(), p.ConfigStream(), p.Log(0, 2).Stream()} { // of another number of shards
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		i, err := streamInfo(ctx, r.js, name)
		switch {
		case err != nil:
			return false, err
		case i == nil:
		case i.Config.Metadata[wire.FormatKey] == wire.Restoring:
			marked = append(marked, name)
			if of := i.Config.Metadata[committedKey]; of == r.id {
				begun = true
			} else if of != "" {
				return false, fmt.Errorf("stream %s is of a restore that was interrupted while it completed its streams: run "+
					"that command again. Nothing is changed", name)
			}
		case i.Config.Metadata[backupKey] == r.id:
			complete = name
		default:
			return false, exists(name)
		}
	}
	switch { // the root of a restore that has committed keeps its mark until all other streams are complete
	case begun:
		return true, nil
	case complete != "":
		return false, exists(complete)
	}
	for _, name := range r.rootFirst(marked) {
		if err := r.removeMarked(ctx, name); err != nil {
			return false, fmt.Errorf("remove stream %s, which an interrupted restore has left: %w", name, err)
		}
	}
	return false, nil
}

// exists is the refusal of a stream that is there.
func exists(stream string) error {
	return fmt.Errorf("stream %s exists: restore into servers without it. Nothing is changed", stream)
}

// transfer reads the backup, and uploads its streams under their marks.
func (r *restorer) transfer(ctx context.Context, in io.Reader, uploads bool) error {
	from, err := newReader(in)
	if err != nil {
		return err
	}
	for {
		part, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s := r.contents.stream(part.Name)
		if s == nil {
			return errChanged
		}
		first, last := r.contents.configured(s, part.Config, r.Replicas, r.id)
		if r.last[s.Name] = last; s.Name == r.contents.root() {
			r.root = first
		}
		if !uploads {
			continue
		}
		r.made = append(r.made, s.Name)
		if err := r.upload(ctx, s, first, from); err != nil {
			return fmt.Errorf("restore stream %s: %w", s.Name, err)
		}
	}
	if from.end.SHA256 != r.contents.end.SHA256 {
		return errChanged
	}
	return nil
}

// errChanged is the error of a file that is not the one that was scanned.
var errChanged = errors.New("the backup was changed while it was read")

// upload makes one stream.
func (r *restorer) upload(ctx context.Context, s *streamContents, config jetstream.StreamConfig, from *reader) error {
	read, write := io.Pipe()
	rewritten := make(chan error, 1)
	go func() {
		err := r.contents.rewrite(s, from, write)
		_ = write.CloseWithError(err) // nil is the end
		rewritten <- err
	}()
	shown := io.TeeReader(read, told(func() {
		r.Progress(fmt.Sprintf("restoring %s bytes=%d", s.Name, from.all.n.Load()))
	}))
	made, err := upload(ctx, r.NATS, config, shown)
	_ = read.CloseWithError(cmp.Or(err, io.ErrClosedPipe))
	if failed := <-rewritten; err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	if want := r.contents.next(s) - 1; made.LastSeq != want {
		return fmt.Errorf("it ends at sequence %d, and should end at %d", made.LastSeq, want)
	}
	return nil
}

// complete takes the marks from the streams, the root's last. At first it commits the restore: from then on no other
// one removes the root ([restorer.removeMarked]).
func (r *restorer) complete(ctx context.Context) error {
	r.root.Metadata, r.root.DenyDelete = maps.Clone(r.root.Metadata), true
	r.root.Metadata[committedKey] = r.id
	if err := r.update(ctx, r.root); err != nil {
		return fmt.Errorf("complete stream %s: %w: run the same command again", r.root.Name, err)
	}
	for _, name := range r.contents.streams() {
		config, ok := r.last[name]
		if !ok {
			continue
		}
		if err := r.update(ctx, config); err != nil {
			return fmt.Errorf("complete stream %s: %w: run the same command again", name, err)
		}
	}
	return nil
}

// update gives a stream a configuration, unless another restore has taken its place, or has completed it already. It
// fails if another restore is about to remove the stream.
func (r *restorer) update(ctx context.Context, config jetstream.StreamConfig) error {
	i, err := streamInfo(ctx, r.js, config.Name)
	switch {
	case err != nil:
		return err
	case i == nil || i.Config.Metadata[backupKey] != r.id:
		return errors.New("another restore has removed or replaced it")
	case i.Config.Metadata[wire.FormatKey] != wire.Restoring:
		return nil
	}
	_, err = r.js.UpdateStream(ctx, config)
	return err
}

// removeMarked removes a stream, if it is still marked: another restore may have completed it, and clients may have
// written to it. It fails if the stream is the root of another restore that has committed. NATS has no deletion on a
// condition, so a log is claimed first, by a setting that cannot be undone: deny_purge. A log that is complete refuses
// the claim, because its deny_delete cannot be undone either, and so does a root that is committed after this look. A
// log that is claimed cannot be completed.
func (r *restorer) removeMarked(ctx context.Context, name string) error {
	i, err := streamInfo(ctx, r.js, name)
	if i == nil || err != nil || i.Config.Metadata[wire.FormatKey] != wire.Restoring {
		return err
	}
	if i.Config.Metadata[committedKey] != "" {
		return errors.New("another restore has begun to complete its streams")
	}
	if slices.Equal(i.Config.Subjects, r.contents.restoringSubjects(name)) {
		i.Config.DenyPurge = true
		if _, err := r.js.UpdateStream(ctx, i.Config); err != nil {
			return r.unlessGone(ctx, name, err)
		}
	}
	if err := r.js.DeleteStream(ctx, name); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil // another restore has removed it
}

// rootFirst returns the names of streams in the order in which they are removed: without its root no restore commits.
func (r *restorer) rootFirst(names []string) []string {
	root := func(name string) int { return map[bool]int{true: 0, false: 1}[name == r.contents.root()] }
	return slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(root(a), root(b)) })
}

// unlessGone returns the error of a claim, unless another restore has removed or completed the stream meanwhile.
func (r *restorer) unlessGone(ctx context.Context, name string, claim error) error {
	i, err := streamInfo(ctx, r.js, name)
	if err != nil {
		return errors.Join(claim, err)
	}
	if i == nil || i.Config.Metadata[wire.FormatKey] != wire.Restoring {
		return nil
	}
	return claim
}

// removeAll removes what a restore that failed has made.
func (r *restorer) removeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	for _, name := range r.rootFirst(r.made) {
		if err := r.removeMarked(ctx, name); err != nil {
			return fmt.Errorf("stream %s could not be removed: %w: lapse does not start with it; the same command removes it",
				name, err)
		}
	}
	return nil
}

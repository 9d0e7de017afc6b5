package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Source is where a backup is taken.
type Source struct {
	NATS   *nats.Conn
	Prefix wire.Prefix
	Lapse  string // version
	// Applying reports whether a process of lapse applies the logs.
	Applying func(context.Context) (bool, error)
	// Progress, if set, is called with what is being done.
	Progress func(text string)
}

const (
	checkpointsEvery = 200 * time.Millisecond
	// stuckAfter is how long no checkpoint may move on while the backup waits for them.
	stuckAfter = 10 * time.Minute
)

// taker takes a backup.
type taker struct {
	Source
	js     jetstream.JetStream
	header Header
	out    *writer
	root   state
	logs   []state  // of each shard, as the backup has it
	before []record // per shard, before the snapshots were read
	bucket []*message
	taken  []streamContents
}

// Take writes a backup, and returns what it has. See the package doc for why in this order.
func Take(ctx context.Context, s Source, out io.Writer) (*Contents, error) {
	t := &taker{Source: s}
	if _, err := wire.ParsePrefix(string(s.Prefix)); err != nil {
		return nil, err
	}
	if t.Progress == nil {
		t.Progress = func(string) {}
	}
	var err error
	if t.js, err = connect(s.NATS); err != nil {
		return nil, err
	}
	if err := t.find(ctx); err != nil {
		return nil, err
	}
	if t.out, err = newWriter(out, t.header); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) error{t.snapshots, t.takeLogs, t.checkpoints, t.events, t.end} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return &Contents{Header: t.header, Bytes: t.out.all.n.Load(), Streams: t.taken}, nil
}

// find finds out which streams there are.
func (t *taker) find(ctx context.Context) error {
	root, err := streamInfo(ctx, t.js, t.Prefix.LogStream())
	if root == nil && err == nil {
		root, err = streamInfo(ctx, t.js, t.Prefix.ConfigStream())
	}
	if err != nil {
		return err
	}
	if root == nil {
		return fmt.Errorf("there is no lapse with the prefix %q: no stream %s", t.Prefix, t.Prefix.LogStream())
	}
	metadata := root.Config.Metadata
	if err := wire.CheckFormat("the log of "+string(t.Prefix), metadata[wire.FormatKey]); err != nil {
		return err
	}
	region, err := wire.ParseRegion(metadata)
	switch {
	case err != nil:
		return fmt.Errorf("the log of %s: %w", t.Prefix, err)
	case region.Follows != "":
		return fmt.Errorf("this region follows the one in the JetStream domain %q, and has mirrors of its streams: "+
			"back up that region", region.Follows)
	case region.Superseded != nil:
		return fmt.Errorf("another region was promoted in place of this one %s: back up that region", region.Superseded)
	}
	shards, err := wire.ParseShards(metadata)
	if err != nil {
		return fmt.Errorf("the log of %s: %w", t.Prefix, err)
	}
	t.header = Header{Lapse: t.Lapse, Prefix: t.Prefix, Shards: shards, Taken: root.TimeStamp}
	return nil
}

// stream writes a stream as the server sends it, and returns its state. visit gets each message.
func (t *taker) stream(ctx context.Context, name string, consumers bool, visit func(*message)) (s state, err error) {
	i, err := streamInfo(ctx, t.js, name)
	if err == nil && i == nil {
		err = errors.New("there is no such stream")
	}
	if err != nil {
		return s, fmt.Errorf("back up stream %s: %w", name, err)
	}
	found := streamContents{Name: name}
	part := stream{Name: name, Config: i.Config, Identity: wire.Identity(i.Config.Metadata, i.Created)}
	err = t.out.Stream(part, func(w io.Writer) error {
		read, write := io.Pipe()
		seen := make(chan error, 1)
		go func() {
			var err error
			s, err = visitAll(read, func(m *message) {
				found.count(m)
				visit(m)
			})
			if err == nil {
				_, err = io.Copy(io.Discard, read)
			}
			_ = read.CloseWithError(cmp.Or(err, io.ErrClosedPipe))
			seen <- err
		}()
		shown := told(func() { t.Progress(fmt.Sprintf("backing up %s bytes=%d", name, t.out.all.n.Load())) })
		err := download(ctx, t.NATS, name, consumers, io.MultiWriter(w, write, shown))
		_ = write.CloseWithError(cmp.Or(err, io.EOF))
		return cmp.Or(err, <-seen)
	})
	if err != nil {
		return s, fmt.Errorf("back up stream %s: %w", name, err)
	}
	t.taken = append(t.taken, found)
	return s, nil
}

// told is called when something is written.
type told func()

func (t told) Write(b []byte) (int, error) {
	t()
	return len(b), nil
}

// snapshots writes the object store of snapshots.
func (t *taker) snapshots(ctx context.Context) error {
	i, err := streamInfo(ctx, t.js, t.Prefix.SnapshotStream())
	if i == nil || err != nil {
		return err
	}
	if t.before, err = t.records(ctx); err != nil {
		return err
	}
	if _, err = t.stream(ctx, t.Prefix.SnapshotStream(), false, func(*message) {}); err != nil {
		return err
	}
	after, err := t.records(ctx)
	if err != nil {
		return err
	}
	for shard := range t.before {
		t.before[shard].Keep(func(g wire.Generation) bool { return slices.Contains(after[shard].Generations, g) })
	}
	return nil
}

// records reads the records of the snapshots of all shards.
func (t *taker) records(ctx context.Context) ([]record, error) {
	all := make([]record, t.header.Shards)
	for shard := range all {
		m, err := bucketValue(ctx, t.NATS, t.header, wire.SnapshotKey(shard))
		if err == nil {
			all[shard], err = parseRecord(m)
		}
		if err != nil {
			return nil, fmt.Errorf("read the record of the snapshots of shard %d: %w", shard, err)
		}
	}
	return all, nil
}

// takeLogs writes the logs and, with several shards, the stream of configurations.
func (t *taker) takeLogs(ctx context.Context) error {
	for _, name := range t.header.logs() {
		first := uint64(0)
		s, err := t.stream(ctx, name, false, func(m *message) { first = cmp.Or(first, m.Seq) })
		if err != nil {
			return err
		}
		if first != 0 {
			s.FirstSeq = first // it may have been truncated meanwhile
		}
		t.logs = append(t.logs, s)
	}
	t.root = t.logs[0]
	if t.header.Shards == 1 {
		return nil
	}
	var err error
	t.root, err = t.stream(ctx, t.header.root(), false, func(*message) {})
	return err
}

// checkpoints waits for the checkpoints, and writes their bucket.
func (t *taker) checkpoints(ctx context.Context) error {
	bucket, err := streamInfo(ctx, t.js, t.Prefix.CheckpointStream())
	if bucket == nil || err != nil {
		return err
	}
	began, moved := time.Now(), uint64(0)
	for {
		behind, sum, err := t.readCheckpoints(ctx)
		if err != nil {
			return fmt.Errorf("read the checkpoints: %w", err)
		}
		if behind == nil {
			break
		}
		if sum != moved {
			began, moved = time.Now(), sum
		}
		applying, err := t.Applying(ctx)
		if err != nil {
			return err
		}
		if !applying {
			break
		}
		if time.Since(began) > stuckAfter {
			return fmt.Errorf("%w, and it does not move on: lapse status shows why", behind)
		}
		t.Progress("waiting: " + behind.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(checkpointsEvery):
		}
	}
	if err := t.covered(); err != nil {
		return err
	}
	for _, r := range t.before {
		if r.message == nil {
			continue
		}
		if err := r.store(); err != nil {
			return err
		}
		t.bucket = append(t.bucket, r.message)
	}
	return t.writeBucket(bucket)
}

// readCheckpoints reads the checkpoints of all shards. behind names one that has not reached
// the end of its log; sum grows when one moves on.
func (t *taker) readCheckpoints(ctx context.Context) (behind error, sum uint64, err error) {
	t.bucket = t.bucket[:0]
	for shard := range t.header.Shards {
		m, err := bucketValue(ctx, t.NATS, t.header, checkpointKey(shard))
		if err != nil {
			return nil, 0, err
		}
		c, err := parseCheckpoint(m)
		if err != nil {
			return nil, 0, fmt.Errorf("shard %d: %w", shard, err)
		}
		if end := t.logs[shard].LastSeq; c.Seq < end && behind == nil {
			behind = fmt.Errorf("lapse has published what %s caused up to sequence %d, and the backup ends at %d",
				t.header.logs()[shard], c.Seq, end)
		}
		sum += c.Seq
		if m != nil {
			t.bucket = append(t.bucket, m)
		}
	}
	return behind, sum, nil
}

// covered returns an error unless Redis can be built from the backup.
func (t *taker) covered() error {
	for shard, log := range t.logs {
		reaches := func(g wire.Generation) bool { return g.Offset > 0 && g.Offset+1 >= log.FirstSeq }
		var c checkpoint
		for _, m := range t.bucket {
			if m.Subject == t.Prefix.CheckpointSubject(checkpointKey(shard)) {
				c, _ = parseCheckpoint(m)
			}
		}
		if log.FirstSeq <= c.Origin+1 || shard < len(t.before) && slices.ContainsFunc(t.before[shard].Generations, reaches) {
			continue
		}
		return fmt.Errorf("the log %s begins at sequence %d, and no snapshot reaches it. Run lapse backup again after the "+
			"next snapshot, or keep the whole log", t.header.logs()[shard], log.FirstSeq)
	}
	return nil
}

// writeBucket writes the bucket of checkpoints. It is not as the server would send it: a value
// that is replaced meanwhile would be missing there.
func (t *taker) writeBucket(i *jetstream.StreamInfo) error {
	slices.SortFunc(t.bucket, func(a, b *message) int { return cmp.Compare(a.Seq, b.Seq) })
	s := state{Msgs: uint64(len(t.bucket))}
	if len(t.bucket) > 0 {
		s.FirstSeq, s.LastSeq = t.bucket[0].Seq, t.bucket[len(t.bucket)-1].Seq
	}
	name := t.Prefix.CheckpointStream()
	t.taken = append(t.taken, streamContents{Name: name, Messages: s.Msgs, First: s.FirstSeq, Last: s.LastSeq})
	return t.out.Stream(stream{Name: name, Config: i.Config}, func(w io.Writer) error {
		a, err := newArchiveWriter(w, s, nil)
		if err != nil {
			return err
		}
		for _, m := range t.bucket {
			if err := a.Message(m); err != nil {
				return err
			}
		}
		return a.Close()
	})
}

// events writes the stream of events, with the durable consumers of its subscribers.
func (t *taker) events(ctx context.Context) error {
	_, err := t.stream(ctx, t.Prefix.EventsStream(), true, func(*message) {})
	return err
}

// end writes the end mark.
func (t *taker) end(ctx context.Context) error {
	e := end{Last: make(map[string]uint64)}
	for _, name := range append(t.header.logs(), t.Prefix.EventsStream()) {
		i, err := t.existing(ctx, name)
		if err != nil {
			return err
		}
		e.Last[name] = i.State.LastSeq
	}
	var err error
	if e.Configured, err = t.configuredSince(ctx); err != nil {
		return err
	}
	return t.out.End(e)
}

// configuredSince lists the collections that were configured after the end of the logs in the backup. It returns an
// error if lapse has truncated the log behind that end, so that a configuration may be missing.
func (t *taker) configuredSince(ctx context.Context) (all []string, err error) {
	name := t.header.root()
	for after := t.root.LastSeq; ; {
		next := map[string]any{"seq": after + 1, "next_by_subj": t.Prefix.Config("*")}
		m, err := get(ctx, t.NATS, name, next)
		if err != nil {
			return nil, err
		}
		if m == nil {
			break
		}
		all = append(all, strings.TrimPrefix(m.Subject, t.Prefix.Config("")))
		after = m.Seq
	}
	i, err := t.existing(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case i.State.FirstSeq > t.root.LastSeq+1:
		return nil, fmt.Errorf("the backup has stream %s up to sequence %d, and lapse has truncated it up to %d meanwhile: "+
			"run lapse backup again", name, t.root.LastSeq, i.State.FirstSeq-1)
	}
	return all, nil
}

// existing looks up a stream that was there before. It returns an error if somebody has deleted it.
func (t *taker) existing(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	i, err := streamInfo(ctx, t.js, name)
	if err == nil && i == nil {
		err = fmt.Errorf("stream %s was deleted meanwhile", name)
	}
	return i, err
}

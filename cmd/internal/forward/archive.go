package forward

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// ArchiveOptions say what is archived where.
type ArchiveOptions struct {
	Dir      string
	Name     string // what the names of files begin with
	PerFile  uint64 // how many sequences of the stream of events a file is for (10,000)
	Bytes    int64  // how large a file grows before it is cut, without the compression (16 MiB)
	Messages client.OrderedOptions
	// Create creates a file beside the one of a name. finish renames it to that, durably, or removes it if
	// there was an error.
	Create func(name string) (out io.Writer, finish func(error) error, err error)
}

const (
	// linger is how long an archive waits for more messages before it writes a file anew, and lingerOnce
	// that with Once.
	linger, lingerOnce = 5 * time.Second, 200 * time.Millisecond
	// most is how many messages an archive holds before it writes them, and mostBytes how large they are together.
	most, mostBytes = 512, 16 << 20
)

// archiving is a call of Archive under way.
type archiving struct {
	opts   ArchiveOptions
	stream string // names the stream of events, of which there may be another one later
	in     chan archived
	files  map[span]bool // what there is, nil until it is read
}

// archived is a message that waits until it is in a file.
type archived struct {
	seq   uint64
	event event
	line  []byte     // of a file; nil if there is an event
	done  chan error // has room
}

// text is the line of the message. It is made when it is written, because it takes several copies of the event.
func (a archived) text() ([]byte, error) {
	if a.line != nil {
		return a.line, nil
	}
	return line(a.event, a.seq)
}

// size is about how long the line is.
func (a archived) size() int { return len(a.line) + len(a.event.data) + 512 }

// Archive writes messages into files until ctx is done: lines of JSON, each a CloudEvent with the extension
// sequence, in the order of the stream, compressed with gzip. A file is for a range of sequences, which is in its
// name. It is written anew with each message that comes for it, and then replaced, so a message that is
// repeated is in it once. One that grows too large is cut in two, each for half of the range: so the same messages make
// the same files. Two calls must not have the same directory at the same time.
//
// It returns nil at the end, an error of the file system, and the errors of [client.Client.Ordered].
func Archive(ctx context.Context, c *client.Client, prefix wire.Prefix, opts ArchiveOptions) error {
	opts.PerFile, opts.Bytes = cmp.Or(opts.PerFile, 10_000), cmp.Or(opts.Bytes, 16<<20)
	js, err := jetstream.New(c.Conn())
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	stream, err := js.Stream(within, prefix.EventsStream())
	if err != nil {
		return fmt.Errorf("look up the stream %s: %w", prefix.EventsStream(), err)
	}
	a := &archiving{opts: opts, stream: strconv.FormatInt(stream.CachedInfo().Created.UnixMilli(), 10),
		in: make(chan archived)}
	if err := a.readFiles(); err != nil {
		return err
	}
	opts.Messages.Unordered, opts.Messages.Pending = true, 2*most
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.run(writing)
	}()
	err = c.Ordered(ctx, opts.Messages, a.verified(js, stream.CachedInfo()))
	stop()
	<-written
	return err
}

// verified returns add with a look at the stream before the first message: it must still be the one that the names of
// files have. If it is deleted later, its consumers are gone too, so all messages are of the stream of the first one.
func (a *archiving) verified(
	js jetstream.JetStream, was *jetstream.StreamInfo,
) func(context.Context, *client.Ordered) error {
	var mu sync.Mutex
	verified := false
	verify := func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if verified {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
		defer cancel()
		stream, err := js.Stream(ctx, was.Config.Name)
		if err != nil {
			return fmt.Errorf("look up the stream %s: %w", was.Config.Name, err)
		}
		if !stream.CachedInfo().Created.Equal(was.Created) {
			return fmt.Errorf("the stream %s was deleted and created again meanwhile: run the command again, which writes "+
				"its events into other files", was.Config.Name)
		}
		verified = true
		return nil
	}
	return func(ctx context.Context, msg *client.Ordered) error {
		if err := verify(ctx); err != nil {
			return err
		}
		return a.add(ctx, msg)
	}
}

// add hands a message to run, and waits until a file has it.
func (a *archiving) add(ctx context.Context, msg *client.Ordered) error {
	one := archived{seq: msg.Seq, event: event{msg.Header, msg.Data}, done: make(chan error, 1)}
	select {
	case a.in <- one:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// line is a message as a line of a file.
func line(e event, seq uint64) ([]byte, error) {
	text, err := e.structured("sequence", fmt.Sprintf("%020d", seq))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// run writes messages into files until ctx is done.
func (a *archiving) run(ctx context.Context) {
	for {
		batch := a.collect(ctx)
		if len(batch) == 0 {
			return
		}
		byFile := make(map[uint64][]archived)
		for _, one := range batch {
			byFile[one.seq/a.opts.PerFile] = append(byFile[one.seq/a.opts.PerFile], one)
		}
		for _, file := range slices.Sorted(maps.Keys(byFile)) {
			first := file * a.opts.PerFile
			err := a.write(span{first, first + a.opts.PerFile - 1}, byFile[file])
			for _, one := range byFile[file] {
				one.done <- err
			}
		}
	}
}

// collect waits for messages. It returns none if ctx is done.
func (a *archiving) collect(ctx context.Context) (batch []archived) {
	size := 0
	select {
	case one := <-a.in:
		batch, size = append(batch, one), one.size()
	case <-ctx.Done():
		return nil
	}
	wait := linger
	if a.opts.Messages.Once {
		wait = lingerOnce
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	for len(batch) < most && size < mostBytes {
		select {
		case one := <-a.in:
			batch, size = append(batch, one), size+one.size()
		case <-end.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// write writes messages into the files of a range: into one, or into those of its halves if it was cut.
func (a *archiving) write(r span, batch []archived) error {
	if !a.isCut(r) {
		size, err := a.rewrite(r, batch)
		if err != nil || size <= a.opts.Bytes || r.first == r.last {
			return err
		}
		return a.cut(r)
	}
	left, right := r.halves()
	slices.SortStableFunc(batch, func(a, b archived) int { return cmp.Compare(a.seq, b.seq) })
	n := behind(batch, left.last)
	return errors.Join(a.writeSome(left, batch[:n]), a.writeSome(right, batch[n:]))
}

// behind is the index of the first message behind a sequence in a sorted batch.
func behind(batch []archived, seq uint64) int {
	n, _ := slices.BinarySearchFunc(batch, seq+1, func(one archived, seq uint64) int { return cmp.Compare(one.seq, seq) })
	return n
}

// rewrite writes a file anew: the lines that it has and the messages of a batch, merged in the order of their
// sequences. Of the file it holds one line at a time. It returns the bytes of all lines.
func (a *archiving) rewrite(r span, batch []archived) (size int64, err error) {
	name := a.name(r)
	old, err := openLines(name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: move it away to go on", name, err)
	}
	defer old.close()
	slices.SortStableFunc(batch, func(a, b archived) int { return cmp.Compare(a.seq, b.seq) })
	out, finish, err := a.opts.Create(name)
	if err != nil {
		return 0, err
	}
	compressed := gzip.NewWriter(out)
	counted := &counter{out: compressed}
	if err := finish(errors.Join(merge(counted, old, batch), compressed.Close())); err != nil {
		return 0, err
	}
	a.files[r] = true
	return counted.n, nil
}

// merge writes lines and a sorted batch in the order of their sequences, each sequence once. Of two with the same
// sequence it writes that of the batch.
func merge(out io.Writer, old *lines, batch []archived) error {
	seq, text, err := old.next()
	for err == nil && (text != nil || len(batch) > 0) {
		switch {
		case len(batch) > 1 && batch[0].seq == batch[1].seq:
			batch = batch[1:]
			continue
		case len(batch) == 0 || text != nil && seq < batch[0].seq:
			if _, err = out.Write(text); err == nil {
				seq, text, err = old.next()
			}
		default:
			var line []byte
			if line, err = batch[0].text(); err == nil {
				_, err = out.Write(line)
			}
			if err == nil && text != nil && seq == batch[0].seq {
				seq, text, err = old.next()
			}
			batch = batch[1:]
		}
	}
	return err
}

// lines reads the lines of a file with their sequences.
type lines struct {
	file *os.File // nil if it does not exist
	in   *bufio.Reader
}

// openLines opens a file, and reads its head. A file that does not exist has no lines.
func openLines(name string) (*lines, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &lines{}, nil
	}
	if err != nil {
		return nil, err
	}
	uncompressed, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lines{f, bufio.NewReader(uncompressed)}, nil
}

func (l *lines) close() {
	if l.file != nil {
		_ = l.file.Close() // it was only read
	}
}

// next reads a line; nil at the end.
func (l *lines) next() (seq uint64, text []byte, err error) {
	if l.file == nil {
		return 0, nil, nil
	}
	text, err = l.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) && len(text) == 0 {
		return 0, nil, nil
	}
	var has struct{ Sequence string }
	if err == nil {
		err = json.Unmarshal(text, &has)
	}
	if err == nil {
		seq, err = strconv.ParseUint(has.Sequence, 10, 64)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w: move it away to go on", l.file.Name(), err)
	}
	return seq, text, nil
}

// span is a range of sequences of the stream of events, which a file is for.
type span struct{ first, last uint64 }

func (r span) halves() (left, right span) {
	middle := r.first + (r.last-r.first)/2
	return span{r.first, middle}, span{middle + 1, r.last}
}

func (r span) length() uint64 { return r.last - r.first + 1 }

// contains reports whether another range is a part of this one.
func (r span) contains(part span) bool {
	return r != part && r.first <= part.first && part.last <= r.last
}

func (a *archiving) name(r span) string {
	return filepath.Join(a.opts.Dir, fmt.Sprintf("%s-%s-%020d-%020d.ndjson.gz", a.opts.Name, a.stream, r.first, r.last))
}

// readFiles reads which files there are. It goes on to cut those that a former run has begun to cut.
func (a *archiving) readFiles() error {
	entries, err := os.ReadDir(a.opts.Dir)
	if err != nil {
		return err
	}
	a.files = make(map[span]bool)
	for _, entry := range entries {
		var r span
		n, _ := fmt.Sscanf(entry.Name(), a.opts.Name+"-"+a.stream+"-%d-%d.ndjson.gz", &r.first, &r.last)
		if n == 2 && entry.Name() == filepath.Base(a.name(r)) {
			a.files[r] = true
		}
	}
	largest := func(a, b span) int { return cmp.Compare(b.length(), a.length()) }
	for _, r := range slices.SortedFunc(maps.Keys(a.files), largest) {
		if !a.isCut(r) {
			continue
		}
		if err := a.cut(r); err != nil {
			return err
		}
	}
	return nil
}

// isCut reports whether there is a file for a part of a range.
func (a *archiving) isCut(r span) bool {
	for part := range a.files {
		if r.contains(part) {
			return true
		}
	}
	return false
}

// cut moves the lines of a file into files for the halves of its range. It merges them with what these have, so it may
// be repeated after a crash.
func (a *archiving) cut(r span) error {
	name := a.name(r)
	lines, err := openLines(name)
	if err != nil {
		return err
	}
	defer lines.close()
	for part, err := lines.batch(); ; part, err = lines.batch() {
		if err != nil {
			return err
		}
		if len(part) == 0 {
			break
		}
		left, right := r.halves()
		n := behind(part, left.last)
		if err := errors.Join(a.writeSome(left, part[:n]), a.writeSome(right, part[n:])); err != nil {
			return err
		}
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(a.files, r)
	return nil
}

// writeSome is write, of messages that there may be none of.
func (a *archiving) writeSome(r span, batch []archived) error {
	if len(batch) == 0 {
		return nil
	}
	return a.write(r, batch)
}

// batch reads some lines; none at the end.
func (l *lines) batch() (some []archived, err error) {
	for size := 0; len(some) < most && size < mostBytes; {
		seq, text, err := l.next()
		if err != nil || text == nil {
			return some, err
		}
		some, size = append(some, archived{seq: seq, line: text}), size+len(text)
	}
	return some, nil
}

// counter counts what is written.
type counter struct {
	out io.Writer
	n   int64
}

// Write implements [io.Writer].
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.out.Write(b)
	c.n += int64(n)
	return n, err
}

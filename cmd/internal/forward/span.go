package forward

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

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

package forward

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range entries {
		text, err := os.ReadFile(filepath.Join(dir, one.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[one.Name()] = string(text)
	}
	return files
}

// TestF4_Archive: files have all events of their ranges, each once and in order, also those of an archive that comes
// back later; another archive of all of them makes the same files of the same bytes, and so does a repetition into
// these files. A file that is no archive is an error, and stays.
func TestF4_Archive(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(string, int, http.ResponseWriter) {})
	fails := false
	archive := func(durable, dir string) error {
		opts := ArchiveOptions{Dir: dir, Name: "orders", PerFile: 20, Messages: r.opts.Messages}
		opts.Messages.Durable = durable
		opts.Create = func(name string) (io.Writer, func(error) error, error) {
			f, err := os.Create(name + ".part")
			return f, func(err error) error {
				if fails {
					err = errors.New("the disk is full")
				}
				if err = errors.Join(err, f.Close()); err != nil {
					return errors.Join(err, os.Remove(name+".part"))
				}
				return os.Rename(name+".part", name)
			}, err
		}
		return Archive(t.Context(), r.c, wire.DefaultPrefix, opts)
	}
	dir, other := t.TempDir(), t.TempDir()
	for part := range 3 {
		for i := range 17 {
			r.event(t, fmt.Sprint(i), fmt.Sprint(part))
		}
		if fails = part == 1; !fails {
			if err := archive("first", dir); err != nil {
				t.Fatal(err)
			}
		} else if err := archive("first", dir); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Fatalf("a file that cannot be written: %v", err)
		}
	}
	files := contents(t, dir)
	var sequences []string
	for i, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, fmt.Sprintf("-%020d-%020d.ndjson.gz", i*20, i*20+19)) {
			t.Errorf("file %s", name)
		}
		old, err := openLines(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for {
			_, line, err := old.next()
			if err != nil {
				t.Fatal(err)
			}
			if line == nil {
				break
			}
			var e struct {
				Sequence, ID string
				Data         json.RawMessage
			}
			if err := json.Unmarshal(line, &e); err != nil || !strings.HasPrefix(e.ID, "orders/") || len(e.Data) == 0 {
				t.Errorf("%s: %v", line, err)
			}
			sequences = append(sequences, e.Sequence)
		}
		old.close()
	}
	if len(sequences) != 51 || !slices.IsSorted(sequences) || sequences[50] != "00000000000000000051" {
		t.Errorf("sequences %v", sequences)
	}
	for durable, dir := range map[string]string{"second": other, "third": dir} {
		if err := archive(durable, dir); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(files, contents(t, dir)); diff != "" {
			t.Errorf("%s: another archive of the same events (-want +got):\n%s", durable, diff)
		}
	}
	for name := range files {
		if err := os.WriteFile(filepath.Join(other, name), []byte("no archive"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broken := contents(t, other)
	if err := archive("fourth", other); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("a file that is no archive: %v", err)
	}
	if diff := cmp.Diff(broken, contents(t, other)); diff != "" {
		t.Errorf("a file that is no archive (-want +got):\n%s", diff)
	}
}

// TestF4_ArchiveOfAnotherStream: somebody has deleted the stream of events and created it again since an archive has
// looked it up. Its events do not go into the files of the former stream. The archive looks before its first event, and
// never again: what consumers still have is of the stream of the first event.
func TestF4_ArchiveOfAnotherStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stream, err := r.js.Stream(t.Context(), wire.DefaultPrefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	a := &archiving{in: make(chan archived)}
	written := make(chan int)
	go func() {
		n := 0
		for one := range a.in {
			n++
			one.done <- nil
		}
		written <- n
	}()
	is, was := *stream.CachedInfo(), *stream.CachedInfo()
	was.Created = was.Created.Add(-time.Second)
	err = a.verified(r.js, &was)(t.Context(), &client.Ordered{Seq: 1})
	if err == nil || !strings.Contains(err.Error(), "was deleted and created again") {
		t.Errorf("an event of another stream: %v", err)
	}
	add := a.verified(r.js, &is)
	if err := add(t.Context(), &client.Ordered{Seq: 1}); err != nil {
		t.Errorf("the first event: %v", err)
	}
	if err := r.js.DeleteStream(t.Context(), is.Config.Name); err != nil {
		t.Fatal(err)
	}
	if err := add(t.Context(), &client.Ordered{Seq: 2}); err != nil {
		t.Errorf("the second event: %v", err)
	}
	close(a.in)
	if n := <-written; n != 2 {
		t.Errorf("%d events are written, want 2", n)
	}
}

// TestF4_ArchiveHoldsALine: to write a file anew takes the memory of the batch, and not that of the file, whatever is
// in both of them.
func TestF4_ArchiveHoldsALine(t *testing.T) {
	dir := t.TempDir()
	a := &archiving{files: map[span]bool{}, opts: ArchiveOptions{Dir: dir, Name: "orders", PerFile: 10_000, Bytes: 1 << 30,
		Create: func(name string) (io.Writer, func(error) error, error) {
			f, err := os.Create(name + ".part")
			return f, func(err error) error { return errors.Join(err, f.Close(), os.Rename(name+".part", name)) }, err
		}}, stream: "1"}
	one := func(seq uint64) archived {
		return archived{seq: seq, line: fmt.Appendf(nil, `{"sequence":"%020d","data":%q}`+"\n", seq, strings.Repeat("x",
			64<<10))}
	}
	const lines = 500 // 32 MB
	for _, batch := range []func(uint64) bool{func(seq uint64) bool { return seq%2 == 0 },
		func(seq uint64) bool { return seq%2 == 1 }} {
		var some []archived
		for seq := range uint64(lines) {
			if batch(seq) {
				some = append(some, one(seq))
			}
		}
		if err := a.write(span{0, 9999}, some); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	create, seen := a.opts.Create, &heap{}
	a.opts.Create = func(name string) (io.Writer, func(error) error, error) {
		out, finish, err := create(name)
		return io.MultiWriter(out, seen), finish, err
	}
	if err := a.write(span{0, 9999}, []archived{one(lines), one(250), one(250)}); err != nil {
		t.Fatal(err)
	}
	if seen.most == 0 || seen.most > before.HeapAlloc+16<<20 {
		t.Errorf("it holds %d MiB for one message", (seen.most-before.HeapAlloc)>>20)
	}
	old, err := openLines(filepath.Join(dir, "orders-1-00000000000000000000-00000000000000009999.ndjson.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer old.close()
	for want := range uint64(lines + 1) {
		if seq, line, err := old.next(); err != nil || line == nil || seq != want {
			t.Fatalf("line %d has sequence %d: %v", want, seq, err)
		}
	}
}

// TestBehind: a batch is cut behind a sequence, whether a message has that sequence or not.
func TestBehind(t *testing.T) {
	batch := []archived{{seq: 3}, {seq: 4}, {seq: 5}, {seq: 7}}
	for seq, want := range []int{0, 0, 0, 1, 2, 3, 3, 4, 4} {
		if n := behind(batch, uint64(seq)); n != want {
			t.Errorf("%d messages are at or before sequence %d, want %d", n, seq, want)
		}
	}
}

// TestF4_FilesByBytes: a file that grows too large is cut, so no file has much more than so many bytes, whatever the
// size of events. In whatever order these come, they make the same files. A cut that a crash has interrupted is gone on
// with.
//
// It fails if a file is cut by sequences alone; if the place of a cut depends on the order; or if a line is lost, or is
// in two files, after the crash.
func TestF4_FilesByBytes(t *testing.T) {
	const lines, size = 300, 4 << 10
	body := strings.Repeat("x", size)
	archive := func(dir string) *archiving {
		a := &archiving{stream: "1", opts: ArchiveOptions{Dir: dir, Name: "orders", PerFile: 1000, Bytes: 20 * size,
			Create: func(name string) (io.Writer, func(error) error, error) {
				f, err := os.Create(name + ".part")
				return f, func(err error) error { return errors.Join(err, f.Close(), os.Rename(name+".part", name)) }, err
			}}}
		if err := a.readFiles(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	one := func(seq int) archived {
		return archived{seq: uint64(seq), line: fmt.Appendf(nil, `{"sequence":"%020d","data":%q}`+"\n", seq, body)}
	}
	write := func(a *archiving, sequences []int) {
		t.Helper()
		for part := range slices.Chunk(sequences, 7) {
			var batch []archived
			for _, seq := range part {
				batch = append(batch, one(seq))
			}
			if err := a.write(span{0, 999}, batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	first := archive(dirs[0])
	write(first, rand.Perm(lines))
	write(archive(dirs[1]), slices.Sorted(maps.Keys(maps.Collect(slices.All(make([]bool, lines))))))
	want := contents(t, dirs[0])
	if diff := cmp.Diff(want, contents(t, dirs[1])); diff != "" {
		t.Errorf("in another order:\n%s", diff)
	}
	if len(want) != len(first.files) {
		t.Errorf("there are %d files, and the archive knows %d", len(want), len(first.files))
	}
	if len(want) < lines/20 {
		t.Errorf("%d files for %d lines", len(want), lines)
	}
	for name := range want {
		if n := strings.Count(unzipped(t, filepath.Join(dirs[0], name)), "\n"); n > 20 {
			t.Errorf("%s has %d lines", name, n)
		}
	}
	whole := archive(t.TempDir())
	whole.opts.Bytes = 1 << 30
	write(whole, slices.Sorted(maps.Keys(maps.Collect(slices.All(make([]bool, lines))))))
	from := whole.name(span{0, 999})
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(filepath.Join(dirs[1], filepath.Base(from)), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	archive(dirs[1]) // the file of all is still there, as after a crash before it was removed
	if diff := cmp.Diff(want, contents(t, dirs[1])); diff != "" {
		t.Errorf("after a crash:\n%s", diff)
	}
	if err := whole.write(span{0, 499}, []archived{one(3), one(7)}); err != nil {
		t.Fatal(err)
	}
	archive(whole.opts.Dir) // the left half has some lines, as after a crash in the middle of the cut
	if diff := cmp.Diff(want, contents(t, whole.opts.Dir)); diff != "" {
		t.Errorf("after a crash in the middle of a cut:\n%s", diff)
	}
}

// unzipped is the text of a file.
func unzipped(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// heap is a writer that looks at the memory in use at each write.
type heap struct{ most uint64 }

func (h *heap) Write(b []byte) (int, error) {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	h.most = max(h.most, now.HeapAlloc)
	return len(b), nil
}

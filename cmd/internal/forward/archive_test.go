package forward

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		lines, err := readLines(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range slices.Sorted(maps.Keys(lines)) {
			var e struct {
				Sequence, ID string
				Data         json.RawMessage
			}
			if err := json.Unmarshal(lines[seq], &e); err != nil || !strings.HasPrefix(e.ID, "orders/") || len(e.Data) == 0 {
				t.Errorf("%s: %v", lines[seq], err)
			}
			sequences = append(sequences, e.Sequence)
		}
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

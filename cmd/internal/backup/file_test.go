package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

func writtenParts(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := newWriter(&out, Header{Lapse: "1.2.3", Prefix: "lapse", Shards: 8, Taken: time.Unix(1, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	for name, chunks := range map[string][]string{"A": {"first", "second"}} {
		err := w.Stream(stream{Name: name, Config: jetstream.StreamConfig{Name: name}}, func(w io.Writer) error {
			for _, chunk := range chunks {
				if _, err := io.WriteString(w, chunk); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Stream(stream{Name: "B"}, func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := w.End(end{Last: map[string]uint64{"A": 7}}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read reads a whole backup.
func read(content []byte) (streams map[string]string, end end, err error) {
	r, err := newReader(bytes.NewReader(content))
	if err != nil {
		return nil, end, err
	}
	streams = make(map[string]string)
	for {
		s, err := r.Next()
		if errors.Is(err, io.EOF) {
			return streams, r.end, nil
		}
		if err != nil {
			return nil, end, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, end, err
		}
		streams[s.Name] = string(content)
	}
}

func TestFile(t *testing.T) {
	content := writtenParts(t)
	streams, end, err := read(content)
	if err != nil || len(streams) != 2 || streams["A"] != "firstsecond" || streams["B"] != "" || end.Last["A"] != 7 {
		t.Errorf("%v, %+v, %v", streams, end, err)
	}
	r, err := newReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if h := r.header; h.Lapse != "1.2.3" || h.Shards != 8 || !h.Taken.Equal(time.Unix(1, 0)) {
		t.Errorf("the header is %+v", h)
	}
}

// TestDamage: whichever byte of a backup is another one, and wherever it ends, it is refused, and
// the error names the part.
func TestDamage(t *testing.T) {
	whole := writtenParts(t)
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= []byte{1, 0x80, 0xff}[i%3]
		if _, _, err := read(damaged); err == nil {
			t.Errorf("byte %d (%q): no error", i, whole[i])
		} else if !errors.Is(err, errDamaged) && !strings.Contains(err.Error(), "this is not a backup") {
			t.Errorf("byte %d: %v", i, err)
		}
		if i%61 > 0 && i < len(whole)-100 {
			continue // each byte of the end, and some of each block
		}
		if _, _, err := read(whole[:i]); err == nil {
			t.Errorf("only %d bytes: no error", i)
		}
	}
	if _, _, err := read(append(bytes.Clone(whole), 0)); !errors.Is(err, errDamaged) {
		t.Errorf("with more behind its end: %v", err)
	}
	for at, part := range map[string]string{`"1.2.3"`: "its header", "second": `stream "A"`, `"last"`: "its end mark"} {
		damaged := bytes.Clone(whole)
		damaged[bytes.Index(damaged, []byte(at))+1] ^= 1
		if _, _, err := read(damaged); err == nil || !strings.Contains(err.Error(), "damaged in "+part) {
			t.Errorf("damage at %s: %v", at, err)
		}
	}
}

// TestAnotherFormat: a backup of another format is refused by name.
func TestAnotherFormat(t *testing.T) {
	out := new(bytes.Buffer)
	w := &writer{out: bufio.NewWriter(out), tar: tar.NewWriter(out)}
	if err := w.json(headerEntry, map[string]int{"format": 1}); err != nil {
		t.Fatal(err)
	}
	const says = `this backup has the format "1", and this version of lapse reads 3 alone`
	if _, _, err := read(out.Bytes()); !errors.Is(err, wire.ErrFormat) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v", err)
	}
	if _, _, err := read([]byte("something else\n")); err == nil || !strings.Contains(err.Error(),
		"this is not a backup of lapse") {
		t.Errorf("%v", err)
	}
}

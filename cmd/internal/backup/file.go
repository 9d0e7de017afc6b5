package backup

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// errDamaged is the error of a file that is not what lapse backup wrote.
var errDamaged = errors.New("the backup is damaged")

// A backup is a tar archive with the header, for each stream its configuration and then chunks of what NATS has sent of
// it, and the end mark. Each entry has the hash of its content in its tar header, so that an error says where a file is
// damaged. The hash of all bytes follows the archive.
const (
	headerEntry = "lapse-backup.json"
	configEntry = "/stream.json" // behind the name of the stream
	chunkEntry  = "/archive"     // likewise
	endEntry    = "end.json"
	hashRecord  = "LAPSE.sha256" // of a tar header
	chunkBytes  = 1 << 20
)

// Header is the beginning of a backup.
type Header struct {
	Lapse  string      `json:"lapse"` // version
	Prefix wire.Prefix `json:"prefix"`
	Shards int         `json:"shards"`
	Taken  time.Time   `json:"taken"` // when it was begun, by the clock of NATS
}

// streams are the names of all streams that the backup may have, in the order in which a restore completes them.
func (h Header) streams() []string {
	return append([]string{h.Prefix.CheckpointStream()}, h.Prefix.MirrorStreams(h.Shards)...)
}

// logs are the names of the logs.
func (h Header) logs() []string { return h.Prefix.LogStreams(h.Shards) }

// root is the name of the root.
func (h Header) root() string { return h.Prefix.RootStream(h.Shards) }

// storedHeader is the header as the file has it.
type storedHeader struct {
	Format int `json:"format"`
	Header
}

// stream is the beginning of a stream in the file.
type stream struct {
	Name   string                 `json:"name"`
	Config jetstream.StreamConfig `json:"config"`
	// Identity is the wire.Identity of a log and of the stream of configurations.
	Identity int64 `json:"identity,omitempty"`
}

// end is the end mark.
type end struct {
	SHA256 string `json:"-"` // of the whole file
	// Last is the last sequence of each log, and of the stream of events, when the backup was
	// complete.
	Last map[string]uint64 `json:"last"`
	// Configured lists the collections that were configured between the end of the logs in the
	// backup and that.
	Configured []string `json:"configured,omitempty"`
}

// sums counts and hashes the bytes of a file.
type sums struct {
	hash.Hash
	n atomic.Int64
}

func (s *sums) Write(b []byte) (int, error) {
	s.n.Add(int64(len(b)))
	return s.Hash.Write(b)
}

// hex is the hash of the bytes so far.
func (s *sums) hex() string { return hex.EncodeToString(s.Sum(nil)) }

// hashOf is the hash of some bytes.
func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// writer writes a backup.
type writer struct {
	out *bufio.Writer
	all sums
	tar *tar.Writer
}

// newWriter begins a backup.
func newWriter(out io.Writer, h Header) (*writer, error) {
	w := &writer{out: bufio.NewWriterSize(out, 256<<10), all: sums{Hash: sha256.New()}}
	w.tar = tar.NewWriter(io.MultiWriter(w.out, &w.all))
	return w, w.json(headerEntry, storedHeader{wire.Format, h})
}

// entry writes an entry.
func (w *writer) entry(name string, content []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)),
		PAXRecords: map[string]string{hashRecord: hashOf(content)}})
	if err == nil {
		_, err = w.tar.Write(content)
	}
	return err
}

// json writes an entry with a value.
func (w *writer) json(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.entry(name, b)
}

// chunks writes the chunks of a stream.
type chunks struct {
	*writer
	stream string
}

func (c chunks) Write(b []byte) (int, error) { return len(b), c.entry(c.stream+chunkEntry, b) }

// Stream writes a stream, whose archive content writes.
func (w *writer) Stream(s stream, content func(io.Writer) error) error {
	if err := w.json(s.Name+configEntry, s); err != nil {
		return err
	}
	out := bufio.NewWriterSize(chunks{w, s.Name}, chunkBytes)
	if err := content(out); err != nil {
		return err
	}
	return out.Flush()
}

// End writes the end mark, and the hash of all that was written.
func (w *writer) End(e end) error {
	if err := w.json(endEntry, e); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return err
	}
	if _, err := io.WriteString(w.out, w.all.hex()); err != nil {
		return err
	}
	return w.out.Flush()
}

// reader reads a backup, and finds out whether it is damaged. It has always read the entry that follows.
type reader struct {
	in      io.Reader
	all     sums // Any goroutine may read the number of bytes.
	tar     *tar.Reader
	header  Header
	end     end    // once Next has returned io.EOF
	stream  string // that is being read
	chunk   []byte // of the stream: what was not read yet
	name    string // of the entry that follows
	content []byte // of that entry
}

// newReader reads the beginning of a backup.
func newReader(in io.Reader) (*reader, error) {
	r := &reader{in: bufio.NewReaderSize(in, 256<<10), all: sums{Hash: sha256.New()}}
	r.tar = tar.NewReader(io.TeeReader(r.in, &r.all))
	err := r.entry()
	if r.name != headerEntry && (err == nil || errors.Is(err, errDamaged)) {
		return nil, errors.New("this is not a backup of lapse: use a file that lapse backup has written")
	}
	var h storedHeader
	if err == nil {
		err = wire.CheckStored("this backup", r.content)
	}
	if err == nil {
		err = r.unmarshal(&h)
	}
	if err != nil {
		return nil, err
	}
	r.header = h.Header
	if _, err := wire.ParsePrefix(string(h.Prefix)); err != nil || h.Shards < 1 || h.Shards > wire.MaxShards {
		return nil, r.damaged("its header is not valid")
	}
	return r, r.entry()
}

// damaged is an errDamaged with the place and the reason.
func (r *reader) damaged(why string) error {
	part := "stream " + wire.Quote(path.Dir(r.name))
	switch r.name {
	case headerEntry:
		part = "its header"
	case endEntry:
		part = "its end mark"
	}
	return fmt.Errorf("%w in %s, before byte %d: %s", errDamaged, part, r.all.n.Load(), why)
}

// entry reads and verifies the entry that follows.
func (r *reader) entry() error {
	h, err := r.tar.Next()
	if err == nil {
		r.name = h.Name
		r.content, err = io.ReadAll(r.tar)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return r.damaged("the file ends here, without its end mark")
	case errors.Is(err, tar.ErrHeader):
		return r.damaged("there is no valid entry")
	case err == nil && h.PAXRecords[hashRecord] != hashOf(r.content):
		return r.damaged("its hash is another one")
	}
	return err
}

// unmarshal decodes the content of an entry.
func (r *reader) unmarshal(v any) error {
	if err := json.Unmarshal(r.content, v); err != nil {
		return r.damaged(err.Error())
	}
	return nil
}

// Next is the next stream; io.EOF after the end mark. What is left of the stream before is read
// and verified.
func (r *reader) Next() (s stream, err error) {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return s, err
	}
	if r.name == endEntry {
		return s, r.last()
	}
	if err := r.unmarshal(&s); err != nil {
		return s, err
	}
	if r.stream = s.Name; r.name != s.Name+configEntry {
		return s, r.damaged("there is no valid entry")
	}
	return s, r.entry()
}

// last reads the end mark and the hash of all bytes. It returns io.EOF if the backup is whole, and nothing follows.
func (r *reader) last() error {
	if err := r.unmarshal(&r.end); err != nil {
		return err
	}
	switch _, err := r.tar.Next(); {
	case err == nil, errors.Is(err, tar.ErrHeader):
		return r.damaged("something follows it")
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	r.end.SHA256 = r.all.hex()
	rest, err := io.ReadAll(io.LimitReader(r.in, 2*sha256.Size+1))
	switch {
	case err != nil:
		return err
	case len(rest) < 2*sha256.Size:
		return r.damaged("the file ends here, without the hash of all of it")
	case string(rest) != r.end.SHA256:
		return r.damaged("the hash of the whole file is another one")
	}
	return io.EOF
}

// Read reads the archive of the stream that Next has returned; io.EOF at its end.
func (r *reader) Read(b []byte) (int, error) {
	for len(r.chunk) == 0 {
		if r.name != r.stream+chunkEntry {
			return 0, io.EOF
		}
		r.chunk = r.content
		if err := r.entry(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrDamaged: the file is not what lapse backup wrote.
var errDamaged = errors.New("the backup is damaged")

// The file begins with its format. Frames follow: a kind, the length, and the content. The frames
// of a part are its beginning, its chunks, and its end, which has the hash of the others.
const (
	magic = "lapse-backup "

	kindHeader = 'h' // of the file: a part without chunks
	kindStream = 's' // begins the part of a stream
	kindChunk  = 'c'
	kindHash   = 'e' // ends a part
	kindEnd    = 'z' // begins the end mark, whose hash is that of the whole file

	largestFrame = 4 << 20
)

// Header is the beginning of a backup.
type Header struct {
	Lapse  string      `json:"lapse"` // version
	Prefix wire.Prefix `json:"prefix"`
	Shards int         `json:"shards"`
	Taken  time.Time   `json:"taken"` // when it was begun, by the clock of NATS
}

// Stream is the beginning of the part of a stream. Its chunks are an archive.
type stream struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`
	// Identity is the wire.Identity of a log and of the stream of configurations.
	Identity int64 `json:"identity,omitempty"`
}

// region is what the log has to do with the logs of other regions.
func (s stream) region() (wire.Region, error) {
	var c config
	if err := json.Unmarshal(s.Config, &c); err != nil {
		return wire.Region{}, err
	}
	return wire.ParseRegion(c.Metadata)
}

// End is the end mark.
type end struct {
	SHA256 string `json:"-"` // of the whole file
	// Last is the last sequence of each log, and of the stream of events, when the backup was
	// complete.
	Last map[string]uint64 `json:"last"`
	// Configured lists the collections that were configured between the end of the logs in the
	// backup and that.
	Configured []string `json:"configured,omitempty"`
}

// Writer writes a backup.
type writer struct {
	w         *bufio.Writer
	all, part hash.Hash
	written   int64
	err       error
}

// newWriter begins a backup.
func newWriter(out io.Writer, h Header) (*writer, error) {
	w := &writer{w: bufio.NewWriterSize(out, 256<<10), all: sha256.New(), part: sha256.New()}
	w.write([]byte(magic + wire.FormatText + "\n"))
	w.json(kindHeader, h)
	w.hash()
	return w, w.err
}

func (w *writer) write(b []byte) {
	if w.err != nil {
		return
	}
	w.all.Write(b)
	w.part.Write(b)
	w.written += int64(len(b))
	_, w.err = w.w.Write(b)
}

func (w *writer) frame(kind byte, content []byte) {
	w.write(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content))))
	w.write(content)
}

func (w *writer) json(kind byte, v any) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > largestFrame {
		err = fmt.Errorf("%d bytes are too many for the beginning of a part", len(b))
	}
	if err != nil && w.err == nil {
		w.err = err
	}
	w.frame(kind, b)
}

// hash ends a part.
func (w *writer) hash() {
	w.frame(kindHash, w.part.Sum(nil))
	w.part.Reset()
}

// Written is how many bytes were written.
func (w *writer) Written() int64 { return w.written }

// Write writes a chunk of the stream.
func (w *writer) Write(b []byte) (int, error) {
	for chunk := b; len(chunk) > 0; chunk = chunk[min(len(chunk), largestFrame):] {
		w.frame(kindChunk, chunk[:min(len(chunk), largestFrame)])
	}
	return len(b), w.err
}

// Stream writes a stream, whose archive content writes.
func (w *writer) Stream(s stream, content func(io.Writer) error) error {
	w.json(kindStream, s)
	if err := content(w); err != nil {
		return err
	}
	w.hash()
	return w.err
}

// End writes the end mark.
func (w *writer) End(e end) error {
	w.json(kindEnd, e)
	w.frame(kindHash, w.all.Sum(nil))
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

// Reader reads a backup, and finds out whether it is damaged.
type reader struct {
	r         *bufio.Reader
	all, part hash.Hash
	read      atomic.Int64
	in        string // the part that is being read
	header    Header
	end       end
	chunk     []byte // the unread rest of the present chunk
	open      bool   // a stream is being read
}

// newReader reads the beginning of a backup.
func newReader(in io.Reader) (*reader, error) {
	r := &reader{r: bufio.NewReaderSize(in, 256<<10), all: sha256.New(), part: sha256.New(), in: "its header"}
	line, err := r.r.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	format, ok := strings.CutPrefix(string(line), magic)
	format, whole := strings.CutSuffix(format, "\n")
	if !ok || !whole {
		return nil, errors.New("this is not a backup of lapse: use a file that lapse backup has written")
	}
	if err := wire.CheckFormat("this backup", format); err != nil {
		return nil, err
	}
	r.note(line)
	kind, content, err := r.frame()
	if err == nil && kind != kindHeader {
		err = r.damaged("it has no header")
	}
	if err == nil {
		err = r.unmarshal(content, &r.header)
	}
	if err == nil {
		err = r.ended()
	}
	if err != nil {
		return nil, err
	}
	if _, err := wire.ParsePrefix(string(r.header.Prefix)); err != nil || r.header.Shards < 1 || r.header.Shards > wire.MaxShards {
		return nil, r.damaged("its header is not valid")
	}
	return r, nil
}

// Header is the beginning of the backup.
func (r *reader) Header() Header { return r.header }

// End is the end mark, once Next has returned io.EOF.
func (r *reader) End() end { return r.end }

// Position is how many bytes were read. Any goroutine may ask.
func (r *reader) Position() int64 { return r.read.Load() }

func (r *reader) damaged(format string, args ...any) error {
	return fmt.Errorf("%w in %s, before byte %d: %s", errDamaged, r.in, r.read.Load(), fmt.Sprintf(format, args...))
}

func (r *reader) note(b []byte) {
	r.all.Write(b)
	r.part.Write(b)
	r.read.Add(int64(len(b)))
}

// frame reads a frame. The hashes have it, unless it is a hash itself.
func (r *reader) frame() (kind byte, content []byte, err error) {
	head := make([]byte, 5)
	if err := r.full(head); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > largestFrame || !bytes.ContainsRune([]byte{kindHeader, kindStream, kindChunk, kindHash, kindEnd}, rune(head[0])) {
		return 0, nil, r.damaged("there is no valid frame")
	}
	content = make([]byte, n)
	if err := r.full(content); err != nil {
		return 0, nil, err
	}
	if head[0] != kindHash {
		r.note(head)
		r.note(content)
	}
	return head[0], content, nil
}

func (r *reader) full(b []byte) error {
	n, err := io.ReadFull(r.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.read.Add(int64(n))
		return r.damaged("the file ends here, without its end mark")
	}
	return err
}

func (r *reader) unmarshal(content []byte, v any) error {
	if err := json.Unmarshal(content, v); err != nil {
		return r.damaged("%v", err)
	}
	return nil
}

// ended reads the end of a part.
func (r *reader) ended() error {
	kind, content, err := r.frame()
	if err == nil && kind != kindHash {
		err = r.damaged("a part has no end")
	}
	if err == nil {
		err = r.compare(content)
	}
	return err
}

// compare compares the hash at the end of a part.
func (r *reader) compare(want []byte) error {
	if !bytes.Equal(r.part.Sum(nil), want) {
		return r.damaged("its hash is another one")
	}
	r.note(binary.BigEndian.AppendUint32([]byte{kindHash}, uint32(len(want))))
	r.note(want)
	r.part.Reset()
	return nil
}

// Next is the next stream; io.EOF after the end mark. What is left of the stream before is read
// and verified.
func (r *reader) Next() (s stream, err error) {
	if r.open {
		if _, err := io.Copy(io.Discard, r); err != nil {
			return s, err
		}
	}
	r.in = "its end mark"
	kind, content, err := r.frame()
	switch {
	case err != nil:
		return s, err
	case kind == kindEnd:
		return s, r.last(content)
	case kind != kindStream:
		return s, r.damaged("there is no valid frame")
	}
	if err := r.unmarshal(content, &s); err != nil {
		return s, err
	}
	r.in, r.open = "stream "+wire.Quote(s.Name), true
	return s, nil
}

// last reads the end mark.
func (r *reader) last(content []byte) error {
	if err := r.unmarshal(content, &r.end); err != nil {
		return err
	}
	kind, hash, err := r.frame()
	if err != nil {
		return err
	}
	if kind != kindHash || !bytes.Equal(hash, r.all.Sum(nil)) {
		return r.damaged("the hash of the whole file is another one")
	}
	r.end.SHA256 = hex.EncodeToString(hash)
	if _, err := r.r.ReadByte(); err == nil {
		return r.damaged("something follows it")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return io.EOF
}

// Read reads the archive of the stream that Next has returned; io.EOF once it is verified.
func (r *reader) Read(b []byte) (int, error) {
	for len(r.chunk) == 0 {
		if !r.open {
			return 0, io.EOF
		}
		kind, content, err := r.frame()
		switch {
		case err != nil:
			return 0, err
		case kind == kindChunk:
			r.chunk = content
		case kind == kindHash:
			if err := r.compare(content); err != nil {
				return 0, err
			}
			r.open = false
		default:
			return 0, r.damaged("a part has no end")
		}
	}
	n := copy(b, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

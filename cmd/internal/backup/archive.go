package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// message is a message of a stream, in an archive.
type message struct {
	Seq     uint64
	Stamp   int64 // Unix nanoseconds
	Subject string
	Header  []byte
	Data    []byte
}

// state is the state of a stream, in an archive.
type state struct {
	Msgs      uint64 `json:"messages"`
	Bytes     uint64 `json:"bytes"`
	FirstSeq  uint64 `json:"first_seq"`
	LastSeq   uint64 `json:"last_seq"`
	Consumers int    `json:"consumer_count"`
}

// stateEntry is the name of the first entry of an archive.
const stateEntry = "state.json"

// archiveReader reads what NATS sends of a stream: its State, its consumers, its messages.
type archiveReader struct {
	r         *archive.Reader
	State     state
	Consumers []consumer
}

// consumer is a consumer in an archive, as it stands there.
type consumer struct {
	name  string
	stamp int64
	data  []byte
}

// errArchive is the error of an archive that is not as NATS writes it.
var errArchive = errors.New("this is not what nats-server 2.15 sends of a stream: use 2.15 or newer")

// openArchive reads the beginning of an archive.
func openArchive(r io.Reader) (*archiveReader, error) {
	a := &archiveReader{r: archive.NewReader(s2.NewReader(r))}
	h, err := a.r.Next()
	if errors.Is(err, archive.ErrInvalidArchive) || err == nil && h.Name != stateEntry {
		err = errArchive
	}
	if err != nil {
		return nil, broken(err)
	}
	if err := json.NewDecoder(a.r).Decode(&a.State); err != nil {
		return nil, broken(err)
	}
	for range a.State.Consumers {
		h, err := a.r.Next()
		if err != nil {
			return nil, broken(err)
		}
		data, err := io.ReadAll(a.r)
		if err != nil {
			return nil, broken(err)
		}
		a.Consumers = append(a.Consumers, consumer{h.Name, h.Timestamp, data})
	}
	return a, nil
}

// errIncomplete is the error of an archive that ends too early.
var errIncomplete = errors.New("the archive of the stream is not complete")

// broken names an archive that ends too early. Other errors stay as they are.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errIncomplete
	}
	return err
}

// Next is the next message; nil after the last one.
func (a *archiveReader) Next() (*message, error) {
	h, err := a.r.Next()
	if err != nil {
		return nil, broken(err)
	}
	if h.Sequence == 0 && h.Name == "" {
		return nil, nil
	}
	const largest = 1 << 30 // NATS has messages of up to 64 MiB
	if h.HeaderSize > largest || h.PayloadSize > largest {
		return nil, archive.ErrInvalidArchive
	}
	content := make([]byte, h.HeaderSize+h.PayloadSize)
	if _, err := io.ReadFull(a.r, content); err != nil {
		return nil, broken(err)
	}
	return &message{h.Sequence, h.Timestamp, h.Name, content[:h.HeaderSize:h.HeaderSize], content[h.HeaderSize:]}, nil
}

// visitAll reads an archive to its end.
func visitAll(archive io.Reader, visit func(*message)) (s state, err error) {
	a, err := openArchive(archive)
	if err != nil {
		return s, err
	}
	for {
		m, err := a.Next()
		if m == nil || err != nil {
			return a.State, err
		}
		visit(m)
	}
}

// archiveWriter writes an archive, as NATS takes it.
type archiveWriter struct {
	compressed *s2.Writer
	w          *archive.Writer
}

// newArchiveWriter begins an archive.
func newArchiveWriter(out io.Writer, s state, consumers []consumer) (*archiveWriter, error) {
	a := &archiveWriter{compressed: s2.NewWriter(out, s2.WriterConcurrency(1))} // no goroutine is left after an error
	a.w = archive.NewWriter(a.compressed)
	s.Consumers = len(consumers)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := a.entry(archive.Header{Name: stateEntry, PayloadSize: int64(len(text))}, text); err != nil {
		return nil, err
	}
	for _, c := range consumers {
		h := archive.Header{Name: c.name, Timestamp: c.stamp, PayloadSize: int64(len(c.data))}
		if err := a.entry(h, c.data); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// entry writes an entry.
func (a *archiveWriter) entry(h archive.Header, content ...[]byte) error {
	if err := a.w.WriteHeader(&h); err != nil {
		return err
	}
	for _, part := range content {
		if _, err := a.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Message writes a message.
func (a *archiveWriter) Message(m *message) error {
	return a.entry(archive.Header{
		Name: m.Subject, Timestamp: m.Stamp, Sequence: m.Seq,
		HeaderSize: int64(len(m.Header)), PayloadSize: int64(len(m.Data)),
	}, m.Header, m.Data)
}

// Close writes the end.
func (a *archiveWriter) Close() error {
	if err := a.entry(archive.Header{}); err != nil {
		return err
	}
	return a.compressed.Close()
}

// Durable reports whether a consumer is one that a client has named, and not one that its
// connection has made for itself.
func (c consumer) Durable() bool {
	var content struct {
		Config struct {
			Durable string `json:"durable_name"`
		} `json:"config"`
	}
	return json.Unmarshal(c.data, &content) == nil && content.Config.Durable != ""
}

// Value is the value of a header; "" if there is none.
func (m *message) Value(name string) string {
	_, rest, ok := bytes.Cut(m.Header, []byte("\r\n"+name+":"))
	if !ok {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(bytes.TrimSpace(value))
}

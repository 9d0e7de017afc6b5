package backup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	diffs "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"

	"github.com/seed18712806/lapse/sink/wire"
)

// ms is a log time in tests, in milliseconds.
const ms = 1_790_000_000_000

// parts is a backup that a test makes: the messages of each stream.
type parts map[string][]*message

const (
	theLog, theEvents, thePoints = "LAPSE_LOG", "LAPSE_EVENTS", "KV_LAPSE_CHECKPOINTS"
	thePoint                     = "$KV.LAPSE_CHECKPOINTS.shard."
	theRecord                    = "$KV.LAPSE_CHECKPOINTS.snapshot."
)

// write is a message of a log that is stamped at ms and so many milliseconds.
func write(seq uint64, after int64) *message {
	return &message{Seq: seq, Stamp: (ms + after) * int64(time.Millisecond), Subject: "lapse.write.upsert.c.a",
		Header: []byte("NATS/1.0\r\n\r\n"), Data: []byte(`{}`)}
}

func configures(seq uint64, after int64, collection string) *message {
	m := write(seq, after)
	m.Subject = "lapse.config." + collection
	return m
}

// keyed is a key of the bucket of checkpoints.
func keyed(seq uint64, key, json string) *message {
	return &message{Seq: seq, Subject: key, Data: []byte(json)}
}

// expiry is an expiry event, of a version, at ms and so many milliseconds.
func expiry(seq uint64, collection, id string, etag uint64, after int64) *message {
	h := fmt.Sprintf("NATS/1.0\r\nce-source: /lapse/7/collections/%s\r\nce-subject: %s\r\nce-id: %s/%s/%d\r\nce-time: "+
		"%s\r\n\r\n", collection, id, collection, id, etag, wire.Time(ms+after))
	return &message{Seq: seq, Subject: "lapse.expired." + collection + ".1", Header: []byte(h), Data: []byte(`{}`)}
}

// expiring is a warning of a version, 5 s before its deadline, at ms and so many milliseconds.
func expiring(seq uint64, collection, id string, etag uint64, after int64) *message {
	m := expiry(seq, collection, id, etag, after)
	m.Subject = "lapse.expiring." + collection + ".1"
	was := fmt.Sprintf("ce-id: %s/%s/%d", collection, id, etag)
	m.Header = bytes.Replace(m.Header, []byte(was), fmt.Appendf(nil, "%s/expiring/5/%d", was, ms+after+5000), 1)
	return m
}

// due is a due message, at ms and so many milliseconds. Its subject has the collection of another one.
func due(seq uint64, collection, id string, etag uint64, after int64) *message {
	m := expiry(seq, collection, id, etag, after)
	m.Subject = "lapse.due.e.send"
	return m
}

// change is the message about a write of a document, drop that about a drop, at ms.
func change(seq uint64, collection, id string, of uint64) *message {
	m := expiry(seq, collection, id, of, 0)
	m.Subject = "lapse.changed." + collection + ".1"
	m.Header = bytes.Replace(m.Header, []byte("\r\nce-time"), []byte("/changed\r\nce-time"), 1)
	return m
}

func drop(seq uint64, collection string, of uint64) *message {
	h := fmt.Appendf(nil, "NATS/1.0\r\nce-source: /lapse/7/collections/%s\r\nce-id: %s/%d/dropped\r\nce-time: %s\r\n\r\n",
		collection, collection, of, wire.Time(ms))
	return &message{Seq: seq, Subject: "lapse.changed." + collection, Header: h}
}

func rejected(seq uint64, log string, of string) *message {
	return &message{Seq: seq, Subject: "lapse.rejected.c.1", Header: fmt.Appendf(nil,
		"NATS/1.0\r\nLapse-Stream: %s\r\nLapse-Seq: %s\r\n\r\n", log, of)}
}

// archived are messages as NATS sends them.
func archived(t *testing.T, s state, consumers []consumer, messages ...*message) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := newArchiveWriter(&out, s, consumers)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := w.Message(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stateOf is the state of a stream with messages.
func stateOf(messages []*message) state {
	s := state{Msgs: uint64(len(messages))}
	if len(messages) > 0 {
		s.FirstSeq, s.LastSeq = messages[0].Seq, messages[len(messages)-1].Seq
	}
	return s
}

// file is the backup, of some shards.
func (b parts) file(t *testing.T, shards int, e end) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := newWriter(&out, Header{Lapse: "1", Prefix: "lapse", Shards: shards, Taken: time.UnixMilli(ms + 1000)})
	if err != nil {
		t.Fatal(err)
	}
	last := func(name string) int { return map[string]int{theEvents: 1}[name] } // they come behind the logs
	for _, name := range slices.SortedFunc(maps.Keys(b), func(a,
		b string) int {
		return cmp.Or(last(a)-last(b), strings.Compare(a, b))
	}) {
		if err := w.Stream(stream{Name: name, Identity: 7 * int64(time.Millisecond)}, func(w io.Writer) error {
			_, err := w.Write(archived(t, stateOf(b[name]), nil, b[name]...))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(e); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// usual is a backup of one log with five messages, of which the third is a configuration.
func usual() parts {
	return parts{
		theLog: {write(1, 10), write(2, 30), configures(3, 20, "c"), write(4, 40), write(5, 50)},
		theEvents: {expiry(1, "c", "a", 1, 25), rejected(2, theLog, "2"), expiry(3, "c", "a", 2, 45),
			rejected(4, theLog, "4"), expiry(5, "d", "a", 2, 45)},
		thePoints: {keyed(1, thePoint+"0", `{"format":3,"seq":5,"watermark":1790000000050,"later":1}`)},
	}
}

// restoredOf are the sequences of what is restored of a stream, and its state.
func restoredOf(t *testing.T, c *Contents, b parts, name string) (seqs []uint64, messages []*message, s state) {
	t.Helper()
	var out bytes.Buffer
	if err := c.rewrite(c.stream(name), bytes.NewReader(archived(t, stateOf(b[name]), nil, b[name]...)),
		&out); err != nil {
		t.Fatal(err)
	}
	s, err := visitAll(&out, func(m *message) { seqs, messages = append(seqs, m.Seq), append(messages, m) })
	if err != nil {
		t.Fatal(err)
	}
	return seqs, messages, s
}

// TestG3_WhatIsRestored: the log ends before the message, or the instant, until which it is restored. Events and
// rejections of later messages are left out, and so is what may follow from a configuration that is left out;
// checkpoints go back. The log and the events go on with sequences that the original has not used.
func TestG3_WhatIsRestored(t *testing.T) {
	for name, tt := range map[string]struct {
		until       Until
		end         end
		log, events []uint64
		points      [2]uint64 // where a checkpoint at 5 goes back to, and one at 2
		next        map[string]uint64
	}{
		"all": {Until{}, end{}, []uint64{1, 2, 3, 4, 5}, []uint64{1, 2, 3, 4, 5}, [2]uint64{5, 2},
			map[string]uint64{theLog: 5 + margin + 1, theEvents: 5 + margin + 1, thePoints: 2}},
		"the original has gone on": {Until{}, end{Last: map[string]uint64{theLog: 9, theEvents: 20}},
			[]uint64{1, 2, 3, 4, 5}, []uint64{1, 2, 3, 4, 5}, [2]uint64{5, 2},
			map[string]uint64{theLog: 9 + margin + 1, theEvents: 20 + margin + 1, thePoints: 2}},
		"configured since": {Until{}, end{Configured: []string{"d"}}, []uint64{1, 2, 3, 4, 5},
			[]uint64{1, 2, 3, 4, 5}, [2]uint64{5, 2}, nil},
		"before a message":         {Until{Seq: 4}, end{}, []uint64{1, 2, 3}, []uint64{1, 2, 3, 5}, [2]uint64{3, 2}, nil},
		"before the configuration": {Until{Seq: 3}, end{}, []uint64{1, 2}, []uint64{1, 2, 5}, [2]uint64{2, 2}, nil},
		"behind the last": {Until{Seq: 6}, end{}, []uint64{1, 2, 3, 4, 5}, []uint64{1, 2, 3, 4, 5}, [2]uint64{5, 2},
			nil},
		// The configuration is stamped before the message that comes before it: log time does not go back.
		"before an instant": {Until{Time: time.UnixMilli(ms + 30)}, end{}, []uint64{1}, []uint64{}, [2]uint64{1, 1},
			nil},
		"before another instant": {Until{Time: time.UnixMilli(ms + 31)}, end{}, []uint64{1, 2, 3}, []uint64{1, 2, 3, 5},
			[2]uint64{3, 2}, nil},
		"when the backup was taken": {Until{Time: time.UnixMilli(ms + 1000)}, end{}, []uint64{1, 2, 3, 4, 5},
			[]uint64{1, 2, 3, 4, 5}, [2]uint64{5, 2}, nil},
	} {
		b := usual()
		early := usual()
		early[thePoints][0].Data = []byte(`{"format":3,"seq":2,"watermark":1790000000030}`)
		var points [2]uint64
		var c *Contents
		for i, b := range []parts{b, early} {
			found, err := Scan(bytes.NewReader(b.file(t, 1, tt.end)), tt.until)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, values, _ := restoredOf(t, found, b, thePoints)
			point, err := parseCheckpoint(values[0])
			if err != nil {
				t.Error(err)
			}
			points[i] = point.Seq
			if i == 0 {
				c = found
			}
		}
		log, _, logState := restoredOf(t, c, b, theLog)
		events, _, _ := restoredOf(t, c, b, theEvents)
		if diff := diffs.Diff([][]uint64{tt.log, append([]uint64{}, tt.events...), tt.points[:]},
			[][]uint64{log, append([]uint64{}, events...), points[:]}); diff != "" {
			t.Errorf("%s: log, events, checkpoints:\n%s", name, diff)
		}
		for name, want := range tt.next {
			if next := c.next(c.stream(name)); next != want {
				t.Errorf("%s goes on with %d, want %d", name, next, want)
			}
		}
		if want := c.next(c.stream(theLog)) - 1; logState.LastSeq != want || logState.FirstSeq != 1 || logState.Msgs != 5 {
			t.Errorf("%s: the state of the log is %+v, and should end at %d", name, logState, want)
		}
	}
}

// TestRestoredStates: NATS fills the sequences without a message, so a stream may have fewer messages than sequences,
// and never more. An empty stream begins behind its last sequence, unless it never had a message.
func TestRestoredStates(t *testing.T) {
	c := &Contents{Header: Header{Prefix: "lapse", Shards: 2}}
	for _, tt := range []struct {
		was  state
		end  uint64
		want state
	}{
		{state{}, 0, state{}},
		{state{Msgs: 3, FirstSeq: 2, LastSeq: 4}, 4, state{Msgs: 3, FirstSeq: 2, LastSeq: 4}},
		{state{Msgs: 3, FirstSeq: 2, LastSeq: 4}, 3, state{Msgs: 2, FirstSeq: 2, LastSeq: 3}},
		{state{Msgs: 3, FirstSeq: 2, LastSeq: 4}, 2, state{Msgs: 1, FirstSeq: 2, LastSeq: 2}},
		{state{Msgs: 3, FirstSeq: 2, LastSeq: 4}, 1, state{Msgs: 0, FirstSeq: 2, LastSeq: 1}},
		{state{Msgs: 0, FirstSeq: 5, LastSeq: 4}, 4, state{Msgs: 0, FirstSeq: 5, LastSeq: 4}},
		{state{Msgs: 2, FirstSeq: 2, LastSeq: 9}, 5, state{Msgs: 2, FirstSeq: 2, LastSeq: 5}},
	} {
		if got := c.restoredState(&streamContents{Name: c.root(), state: tt.was, end: tt.end}); got != tt.want {
			t.Errorf("%+v up to %d: %+v, want %+v", tt.was, tt.end, got, tt.want)
		}
	}
	if next := c.next(&streamContents{Name: c.logs()[1]}); next != 1 {
		t.Errorf("a log that never had a message goes on with %d", next)
	}
}

// TestScanRefuses: a backup that lacks something, or has what does not belong there, is refused; so is an end that it
// does not reach, or from which Redis cannot be built.
func TestScanRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(b parts)
		shards int
		until  Until
		says   string // "": it is not refused
	}{
		"nothing is wrong": {func(parts) {}, 1, Until{}, ""},
		"no log":           {func(b parts) { delete(b, theLog) }, 1, Until{}, "it has no stream LAPSE_LOG"},
		"no events":        {func(b parts) { delete(b, theEvents) }, 1, Until{}, "it has no stream LAPSE_EVENTS"},
		"another stream": {func(b parts) { b["OTHER"] = nil }, 1, Until{}, "stream OTHER in the backup: it does not " +
			"belong there"},
		"of two shards":  {func(parts) {}, 2, Until{}, "LAPSE_LOG in the backup: it does not belong there"},
		"no checkpoints": {func(b parts) { delete(b, thePoints) }, 1, Until{}, ""},
		"behind the end": {func(parts) {}, 1, Until{Seq: 7}, "ends at sequence 5, which is before 7"},
		"after it was taken": {func(parts) {}, 1, Until{Time: time.UnixMilli(ms + 1001)},
			"was taken at 2026-09-21T14:13:21.000Z, which is before 2026-09-21T14:13:21.001Z"},
		"a bad checkpoint": {func(b parts) { b[thePoints][0].Data = []byte(`{`) }, 1, Until{},
			"shard 0: the checkpoint is not valid"},
		"a checkpoint with another field": {func(b parts) { b[thePoints][0].Data = []byte(`{"format":3,"seq":"5"}`) }, 1,
			Until{}, "shard 0: the checkpoint is not valid"},
		"a later format": {func(b parts) { b[thePoints][0].Data = []byte(`{"format":2}`) }, 1, Until{},
			"shard 0: the checkpoint has the format \"2\""},
		"a bad record": {func(b parts) { b.record(`{`) }, 1, Until{}, "the record of the snapshots of shard 0: "},
		"a bad generation": {func(b parts) { b.record(`{"format":3,"generations":[1]}`) }, 1, Until{},
			"the record of the snapshots of shard 0: "},
		"bad generations": {func(b parts) { b.record(`{"format":3,"generations":1}`) }, 1, Until{},
			"the record of the snapshots of shard 0: "},
		"a later record": {func(b parts) { b.record(`{"format":2}`) }, 1, Until{}, "it has the format \"2\""},
		"no beginning": {func(b parts) { b[theLog] = b[theLog][1:] }, 1, Until{},
			"begins at sequence 2, and no snapshot reaches it"},
		"a snapshot": {func(b parts) { b.from(3, 2) }, 1, Until{}, ""},
		"too early a snapshot": {func(b parts) { b.from(4, 2) }, 1, Until{}, "begins at sequence 4, and no snapshot " +
			"reaches it"},
		"an origin":           {func(b parts) { b.from(3, 0); b.origin(2) }, 1, Until{}, ""},
		"too early an origin": {func(b parts) { b.from(4, 0); b.origin(2) }, 1, Until{}, "begins at sequence 4"},
		"until the snapshot":  {func(b parts) { b.from(3, 3) }, 1, Until{Seq: 4}, ""},
		"before the snapshot": {func(b parts) { b.from(3, 3) }, 1, Until{Seq: 3}, "the earliest is sequence 4 of " +
			"LAPSE_LOG or the instant 2026-09-21T14:13:20.077Z, when a snapshot was taken there"},
		"the older snapshot": {func(b parts) { b.from(3, 4, 2) }, 1, Until{Seq: 3}, ""},
		"before the origin": {func(b parts) { b.from(3, 0); b.origin(4) }, 1, Until{Seq: 4},
			"the earliest is sequence 5 of LAPSE_LOG: use an earlier backup"},
		"an event of no cause": {func(b parts) {
			b[theEvents][0] = expiry(1, "c", "a", 0, 25)
			b[theEvents][0].Header = []byte("NATS/1.0\r\nce-id: x\r\n\r\n")
		}, 1, Until{}, ""},
		"a stream that is twice": {func(b parts) {}, 1, Until{Seq: 1}, ""},
	} {
		b := usual()
		tt.change(b)
		_, err := Scan(bytes.NewReader(b.file(t, tt.shards, end{})), tt.until)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}

// record sets the record of the snapshots.
func (b parts) record(text string) {
	b[thePoints] = append(b[thePoints], keyed(9, theRecord+"0", text))
}

// origin sets where the shard begins.
func (b parts) origin(seq uint64) {
	b[thePoints][0].Data = fmt.Appendf(nil, `{"format":3,"seq":5,"watermark":1,"origin":%d}`, seq)
}

// from removes what is before a sequence, and gives the shard snapshots at some offsets.
func (b parts) from(seq uint64, offsets ...uint64) {
	b[theLog] = slices.DeleteFunc(b[theLog], func(m *message) bool { return m.Seq < seq })
	var all []string
	for i, offset := range offsets {
		if offset > 0 {
			all = append(all, fmt.Sprintf(`{"generation":%d,"offset":%d,"taken":%d,"sha256":"x"}`, 9-i, offset, ms+77))
		}
	}
	b[thePoints] = append(b[thePoints], keyed(10, theRecord+"0",
		fmt.Sprintf(`{"format":3,"generations":[%s]}`, strings.Join(all, ","))))
}

// TestRecords: a record is restored without the snapshots of later offsets. A backup keeps those that were there before
// and after it was read.
func TestRecords(t *testing.T) {
	b := usual()
	b.from(1, 4, 2)
	c, err := Scan(bytes.NewReader(b.file(t, 1, end{})), Until{Seq: 4})
	if err != nil {
		t.Fatal(err)
	}
	b[thePoints] = append(b[thePoints], keyed(20, theRecord+"1", `no record`), keyed(21, theRecord+"-1", `no record`),
		keyed(22, thePoint+"x", `no point`), keyed(23, "$KV.LAPSE_CHECKPOINTS.other.0", `no point`))
	_, values, _ := restoredOf(t, c, b, thePoints)
	if len(values) != len(b[thePoints]) {
		t.Fatalf("%d of %d values are restored", len(values), len(b[thePoints]))
	}
	r, err := parseRecord(values[1])
	if err != nil || len(r.Generations) != 1 || r.Generations[0].Generation != 8 || r.Generations[0].SHA256 != "x" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := parseRecord(nil); err != nil || r.Generations != nil || r.message != nil {
		t.Errorf("no record: %+v, %v", r, err)
	}
}

// TestEachErrorOfReading: wherever a byte of a backup cannot be read, that is the error, and not damage.
func TestEachErrorOfReading(t *testing.T) {
	broken := errors.New("the disk is broken")
	whole, large := writtenParts(t), usual().file(t, 1, end{})
	for n := 0; n < len(whole); n += 7 {
		r, err := newReader(io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(broken)))
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	for n := 0; n < len(large); n += 97 {
		if _, err := Scan(io.MultiReader(bytes.NewReader(large[:n]), iotest.ErrReader(broken)), Until{}); !errors.Is(err,
			broken) {
			t.Errorf("a scan, after %d bytes: %v", n, err)
		}
	}
	if _, err := Scan(io.MultiReader(bytes.NewReader(large), iotest.ErrReader(broken)), Until{}); !errors.Is(err, broken) {
		t.Errorf("behind the end: %v", err)
	}
}

// TestAnArchiveEnds: wherever the archive of a stream ends too early, it is refused.
func TestAnArchiveEnds(t *testing.T) {
	messages := usual()[theLog]
	raw, err := io.ReadAll(s2.NewReader(bytes.NewReader(archived(t, stateOf(messages),
		[]consumer{{"consumers/a", 1, []byte(`{"a":1}`)}}, messages...))))
	if err != nil {
		t.Fatal(err)
	}
	incomplete := 0
	for n := range raw {
		var cut, out bytes.Buffer
		w := s2.NewWriter(&cut, s2.WriterConcurrency(1))
		if _, err := w.Write(raw[:n]); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		_, visited := visitAll(bytes.NewReader(cut.Bytes()), func(*message) {})
		rewritten := (&Contents{Header: Header{Prefix: "lapse", Shards: 1}}).rewrite(&streamContents{Name: "other"},
			bytes.NewReader(cut.Bytes()), &out)
		for _, err := range []error{visited, rewritten} {
			if errors.Is(err, errIncomplete) {
				incomplete++
			} else if !errors.Is(err, errArchive) && !errors.Is(err, archive.ErrInvalidArchive) {
				t.Errorf("%d of %d bytes: %v", n, len(raw), err)
			}
		}
	}
	if incomplete == 0 {
		t.Error("none of them counts as incomplete")
	}
	var other bytes.Buffer
	w := archive.NewWriter(&other)
	if err := w.WriteHeader(&archive.Header{Name: "other.json"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"something else", other.String()} {
		var compressed bytes.Buffer
		w := s2.NewWriter(&compressed, s2.WriterConcurrency(1))
		if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		if _, err := openArchive(&compressed); !errors.Is(err, errArchive) {
			t.Errorf("%q is an archive: %v", text, err)
		}
	}
	for _, tt := range []struct{ err, want error }{{io.EOF, errIncomplete},
		{fmt.Errorf("x: %w", io.ErrUnexpectedEOF), errIncomplete}, {errFull, errFull}} {
		if err := broken(tt.err); err != tt.want {
			t.Errorf("%v is told as %v", tt.err, err)
		}
	}
}

// full is a disk with so much room.
type full struct{ room int }

var errFull = errors.New("the disk is full")

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestTheDiskIsFull: wherever the room for a backup, or for an archive, ends, that is an error.
func TestTheDiskIsFull(t *testing.T) {
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	write := func(out io.Writer) error {
		w, err := newWriter(out, Header{})
		if err != nil {
			return err
		}
		if err := w.Stream(stream{}, func(w io.Writer) error { _, err := w.Write(large); return err }); err != nil {
			return err
		}
		return w.End(end{})
	}
	archives := func(out io.Writer) error {
		w, err := newArchiveWriter(out, state{}, []consumer{{"consumers/a", 1, large}})
		if err != nil {
			return err
		}
		for range 3 {
			if err := w.Message(&message{Seq: 1, Subject: "a", Data: large}); err != nil {
				return err
			}
		}
		return w.Close()
	}
	for name, write := range map[string]func(io.Writer) error{"a backup": write, "an archive": archives} {
		var whole bytes.Buffer
		if err := write(&whole); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < whole.Len(); n += 10_000 {
			if err := write(&full{n}); !errors.Is(err, errFull) {
				t.Errorf("%s of %d bytes, with room for %d: %v", name, whole.Len(), n, err)
			}
		}
		if err := write(&full{whole.Len() - 1}); !errors.Is(err, errFull) {
			t.Errorf("%s, but for a byte: %v", name, err)
		}
	}
}

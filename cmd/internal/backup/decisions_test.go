package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestCovered: a backup is taken only if Redis can be built from it: of each shard the log reaches back to where it
// began, or to a snapshot that was there before and after the snapshots were read.
func TestCovered(t *testing.T) {
	for _, tt := range []struct {
		first, origin uint64
		snapshots     []uint64
		covered       bool
	}{
		{0, 0, nil, true}, {1, 0, nil, true}, {2, 0, nil, false}, {4, 3, nil, true}, {5, 3, nil, false},
		{5, 0, []uint64{4}, true}, {5, 0, []uint64{3}, false}, {5, 0, []uint64{3, 4}, true}, {5, 0, []uint64{9}, true},
		{5, 0, []uint64{0}, false}, {1, 0, []uint64{0}, true},
	} {
		k := &taker{Source: Source{Prefix: "lapse"}, header: Header{Prefix: "lapse", Shards: 2},
			logs: []state{{FirstSeq: 1}, {FirstSeq: tt.first}}}
		k.bucket = []*message{keyed(1, thePoint+"1", fmt.Sprintf(`{"format":3,"origin":%d}`, tt.origin)),
			keyed(1, thePoint+"0", `{"format":3}`)}
		r := record{}
		for _, offset := range tt.snapshots {
			r.Generations = append(r.Generations, wire.Generation{Offset: offset})
		}
		if k.before = []record{{}, r}; tt.snapshots == nil {
			k.before = nil
		}
		if err := k.covered(); (err == nil) != tt.covered || err != nil &&
			!strings.Contains(err.Error(), fmt.Sprintf("the log LAPSE_LOG_1 begins at sequence %d, and no snapshot reaches it",
				tt.first)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestCompareConfigs: the stream of configurations has all that the logs have, and may have more. What not all logs
// have is a configuration after the end; it may be of the last instant unless it is known when all of them got it.
func TestCompareConfigs(t *testing.T) {
	n := Header{Prefix: "lapse", Shards: 2}
	for _, tt := range []struct {
		copied, seen [2]uint64
		end, last    uint64 // of the stream of configurations
		wantEnd      uint64
		changed      map[string]bool
	}{
		{[2]uint64{5, 5}, [2]uint64{5, 5}, 5, 5, 5, map[string]bool{}},
		{[2]uint64{3, 5}, [2]uint64{5, 5}, 5, 5, 5, map[string]bool{"c4": false, "c5": false}},
		{[2]uint64{5, 3}, [2]uint64{5, 4}, 4, 5, 5, map[string]bool{"c4": false, "c5": true}},
		{[2]uint64{3, 4}, [2]uint64{0, 0}, 3, 5, 4, map[string]bool{"c4": true, "c5": true}},
		{[2]uint64{4, 4}, [2]uint64{4, 4}, 2, 3, 3, map[string]bool{"c5": true}},
		{[2]uint64{3, 3}, [2]uint64{4, 9}, 5, 5, 5, map[string]bool{"c4": false, "c5": true}},
	} {
		c := &Contents{Header: n, changed: map[string]bool{}, latest: map[string]uint64{"c3": 3, "c4": 4, "c5": 5}}
		for i, name := range n.logs() {
			c.Streams = append(c.Streams, streamContents{Name: name, copied: tt.copied[i], seen: tt.seen[i]})
		}
		c.Streams = append(c.Streams, streamContents{Name: n.root(), end: tt.end, state: state{LastSeq: tt.last}})
		c.compareConfigs()
		if diff := cmp.Diff(tt.changed, c.changed); diff != "" || c.stream(n.root()).end != tt.wantEnd {
			t.Errorf("%+v: the configurations end at %d, and what is after the end:\n%s", tt, c.stream(n.root()).end, diff)
		}
	}
}

// TestCauses: which message of which log a message of the stream of events names.
func TestCauses(t *testing.T) {
	n := Header{Prefix: "lapse", Shards: 3}
	c := &Contents{Header: n, changed: map[string]bool{"c": true}}
	for _, name := range n.logs() {
		c.Streams = append(c.Streams, streamContents{Name: name, end: 5, logTime: ms * int64(time.Millisecond)})
	}
	id := "a" // of a document in another shard than the one with id and collection exchanged
	for placed("c", id) == placed(id, "c") {
		id += "a"
	}
	other := func(subject string) *message { return &message{Seq: 3, Subject: subject} }
	for name, tt := range map[string]struct {
		m    *message
		log  string // "": none
		seq  uint64
		says string
	}{
		"a rejection":            {rejected(3, n.logs()[1], "7"), n.logs()[1], 7, ""},
		"of another log":         {rejected(3, "OTHER", "7"), "", 0, "message 3 of LAPSE_EVENTS does not name"},
		"of no message":          {rejected(3, n.logs()[1], "x"), "", 0, "message 3 of LAPSE_EVENTS does not name"},
		"another number":         {rejected(3, n.logs()[1], "12"), n.logs()[1], 12, ""},
		"a fence":                {other("lapse.fence.0"), "", 0, ""},
		"of another prefix":      {other("other.expired.c.1"), "", 0, ""},
		"an event of no cause":   {other("lapse.expired.c.1"), "", 0, "does not name"},
		"an event":               {expiry(3, "c", id, 12, 0), n.logs()[placed("c", id)], 12, ""},
		"a warning":              {expiring(3, "c", id, 12, 0), n.logs()[placed("c", id)], 12, ""},
		"a due message":          {due(3, "c", id, 12, 0), n.logs()[placed("c", id)], 12, ""},
		"a change":               {change(3, "c", id, 12), n.logs()[placed("c", id)], 12, ""},
		"a drop":                 {drop(3, "c", 12), n.logs()[0], 12, ""},
		"a change of no cause":   {other("lapse.changed.c.1"), "", 0, "does not name"},
		"of the other way round": {expiry(3, id, "c", 12, 0), n.logs()[placed(id, "c")], 12, ""},
	} {
		log, seq, err := c.cause(tt.m)
		got := ""
		if log != nil {
			got = log.Name
		}
		if got != tt.log || seq != tt.seq || (err == nil) != (tt.says == "") || err != nil &&
			!strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: message %d of %q, %v", name, seq, got, err)
		}
		stays, failed := c.isRestored(tt.m)
		if (failed == nil) != (err == nil) || stays != (err == nil && log == nil) {
			t.Errorf("%s: it is restored: %t, %v", name, stays, failed)
		}
	}
	bad := expiry(3, "c", "a", 2, 0)
	bad.Header = bytes.ReplaceAll(bad.Header, []byte("ce-time: "), []byte("ce-time: x"))
	if _, err := c.isRestored(bad); err == nil || !strings.Contains(err.Error(), "message 3 of LAPSE_EVENTS: its "+
		"ce-time is not valid") {
		t.Errorf("a bad time: %v", err)
	}
}

// placed is the shard of a document, of three.
func placed(collection, id string) int {
	return wire.ShardOf(3, collection, id)
}

// TestG3_TheLastOutputBeforeTheEnd: a checkpoint that is moved names the last output before the first that was caused
// after the end of the log, or in its last instant.
func TestG3_TheLastOutputBeforeTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		events []*message
		before uint64
	}{
		"none":                      {nil, 0},
		"all are before it":         {[]*message{expiry(1, "c", "a", 1, 9), rejected(2, theLog, "5")}, 2},
		"the last is a due message": {[]*message{expiry(1, "c", "a", 1, 8), due(2, "c", "b", 2, 9)}, 2},
		"the last is a warning":     {[]*message{expiry(1, "c", "a", 1, 8), expiring(2, "c", "b", 2, 9)}, 2},
		"a warning is of its last": {[]*message{expiry(1, "c", "a", 1, 8), expiring(2, "c", "b", 2, 10),
			expiry(3, "c", "a", 3, 9)}, 1},
		"one is of its last instant": {[]*message{expiry(1, "c", "a", 1, 9), expiry(2, "c", "a", 2, 10),
			expiry(3, "c", "a", 3, 9)}, 1},
		"one is of a later message": {[]*message{rejected(1, theLog, "5"), rejected(2, theLog, "6"),
			rejected(3, theLog, "4")}, 1},
		"one is of a later version": {[]*message{expiry(1, "c", "a", 5, 9), expiry(2, "c", "a", 6, 9),
			expiry(3, "c", "a", 1, 9)}, 1},
		"one is not valid": {[]*message{rejected(1, theLog, "5"), {Seq: 2, Subject: "lapse.rejected.c.1"},
			rejected(3, theLog, "4")}, 3},
		"strangers are in between": {[]*message{rejected(1, theLog, "5"), {Seq: 2, Subject: "lapse.fence.0"}}, 1},
		"it is of another log's time": {[]*message{rejected(1, theLog, "5"), func() *message {
			m := expiry(2, "c", "a", 9, 99)
			m.Header = bytes.ReplaceAll(m.Header, []byte("/lapse/7/"), []byte("/lapse/8/"))
			return m
		}(), rejected(3, theLog, "4")}, 3},
	} {
		b := parts{theLog: {write(5, 10)}, theEvents: tt.events, thePoints: {keyed(1, thePoint+"0",
			`{"format":3,"origin":4}`), keyed(2, thePoint+"1", `{"format":3,"origin":4}`)}}
		c, err := Scan(bytes.NewReader(b.file(t, 1, end{})), Until{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if at := c.stream(theLog).before.Seq; at != tt.before {
			t.Errorf("%s: %d, want %d", name, at, tt.before)
		}
	}
}

// TestFileLimits: a header has to be one that lapse has written, and the content of a stream may be of any size.
func TestFileLimits(t *testing.T) {
	for _, tt := range []struct {
		header Header
		valid  bool
	}{
		{Header{Prefix: "lapse", Shards: 1}, true}, {Header{Prefix: "lapse", Shards: wire.MaxShards}, true},
		{Header{Prefix: "lapse", Shards: wire.MaxShards + 1}, false}, {Header{Prefix: "lapse", Shards: 0}, false},
		{Header{Prefix: "la pse", Shards: 1}, false},
	} {
		var out bytes.Buffer
		w, err := newWriter(&out, tt.header)
		if err != nil || w.End(end{}) != nil {
			t.Fatal(err)
		}
		if _, err := newReader(&out); (err == nil) != tt.valid || err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("%+v: %v", tt.header, err)
		}
	}
	for _, n := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 2*chunkBytes + 5} {
		var out bytes.Buffer
		w, err := newWriter(&out, Header{Prefix: "lapse", Shards: 1})
		if err != nil {
			t.Fatal(err)
		}
		content := bytes.Repeat([]byte{7}, n)
		if err := w.Stream(stream{Name: "A"}, func(w io.Writer) error {
			_,
				err := w.Write(content)
			return err
		}); err != nil || w.End(end{}) != nil {
			t.Fatal(err)
		}
		if w.all.n.Load() != int64(out.Len()-2*sha256.Size) {
			t.Errorf("it has written %d bytes, and says %d", out.Len(), w.all.n.Load())
		}
		size := int64(out.Len())
		if streams, _, err := read(out.Bytes()); err != nil || streams["A"] != string(content) {
			t.Errorf("%d bytes: %v", n, err)
		}
		r, err := newReader(&out)
		for err == nil {
			_, err = r.Next()
		}
		if r.all.n.Load() < size-100 || r.all.n.Load() > size {
			t.Errorf("after all %d bytes it has read %d", size, r.all.n.Load())
		}
	}
	failed := errors.New("the content fails")
	if w, err := newWriter(io.Discard, Header{}); err != nil ||
		!errors.Is(w.Stream(stream{}, func(io.Writer) error { return failed }), failed) {
		t.Error("content that fails makes a stream")
	}
	if _, err := newReader(strings.NewReader(strings.Repeat("x", 300<<10))); err == nil ||
		!strings.Contains(err.Error(), "not a backup of lapse") {
		t.Errorf("a long line: %v", err)
	}
}

// TestConfigured: a stream is restored with its own configuration, and under the mark until it is complete. A log does
// not take writes meanwhile, and loses no message by its age.
func TestConfigured(t *testing.T) {
	c := &Contents{Header: Header{Prefix: "lapse", Shards: 2}}
	original := jetstream.StreamConfig{
		Name: "X", MaxAge: 1234567890123456789, Replicas: 1, Subjects: []string{"a"},
		Sources: []*jetstream.StreamSource{{Name: "Y"}}, Metadata: map[string]string{"_nats.level": "3", "a": "b"},
	}
	for _, name := range append(c.streams(), "OTHER") {
		isLog := strings.HasPrefix(name, "LAPSE_LOG") || name == c.root()
		for replicas := range 3 {
			s := &streamContents{Name: name, end: 5, identity: 9, state: state{LastSeq: 7}}
			first, last := c.configured(s, original, replicas, "id")
			want := original
			want.Metadata, want.Replicas = map[string]string{"a": "b", backupKey: "id"}, max(1, replicas)
			if isLog {
				want.Metadata[wire.RestoredKey] = wire.Restored{Identity: 9, End: 5, Next: c.next(s)}.String()
				want.MaxAge, want.DenyDelete = 0, true
			}
			if diff := cmp.Diff(want, last); diff != "" {
				t.Errorf("the last of %s:\n%s", name, diff)
			}
			want.Metadata[wire.FormatKey] = wire.Restoring
			if isLog {
				want.Subjects, want.Sources, want.DenyDelete = []string{"lapse.restoring." + name}, nil, false
			}
			if diff := cmp.Diff(want, first); diff != "" {
				t.Errorf("the first of %s:\n%s", name, diff)
			}
		}
	}
	_, last := c.configured(&streamContents{}, jetstream.StreamConfig{}, 0, "id")
	if last.Metadata[backupKey] != "id" {
		t.Errorf("without metadata: %+v", last)
	}
}

// TestFind: what the metadata of the log says of the shards.
func TestFind(t *testing.T) {
	_, js := server(t, 1)
	log, err := js.Stream(t.Context(), theLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		format, shards string
		says           string
	}{
		{wire.FormatText, "1", ""}, {wire.FormatText, "", "no valid lapse-shards"},
		{wire.FormatText, "0", "no valid lapse-shards"}, {wire.FormatText, fmt.Sprint(wire.MaxShards + 1),
			"no valid lapse-shards"},
		{wire.FormatText, fmt.Sprint(wire.MaxShards), ""}, {"2", "1", `the log of lapse has the format "2"`},
		{"", "1", "the log of lapse"},
	} {
		c := log.CachedInfo().Config
		c.Metadata = map[string]string{wire.FormatKey: tt.format, wire.ShardsKey: tt.shards}
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		k := &taker{Source: Source{NATS: js.Conn(), Prefix: "lapse", Lapse: "1.2"}, js: js}
		err := k.find(t.Context())
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt, err)
		}
		if err == nil && (fmt.Sprint(k.header.Shards) != tt.shards || k.header.Lapse != "1.2" ||
			time.Since(k.header.Taken).Abs() > time.Minute) {
			t.Errorf("%+v: %+v", tt, k.header)
		}
	}
	if err := (&taker{Source: Source{NATS: js.Conn(), Prefix: "other"}, js: js}).find(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `there is no lapse with the prefix "other": no stream OTHER_LOG`) {
		t.Errorf("another prefix: %v", err)
	}
	if _, err := Take(t.Context(), Source{NATS: js.Conn(), Prefix: "o ther", Applying: nobody}, io.Discard); err == nil {
		t.Error("a prefix that is not valid")
	}
}

// TestG3_ABackupWaits: a backup waits until the checkpoints have reached the ends of the logs while lapse applies them,
// and says for what it waits. What was configured since is told at its end.
func TestG3_ABackupWaits(t *testing.T) {
	_, js := server(t, 1)
	publish := func(subject, body string) {
		t.Helper()
		if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	const behind, there = `{"format":3,"seq":3,"watermark":1}`, `{"format":3,"seq":4,"watermark":1}`
	publish(thePoint+"0", behind)
	for name, tt := range map[string]struct {
		applying func(context.Context) (bool, error)
		waits    bool
		says     error
	}{
		"nobody applies":    {nobody, false, nil},
		"lapse applies":     {func(context.Context) (bool, error) { return true, nil }, true, nil},
		"nobody knows that": {func(context.Context) (bool, error) { return true, errFull }, false, errFull},
	} {
		publish(thePoint+"0", behind)
		var waited []string
		progress := func(doing string) {
			if strings.HasPrefix(doing, "waiting: ") {
				waited = append(waited, doing)
				publish(thePoint+"0", there)
				publish("lapse.config.later", `{}`)
			}
		}
		var out bytes.Buffer
		_, err := Take(t.Context(), Source{NATS: js.Conn(), Prefix: "lapse", Applying: tt.applying, Progress: progress}, &out)
		if !errors.Is(err, tt.says) || (len(waited) == 1) != tt.waits || tt.waits &&
			!strings.Contains(waited[0],
				"lapse has published what LAPSE_LOG caused up to sequence 3, and the backup ends at 4") {
			t.Errorf("%s: it has waited for %q: %v", name, waited, err)
		}
		if err != nil {
			continue
		}
		_, end, err := read(out.Bytes())
		if want := map[bool][]string{true: {"later"}, false: nil}[tt.waits]; err != nil ||
			cmp.Diff(want, end.Configured) != "" {
			t.Errorf("%s: configured since: %v, %v", name, end.Configured, err)
		}
		if tt.waits {
			break
		}
	}
}

// TestNoJetStream: servers that cannot be used are told from streams that are not there.
func TestNoJetStream(t *testing.T) {
	url, js := server(t, 1)
	for stream, want := range map[string]bool{theLog: true, "OTHER": false} {
		if i, err := streamInfo(t.Context(), js, stream); err != nil || (i != nil) != want {
			t.Errorf("stream %s: %+v, %v", stream, i, err)
		}
	}
	if m, err := bucketValue(t.Context(), js.Conn(), Header{Prefix: "lapse"}, checkpointKey(7)); m != nil || err != nil {
		t.Errorf("no value: %v, %v", m, err)
	}
	m, err := get(t.Context(), js.Conn(), theLog, map[string]any{"seq": 2, "next_by_subj": "lapse.>"})
	if err != nil || m == nil || m.Seq != 2 || m.Subject != "lapse.write0.upsert.c.a" || string(m.Data) != `{}` ||
		m.Stamp == 0 {
		t.Errorf("the next message: %+v, %v", m, err)
	}
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	closed := natstest.JetStream(t, nc)
	const lacks = "look up stream X (the user may lack the permission)"
	if _, err := streamInfo(t.Context(), closed, "X"); err == nil || !strings.Contains(err.Error(), lacks) {
		t.Errorf("a closed connection: %v", err)
	}
	if err := download(t.Context(), nc, theLog, true, io.Discard); err == nil {
		t.Error("a download by a closed connection")
	}
	elsewhere, err := jetstream.NewWithDomain(js.Conn(), "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streamInfo(t.Context(), elsewhere, "X"); err == nil ||
		!strings.Contains(err.Error(), "has no JetStream") {
		t.Errorf("nobody answers: %v", err)
	}
	if err := download(t.Context(), js.Conn(), theLog, true, &full{0}); !errors.Is(err, errFull) {
		t.Errorf("a download onto a full disk: %v", err)
	}
}

// TestTheServerIsLost: the connection is lost in the middle of an upload, or before its end is answered.
func TestTheServerIsLost(t *testing.T) {
	for says, content := range map[string][]byte{"send it to the server": make([]byte, 1<<20),
		"wait until the server has stored it": nil} {
		url := natstest.Start(t, natstest.Options{})
		nc, err := nats.Connect(url, natstest.Patient)
		if err != nil {
			t.Fatal(err)
		}
		from := io.MultiReader(closes{nc}, bytes.NewReader(content))
		if _, err := upload(t.Context(), nc, jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}},
			from); !errors.Is(err, nats.ErrConnectionClosed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// closes closes a connection when it is read.
type closes struct{ nc *nats.Conn }

func (c closes) Read([]byte) (int, error) {
	c.nc.Close()
	return 0, io.EOF
}

package backup

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestUntil: what is stamped at the instant to which a backup is restored, or later, is left out, and so
// is what follows it although it is stamped earlier. The message with the sequence is left out too.
//
// It fails if the message at the very border stays.
func TestUntil(t *testing.T) {
	at := time.UnixMilli(1500)
	for _, tt := range []struct {
		until   Until
		seq     uint64
		logTime int64
		ends    bool
	}{
		{Until{}, 9, math.MaxInt64, false},
		{Until{Time: at}, 9, at.UnixNano() - 1, false},
		{Until{Time: at}, 9, at.UnixNano(), true},
		{Until{Time: at}, 9, at.UnixNano() + 1, true},
		{Until{Seq: 9}, 8, math.MaxInt64, false},
		{Until{Seq: 9}, 9, 0, true},
		{Until{Seq: 9}, 10, 0, true},
	} {
		if got := tt.until.ends(&message{Seq: tt.seq}, tt.logTime); got != tt.ends {
			t.Errorf("%+v: message %d at log time %d is left out: %v, want %v", tt.until, tt.seq, tt.logTime, got, tt.ends)
		}
	}
}

// Collection c is configured after the last message of a log, in the same millisecond. Events
// of that millisecond may follow from either: they are left out, and the checkpoint does not
// say that they are published. Collection e is configured later: an event of that millisecond is
// of the log that is restored, and a snapshot may be without its document.
//
// It fails if an event of the last millisecond of c stays; if it is left out, and lapse does not
// look it up; if an event of e is left out.
func TestG3_ConfiguredInTheLastInstant(t *testing.T) {
	c := &Contents{Header: Header{Prefix: wire.DefaultPrefix, Shards: 1}, changed: map[string]bool{"c": true, "e": false}}
	c.Streams = []streamContents{{Name: c.logs()[0], end: 9, logTime: 1_500_000_000}}
	for collection, last := range map[string]int64{"c": 1499, "e": 1500, "f": 1501} {
		for ms := int64(1499); ms <= 1501; ms++ {
			for kind, id := range map[string]string{"expired." + collection: "d/7",
				"expiring." + collection: "d/7/expiring/5/6500", "due.c": "d/7", "due.e": "d/7"} {
				m := &message{Subject: "lapse." + kind + ".d"}
				m.Header = fmt.Appendf(nil,
					"NATS/1.0\r\nce-source: /lapse/7/collections/%s\r\nce-id: %s/%s\r\nce-time: %s\r\n\r\n", collection, collection,
					id, wire.Time(ms))
				if stays, err := c.isRestored(m); stays != (ms <= last) || err != nil {
					t.Errorf("an event (%s) of %s of %d ms stays: %v, %v, want %v", kind, collection, ms, stays, err, ms <= last)
				}
			}
		}
	}
	for of := uint64(8); of <= 10; of++ { // at an instant that is after the end, which does not count
		for _, m := range []*message{change(1, "c", "d", of), drop(1, "c", of)} {
			if stays, err := c.isRestored(m); stays != (of <= 9) || err != nil {
				t.Errorf("%s of message %d stays: %v, %v", m.Subject, of, stays, err)
			}
		}
	}
	for _, seq := range []uint64{8, 9, 12} {
		m := &message{}
		m.Data = fmt.Appendf(nil, `{"format":3,"seq":%d,"watermark":1500,"later":"stays"}`, seq)
		err := c.moveCheckpoint(m, &c.Streams[0])
		if point, _ := parseCheckpoint(m); err != nil || point.Seq != min(seq, 9) || point.Watermark != 1499 ||
			!bytes.Contains(m.Data, []byte(`"later":"stays"`)) {
			t.Errorf("the checkpoint at %d: %+v, %v", seq, point, err)
		}
	}
}

// A restored checkpoint names the place in the stream of events behind which there is all that is caused
// after it: its own, that of the end of the log, or the earlier of both.
func TestG3_PlaceOfARestoredCheckpoint(t *testing.T) {
	const own, end, none = 50, 40, 0
	for _, c := range []struct {
		seq, movedSeq             uint64
		watermark, movedWatermark int64
		own, before, want         uint64
	}{
		{9, 9, 1500, 1500, own, end, own},      // it is the end
		{9, 9, 1500, 1500, none, end, end},     // an older lapse has stored it
		{8, 8, 1200, 1200, own, end, own},      // it is before the end
		{8, 8, 1200, 1200, none, end, none},    // likewise
		{12, 9, 1700, 1500, own, end, end},     // it is moved to the end
		{12, 9, 1700, 1500, none, end, end},    // likewise
		{12, 9, 1700, 1499, own, end, end},     // and before its last instant
		{12, 9, 1700, 1500, own, none, none},   // what comes after the end is the first in the stream
		{9, 9, 1500, 1499, own, end, end},      // an instant is moved
		{8, 8, 1500, 1499, own, end, end},      // likewise, and it is before the end
		{8, 8, 1500, 1499, own, own + 1, own},  // likewise, and its own place is the earlier one
		{8, 8, 1500, 1499, none, end, none},    // likewise, and it has none
		{8, 8, 1498, 1498, own, own - 1, own},  // its instant is before that of the end
		{9, 9, 1498, 1498, none, end, none},    // likewise
		{12, 9, 1498, 1498, own, own + 1, own}, // likewise, and it is moved
	} {
		log := &streamContents{end: 9, logTime: 1_500_000_000, before: events.Place{Seq: c.before}}
		was := checkpoint{Seq: c.seq, Watermark: c.watermark, From: events.Place{Seq: c.own}}
		if at := log.from(was, checkpoint{Seq: c.movedSeq, Watermark: c.movedWatermark}); at.Seq != c.want {
			t.Errorf("%+v: it names %d", c, at.Seq)
		}
	}
}

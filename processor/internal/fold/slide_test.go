package fold

import (
	"slices"
	"testing"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG8_ATouchForARead: a touch that lapse has appended for a read renews the version that was read, and is no
// rejection if there is another version, or none any more: no client has published it. A client that forges its header
// is told so, unless it forges all of the touch.
//
// It fails if a client loses the rejection of a touch without an etag, or of one whose outcome it awaits.
func TestG8_ATouchForARead(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(0, 1, 10), SlideOnRead: wire.SlideTenth}
	for name, c := range map[string]struct {
		op, match, reply string
		etag             uint64 // of the live version
		at               int64
		codes            []int // of the rejections
		outputs          int
		renewed          bool
	}{
		"the version that was read": {op: "touch", match: "5", etag: 5, at: 5000, renewed: true},
		"another version":           {op: "touch", match: "5", etag: 6, at: 5000},
		"it has expired":            {op: "touch", match: "5", etag: 5, at: 11000, outputs: 1}, // its expiry event
		"a client's patch":          {op: "patch", match: "5", etag: 5, at: 5000, codes: []int{400}, outputs: 1},
		"a client's touch":          {op: "touch", etag: 5, at: 5000, codes: []int{400}, outputs: 1},
		"of what is not there":      {op: "touch", etag: 5, at: 11000, codes: []int{400}, outputs: 2},
		"of any version":            {op: "touch", match: "*", etag: 5, at: 11000, codes: []int{400}, outputs: 2},
		"awaited": {op: "touch", match: "5", reply: "_INBOX.x", etag: 6, at: 5000, codes: []int{400},
			outputs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			body, header := "", map[string][]string{"lapse-slide": {"true"}}
			if c.op == "patch" {
				body = "{}"
			}
			if c.match != "" {
				header[wire.HeaderIfMatch] = []string{c.match}
			}
			if c.reply != "" {
				header[wire.HeaderReplyTo] = []string{c.reply}
			}
			m := decoder.Decode("lapse.write."+c.op+".c.a", header, []byte(body), Position{Seq: 9, Time: c.at,
				Stamp: c.at * 1e6})
			d := New(testLimits, oneConfig(config), 0)
			s := d.Slot(Key{Collection: "c", ID: "a"})
			s.Now = &Version{Header: store.Header{Ts: 1000, Etag: c.etag}, Body: []byte("{}")}
			s.Stored = &s.Now.Header
			d.Apply(m)
			if renewed := s.Now != nil && s.Now.Header.Kept == c.at && s.Now.Header.Etag == c.etag &&
				s.Now.Header.Ts == 1000; renewed != c.renewed || !slices.EqualFunc(d.Rejections, c.codes,
				func(r Rejection, code int) bool { return r == Rejection{9, code} }) || len(d.Outputs) != c.outputs {
				t.Errorf("renewed %t, rejections %v, %d outputs; want %+v", renewed, d.Rejections, len(d.Outputs), c)
			}
		})
	}
}

package fold

import (
	"testing"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// A touch that lapse has appended for a read renews the version that was read, and is no rejection if
// there is another version, or none any more: no client has published it.
func TestATouchForARead(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(0, 1, 10), SlideOnRead: true}
	for name, c := range map[string]struct {
		op      string
		etag    uint64 // of the live version
		at      int64
		status  int
		outputs int
	}{
		"the version that was read": {"touch", 5, 5000, wire.StatusOK, 0},
		"another version":           {"touch", 6, 5000, wire.StatusPreconditionFailed, 0},
		"it has expired":            {"touch", 5, 11000, wire.StatusNotFound, 1}, // its expiry event
		"a client's patch":          {"patch", 5, 5000, wire.StatusBadRequest, 1},
	} {
		t.Run(name, func(t *testing.T) {
			body := ""
			if c.op == "patch" {
				body = "{}"
			}
			m := decoder.Decode("lapse.write."+c.op+".c.a", map[string][]string{
				wire.HeaderIfMatch: {"5"}, wire.HeaderSlide: {"true"}, wire.HeaderReplyTo: {"_INBOX.x"},
			}, []byte(body), Position{Seq: 9, Time: c.at, Stamp: c.at * 1e6})
			stored := &Version{Header: store.Header{Ts: 1000, Etag: c.etag}, Body: []byte("{}")}
			outcome, d := decideOne(t, config, stored, m)
			if outcome.Status != c.status || len(d.Outputs) != c.outputs {
				t.Errorf("outcome %+v and %d outputs, want %d and %d", outcome, len(d.Outputs), c.status, c.outputs)
			}
		})
	}
}

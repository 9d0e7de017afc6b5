package oracle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// source is the ce-source of the output of a message of the log: it names the log that had the message first, of those
// that promotions of other regions have put one behind the other.
func (m *Model) source(etag wire.Etag, collection string) string {
	created := m.set.Created
	for _, f := range m.former {
		if uint64(etag) <= f.Last {
			created = wire.Time(f.Identity / int64(time.Millisecond))
			break
		}
	}
	return fmt.Sprintf("/%s/%d/collections/%s", m.set.Prefix, created, collection)
}

// lost reports whether an event is the output of a message that a promotion has lost: a mirror of the events may
// have had it before the mirror of the log had the message.
func (m *Model) lost(msg Message) bool {
	text := value(msg, wire.HeaderSeq)
	if id := strings.Split(value(msg, "ce-id"), "/"); text == "" && len(id) > 2 {
		if text = id[2]; text == "dropped" {
			text = id[1]
		}
	}
	seq, err := strconv.ParseUint(text, 10, 64)
	for _, f := range m.former {
		if err == nil && msg.Seq <= f.Events && seq > f.Last {
			return true
		}
	}
	return false
}

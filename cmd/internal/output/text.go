package output

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Expires is the instant at which a document expires; nil is "never".
func Expires(at *wire.Time) string {
	if at == nil {
		return "never"
	}
	return at.String()
}

// DefaultTTL is the default TTL of a collection; nil is "off".
func DefaultTTL(ttl *int32) string {
	if ttl == nil {
		return "off"
	}
	return strconv.FormatInt(int64(*ttl), 10)
}

// TTL is the time to live that counted; 0, which is "-", means that an absolute deadline counted.
func TTL(seconds int32) string {
	if seconds == 0 {
		return "-"
	}
	return strconv.Itoa(int(seconds))
}

// Config is the configuration of a collection, on one line.
func Config(collection string, c wire.Config) string {
	line := fmt.Sprintf("%s default-ttl=%s indexing=%s", collection, DefaultTTL(c.DefaultTTL), c.IndexingMode)
	if c.MinTTL != 0 {
		line += fmt.Sprintf(" min-ttl=%d", c.MinTTL)
	}
	if c.MaxTTL != 0 {
		line += fmt.Sprintf(" max-ttl=%d", c.MaxTTL)
	}
	if c.MaxLife != 0 {
		line += fmt.Sprintf(" max-life=%d", c.MaxLife)
	}
	if len(c.WarnBefore) > 0 {
		line += " warn-before=" + Durations(c.WarnBefore)
	}
	switch c.SlideOnRead {
	case 0:
	case wire.SlideTenth:
		line += " slide-on-read"
	default:
		line += " slide-on-read=" + c.SlideOnRead.String()
	}
	if c.EventBody != nil && !*c.EventBody {
		line += " no-event-body"
	}
	if c.Changes {
		line += " changes"
	}
	if c.Paused {
		line += " paused"
	}
	if len(c.Indexes) > 0 {
		line += " indexes=" + Names(c.Indexes)
	}
	return line
}

// Names are names with commas between them.
func Names(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = Name(name)
	}
	return strings.Join(texts, ",")
}

// Durations are numbers of seconds, as the user may write them.
func Durations(seconds []int32) string {
	texts := make([]string, len(seconds))
	for i, n := range seconds {
		texts[i] = strconv.Itoa(int(n)) + "s"
	}
	return strings.Join(texts, ",")
}

// Position is a sequence in a stream and its time; "-" in an empty stream.
func Position(seq uint64, at *wire.Time) string {
	if at == nil {
		return "-"
	}
	return strconv.FormatUint(seq, 10) + " at " + at.String()
}

// Seconds is a number of seconds as a duration, in tenths of a second.
func Seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Truncate(100 * time.Millisecond).String()
}

// Bytes is a size in the greatest unit of which it has at least one.
func Bytes(n uint64) string {
	value, unit := float64(n), ""
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "" {
		return strconv.FormatUint(n, 10) + " B"
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// Grouped is a number with a comma between thousands.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Documents is a number of documents, in words.
func Documents(n int64) string {
	if n == 1 {
		return "1 document"
	}
	return Grouped(n) + " documents"
}

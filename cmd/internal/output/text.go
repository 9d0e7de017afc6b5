package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

// Name is an id or another name as text. If the reader can see each of its characters and
// cannot take it for another, Name returns it as it is. Otherwise Name quotes it, and
// escapes what cannot be seen or looks like something else: combining characters, spaces
// other than the common one, characters without width, controls.
func Name(id string) string {
	odd := func(r rune) bool { return !isPlain(r) || r == ' ' || r == '"' }
	if utf8.ValidString(id) && !strings.ContainsFunc(id, odd) {
		return id
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(id) > 0 {
		r, size := utf8.DecodeRuneInString(id)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, id[0])
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case isPlain(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xFFFF:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		id = id[size:]
	}
	b.WriteByte('"')
	return b.String()
}

// isPlain reports whether a reader can see a character for what it is.
func isPlain(r rune) bool {
	const brailleBlank = 0x2800
	switch {
	case r == ' ':
		return true
	case r == brailleBlank, unicode.In(r, unicode.Other_Default_Ignorable_Code_Point):
		return false // these look like a space or like nothing, whatever their category
	}
	return unicode.IsPrint(r) && !unicode.IsMark(r)
}

// mostIndented is the largest document that a terminal shows indented: nested brackets grow to a
// thousand times their size.
const mostIndented = 64 << 10

// PrintDocument prints a document: its bytes unchanged, or, to a terminal, indented and in colours.
// A terminal would obey control characters, so they are escaped there.
func (s Streams) PrintDocument(document []byte) error {
	var b bytes.Buffer
	if s.OutIsTerminal() && len(document) <= mostIndented && json.Indent(&b, document, "", "  ") == nil {
		document = []byte(s.pretty(b.Bytes()))
	}
	_, err := fmt.Fprintf(s.Out, "%s\n", document)
	return err
}

// pretty paints the strings, names and other scalars of a valid JSON text.
func (s Streams) pretty(text []byte) string {
	var b strings.Builder
	for len(text) > 0 {
		n, how := 1, style("")
		switch c := text[0]; {
		case c == '"':
			n, how = quoted(text), green
			if n < len(text) && text[n] == ':' {
				how = blue
			}
		case strings.IndexByte("{}[],: \n", c) < 0:
			if n = bytes.IndexAny(text, ",]} \n"); n < 0 {
				n = len(text)
			}
			how = yellow
		}
		part := visible(text[:n])
		if how != "" {
			part = s.painted(s.Out, how, part)
		}
		b.WriteString(part)
		text = text[n:]
	}
	return b.String()
}

// quoted is the length of the JSON string with which a text begins.
func quoted(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// visible escapes, as JSON does, what changes how a terminal shows the text around it. A screen does too, but streams
// may have none.
func visible(text []byte) string {
	var b []byte
	for _, r := range string(text) {
		if hidden(r) && r != utf8.RuneError {
			b = appendHidden(b, r, 0)
		} else if r == utf8.RuneError {
			b = append(b, `\ufffd`...)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

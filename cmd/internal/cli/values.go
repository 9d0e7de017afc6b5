package cli

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Period is a duration that the user may also write in days, such as 7d.
type Period time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Period) UnmarshalText(text []byte) error {
	d, err := wire.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// Size is a number of bytes that the user may also write with a unit, such as 10GiB.
type Size int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *Size) UnmarshalText(text []byte) error {
	s, factor := string(text), int64(1)
	for unit, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if number, ok := strings.CutSuffix(s, unit); ok {
			s, factor = number, bytes
		}
	}
	number, err := strconv.ParseInt(s, 10, 64)
	if err != nil || number < 1 || number > math.MaxInt64/factor {
		return fmt.Errorf("%q is not valid: use a number of bytes over 0, such as 1073741824, 512MiB or 10GiB", text)
	}
	*n = Size(number * factor)
	return nil
}

// SyncInterval is a duration, or 0 for "always".
type SyncInterval time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (i *SyncInterval) UnmarshalText(text []byte) error {
	if string(text) == "always" {
		*i = 0
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not valid: use a duration over 0 such as 1s, or always", text)
	}
	*i = SyncInterval(d)
	return nil
}

// Instant is a point in time. The user gives it as such, or as how long ago it was.
type Instant struct {
	time.Time
	Now bool // the user gave 0: the moment at which the command runs
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (i *Instant) UnmarshalText(text []byte) error {
	if at, err := time.Parse(time.RFC3339Nano, string(text)); err == nil {
		*i = Instant{Time: at}
		return nil
	}
	ago, err := wire.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not valid: use an instant such as 2026-01-31T12:00:00Z, or how long ago, such as 90s, "+
			"12h or 7d", text)
	}
	*i = Instant{Time: time.Now().Add(-ago), Now: ago == 0}
	return nil
}

// Deadline is an instant to come. The user gives it as such, as a time of the day here, or as how long
// it is until then. A nil pointer means that the user did not give it.
type Deadline struct{ time.Time }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Deadline) UnmarshalText(text []byte) error {
	at, err := deadline(string(text), time.Now())
	*d = Deadline{at}
	return err
}

// text is the instant as lapse reads it, empty if the user gave none.
func (d *Deadline) text() string {
	if d == nil {
		return ""
	}
	return d.UTC().Format(time.RFC3339Nano)
}

// deadline reads a deadline. A time of the day is that of today, or of tomorrow if it has passed.
func deadline(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		clock, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		for day := now.Day(); ; day++ {
			at := time.Date(now.Year(), now.Month(), day, clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
			if at.After(now) {
				return at, nil
			}
		}
	}
	in, err := wire.ParseDuration(text)
	if err != nil || in <= 0 {
		return time.Time{}, fmt.Errorf("%q is not valid: use an instant such as 2030-01-31T18:00:00Z, a time of today or "+
			"tomorrow such as 18:00, or a duration from now such as 90s, 12h or 7d", text)
	}
	return now.Add(in), nil
}

// TargetName is the target of a message. A nil pointer means that the user did not give it.
type TargetName string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *TargetName) UnmarshalText(text []byte) error {
	*t = TargetName(text)
	return wire.CheckTarget(string(text))
}

// Etag is the value of --if-match. A nil pointer means that the user did not give it.
type Etag string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *Etag) UnmarshalText(text []byte) error {
	if _, err := wire.ParseEtag(string(text)); err != nil && string(text) != "*" {
		return fmt.Errorf("%q is not valid: use the etag of the version, a positive number in decimal, or * for any", text)
	}
	*e = Etag(text)
	return nil
}

// Header is the value of a header of a message. A nil pointer means that the user did not
// give it.
type Header string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Header) UnmarshalText(text []byte) error {
	if len(text) == 0 || bytes.ContainsFunc(text, unicode.IsControl) || !utf8.Valid(text) {
		return fmt.Errorf("%q is not valid: use a text in UTF-8 that is not empty and has no control characters", text)
	}
	*h = Header(text)
	return nil
}

// Text is the text that p points to; "" if p is nil.
func Text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

// TTL is the TTL of a document in seconds; 0 means that the user did not give it.
type TTL int32

// Decode implements [kong.MapperValue], because kong takes -1 for a flag.
func (t *TTL) Decode(ctx *kong.DecodeContext) error {
	text, err := popNumber(ctx)
	if err != nil {
		return err
	}
	n, ok := int32(ttlrules.Never), text == "-1"
	if !ok {
		n, ok = wholeSeconds(text)
	}
	if !ok {
		return fmt.Errorf("%q is not valid: use a whole number of seconds from 1 to %d, a duration such as 90s, 12h or 7d, "+
			"or -1 for never", text, ttlrules.MaxSeconds)
	}
	*t = TTL(n)
	return nil
}

// DefaultTTL is the default TTL of a collection. A nil pointer means that the user did not
// give it.
type DefaultTTL ttlrules.Default

// Decode implements [kong.MapperValue], because kong takes -1 for a flag.
func (d *DefaultTTL) Decode(ctx *kong.DecodeContext) error {
	text, err := popNumber(ctx)
	if err != nil {
		return err
	}
	switch text {
	case "off":
		*d = DefaultTTL(ttlrules.Off)
		return nil
	case "-1":
		*d = DefaultTTL(ttlrules.NoDefault)
		return nil
	}
	n, ok := wholeSeconds(text)
	if !ok {
		return fmt.Errorf("%q is not valid: use a whole number of seconds from 1 to %d, a duration such as 90s, 12h or 7d, "+
			"-1 for never, or off", text, ttlrules.MaxSeconds)
	}
	*d = DefaultTTL(n)
	return nil
}

// Limit is a limit of the TTL in seconds; 0 is none. A nil pointer means that the user did not give it.
type Limit int32

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *Limit) UnmarshalText(text []byte) (err error) {
	if *l = 0; string(text) == "none" {
		return nil
	}
	n, err := secondsOrNone(string(text))
	*l = Limit(n)
	return err
}

// SlidePart is whether reads renew clocks, and after which part of the TTL. A nil pointer means that the user did not
// give it.
type SlidePart wire.Slide

// IsBool implements [kong.BoolMapperValue]: the part may be left out.
func (*SlidePart) IsBool() bool { return true }

// Decode implements [kong.MapperValue].
func (p *SlidePart) Decode(ctx *kong.DecodeContext) error {
	text := "true"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		text = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	part, err := wire.ParseSlide([]byte(text))
	if err != nil {
		return fmt.Errorf("%q is not valid: use the part of the TTL that has to be over before a read renews the clock, a "+
			"number over 0 and under 1 such as 0.01; or leave it out for a tenth", text)
	}
	*p = SlidePart(part)
	return nil
}

// Warnings are durations before a deadline, in seconds. A nil pointer means that the user did not give
// them.
type Warnings struct{ Seconds []int32 }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (w *Warnings) UnmarshalText(text []byte) error {
	if w.Seconds = nil; string(text) == "none" {
		return nil
	}
	for one := range strings.SplitSeq(string(text), ",") {
		n, err := secondsOrNone(one)
		if err != nil {
			return err
		}
		w.Seconds = append(w.Seconds, n)
	}
	return nil
}

// wholeSeconds reads a number of seconds that may be a TTL, or a duration of so many.
func wholeSeconds(text string) (n int32, ok bool) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		var d time.Duration
		d, err = wire.ParseDuration(text)
		if seconds = int64(d / time.Second); d%time.Second != 0 {
			return 0, false
		}
	}
	return int32(seconds), err == nil && seconds >= 1 && seconds <= ttlrules.MaxSeconds
}

// secondsOrNone is wholeSeconds for a flag that may also be none.
func secondsOrNone(text string) (int32, error) {
	n, ok := wholeSeconds(text)
	if !ok {
		return 0, fmt.Errorf("%q is not valid: use a whole number of seconds from 1 to %d, a duration such as 90s, 12h or "+
			"7d, or none", text, ttlrules.MaxSeconds)
	}
	return n, nil
}

// popNumber takes the value of a flag, which may begin with a minus.
func popNumber(ctx *kong.DecodeContext) (string, error) {
	token := ctx.Scan.Pop()
	if token.IsEOL() || token.InferredType() == kong.FlagToken {
		return "", errors.New("a value is missing")
	}
	return token.String(), nil
}

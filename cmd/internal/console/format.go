package console

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

// count writes a number with commas between the thousands.
func count(n any) string {
	var text string
	switch n := n.(type) {
	case *int64:
		if n == nil {
			return "–"
		}
		text = strconv.FormatInt(*n, 10)
	case float64:
		text = strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	default:
		text = fmt.Sprint(n)
	}
	digits, sign := strings.TrimPrefix(text, "-"), ""
	if digits != text {
		sign = "-"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// rate writes a number a second with three digits or so.
func rate(n float64) string {
	switch {
	case n >= 100:
		return count(n)
	case n >= 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}

// latency writes seconds in the unit that fits; "–" if there are none.
func latency(seconds *float64) string {
	switch {
	case seconds == nil:
		return "–"
	case *seconds < 0.01:
		return strconv.FormatFloat(*seconds*1000, 'f', 1, 64) + " ms"
	case *seconds < 1:
		return strconv.FormatFloat(*seconds*1000, 'f', 0, 64) + " ms"
	case *seconds < 60:
		return strconv.FormatFloat(*seconds, 'f', 1, 64) + " s"
	}
	return period(time.Duration(*seconds * float64(time.Second)))
}

// secondsText writes seconds in the unit that fits.
func secondsText(s float64) string { return latency(&s) }

// whole writes a number without a fraction.
func whole(n float64) string { return count(n) }

// lead writes by how much a clock leads.
func lead(seconds float64) string {
	return strconv.FormatFloat(seconds*1000, 'f', 1, 64) + " ms"
}

// period writes a duration in its two greatest units. console.js has the same function.
func period(d time.Duration) string { return inUnits(int64(d/time.Second), 2) }

// inUnits writes seconds in days, hours, minutes and seconds, from the greatest one that they have on, at most so many
// of them.
func inUnits(seconds int64, most int) string {
	var parts []string
	for _, u := range []struct {
		name string
		long int64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}} {
		if n := seconds / u.long; n != 0 && most > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
		}
		if seconds %= u.long; len(parts) > 0 {
			most--
		}
	}
	return cmp.Or(strings.Join(parts, " "), "0 s")
}

// ttlText writes a default TTL.
func ttlText(ttl *int32) string {
	switch {
	case ttl == nil:
		return "off"
	case *ttl == -1:
		return "-1 (own ttl only)"
	case *ttl < 60:
		return fmt.Sprintf("%d s", *ttl)
	}
	return fmt.Sprintf("%s s (%s)", count(*ttl), inUnits(int64(*ttl), 4))
}

// date and timeOfDay write an instant for people, in UTC with seconds.
func date(t wire.Time) string      { return instant(t).Format(time.DateOnly) }
func timeOfDay(t wire.Time) string { return instant(t).Format(time.TimeOnly) }

// clock writes an instant for the axis of a chart.
func clock(t wire.Time) string { return instant(t).Format("Jan 2, 15:04") }

// spanText writes a span of time, with the date once if it is within a day.
func spanText(from, until wire.Time) string {
	end := clock(until)
	if a, b := instant(from), instant(until); a.YearDay() == b.YearDay() && a.Year() == b.Year() {
		end = b.Format("15:04")
	}
	return clock(from) + " to " + end
}

func instant(t wire.Time) time.Time { return time.UnixMilli(int64(t)).UTC() }

// visible writes a text so that all of it can be seen: a character that does not show, or that
// changes the direction of writing, is escaped as in a Go string.
func visible(text string) string {
	if strings.IndexFunc(text, hides) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hides(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hides(r rune) bool { return r != utf8.RuneError && !unicode.IsGraphic(r) }

// sentence begins a reason with a capital, unless it begins with a name.
func sentence(text string) string {
	for _, word := range []string{"the ", "this ", "a ", "no ", "there "} {
		if strings.HasPrefix(text, word) {
			return strings.ToUpper(text[:1]) + text[1:]
		}
	}
	return text
}

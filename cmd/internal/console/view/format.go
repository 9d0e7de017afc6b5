package view

import (
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

// Rate writes a number a second with three digits or so.
func Rate(n float64) string {
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
	return Period(time.Duration(*seconds * float64(time.Second)))
}

// Seconds writes seconds in the unit that fits.
func Seconds(s float64) string { return latency(&s) }

// Whole writes a number without a fraction.
func Whole(n float64) string { return count(n) }

// lead writes by how much a clock leads.
func lead(seconds float64) string {
	return strconv.FormatFloat(seconds*1000, 'f', 1, 64) + " ms"
}

// Period writes a duration in its two greatest units. console.js has the same function.
func Period(d time.Duration) string {
	s := int64(d / time.Second)
	units := []struct {
		name string
		long int64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}}
	for i, u := range units {
		if s < u.long && u.long > 1 {
			continue
		}
		text := fmt.Sprintf("%d %s", s/u.long, u.name)
		if rest := s % u.long; rest > 0 && i+1 < len(units) && rest/units[i+1].long > 0 {
			text += fmt.Sprintf(" %d %s", rest/units[i+1].long, units[i+1].name)
		}
		return text
	}
	return ""
}

// TTL writes a default TTL.
func TTL(ttl *int32) string {
	switch {
	case ttl == nil:
		return "off"
	case *ttl == -1:
		return "-1 (own ttl only)"
	case *ttl < 60:
		return fmt.Sprintf("%d s", *ttl)
	}
	return fmt.Sprintf("%s s (%s)", count(*ttl), exactly(*ttl))
}

// exactly writes seconds in days, hours, minutes and seconds, leaving out none.
func exactly(ttl int32) string {
	var parts []string
	for _, u := range []struct {
		name string
		long int32
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}} {
		if n := ttl / u.long; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
		}
		ttl %= u.long
	}
	return strings.Join(parts, " ")
}

// date and timeOfDay write an instant for people, in UTC with seconds.
func date(t wire.Time) string      { return instant(t).Format(time.DateOnly) }
func timeOfDay(t wire.Time) string { return instant(t).Format(time.TimeOnly) }

// clock writes an instant for the axis of a chart.
func clock(t wire.Time) string { return instant(t).Format("Jan 2, 15:04") }

// between writes a span of time, with the date once if it is within a day.
func between(from, until wire.Time) string {
	end := clock(until)
	if a, b := instant(from), instant(until); a.YearDay() == b.YearDay() && a.Year() == b.Year() {
		end = b.Format("15:04")
	}
	return clock(from) + " to " + end
}

func instant(t wire.Time) time.Time { return time.UnixMilli(int64(t)).UTC() }

// Visible writes a text so that all of it can be seen: a character that does not show, or that
// changes the direction of writing, is escaped as in a Go string.
func Visible(text string) string {
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

package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed18712806/lapse/ttlrules"
)

// ErrInvalidRequest is about what a read asks for. The text of an error that wraps it is a sentence for the client.
var ErrInvalidRequest = errors.New("invalid request")

type invalidRequest string

func (e invalidRequest) Error() string { return string(e) }
func (invalidRequest) Unwrap() error   { return ErrInvalidRequest }

// InvalidRequest makes an [ErrInvalidRequest] with a text.
func InvalidRequest(format string, args ...any) error {
	return invalidRequest(fmt.Sprintf(format, args...))
}

// Fields are the properties of the request of a read, as JSON.
type Fields map[string]json.RawMessage

// ParseFields reads the body of a request, and refuses properties that are not allowed. An empty body has none.
func ParseFields(body []byte, allowed ...string) (f Fields, err error) {
	if body = bytes.TrimSpace(body); len(body) == 0 {
		return nil, nil
	}
	what := "an empty object"
	if len(allowed) > 0 {
		what = "an object with " + strings.Join(allowed, ", ")
	}
	if body[0] != '{' {
		return nil, InvalidRequest("the body is not a JSON object: use %s, or an empty body", what)
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, InvalidRequest("the body is not valid JSON (%s): use %s, or an empty body", err, what)
	}
	for name := range f {
		if !slices.Contains(allowed, name) {
			return nil, InvalidRequest("property %q is not known: use %s, or an empty body", abbreviate(name), what)
		}
	}
	return f, nil
}

// TextFields are properties that people write as texts, such as the parameters of a URL. An empty text is none, but
// for maxLife and defaultTtl.
func TextFields(texts map[string][]string) Fields {
	f := make(Fields, len(texts))
	for name, all := range texts {
		text := all[0]
		switch n, err := strconv.Atoi(text); name {
		case "defaultTtl":
			f[name] = json.RawMessage(text)
		case "limit", "buckets", "minTtl", "maxTtl", "maxLife":
			if err == nil {
				text = strconv.Itoa(n)
			}
			if text == "null" {
				text = `"null"`
			}
			if text != "" || name == "maxLife" {
				f[name] = json.RawMessage(text)
			}
		default:
			if text != "" {
				f.SetText(name, text)
			}
		}
	}
	return f
}

// SetText sets a property that is a text. One that is not UTF-8 is not valid when it is read.
func (f Fields) SetText(name, text string) {
	if f[name] = json.RawMessage(strconv.Quote(text)); utf8.ValidString(text) {
		f[name], _ = json.Marshal(text) // a string cannot fail
	}
}

// Read reads a property into a pointer. It changes nothing, and there is false, if the property is absent or null.
func (f Fields) Read(name string, into any) (there bool, err error) {
	value, ok := f[name]
	if !ok || string(value) == "null" {
		return false, nil
	}
	var mismatch *json.UnmarshalTypeError
	switch err = json.Unmarshal(value, into); {
	case errors.As(err, &mismatch):
		err = notValid(name, "(a "+mismatch.Value+")")
	case err != nil:
		err = notValid(name, Quote(string(value)))
	}
	return true, err
}

// number reads a property that is a whole number from 1 to most; 0 if it is absent.
func (f Fields) number(name string, most int) (n int, err error) {
	there, err := f.Read(name, &n)
	if there && err == nil {
		err = checkNumber(name, n, most)
	}
	return n, err
}

// Span reads until and within, which limit what is read by its deadline, of the properties that there are.
func (f Fields) Span() (until *Time, within time.Duration, err error) {
	var text string
	there, err := f.Read("until", &text)
	if there && err == nil {
		until = new(Time)
		if until.UnmarshalText([]byte(text)) != nil {
			err = notValid("until", Quote(text))
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if there, err = f.Read("within", &text); there && err == nil {
		if within, err = ParseDuration(text); err != nil || within <= 0 {
			err = notValid("within", Quote(text))
		}
	}
	return until, within, err
}

// notValid is the error about the value of a property.
func notValid(name, value string) error {
	use := "a string"
	switch name {
	case "limit":
		use = fmt.Sprintf("a whole number from 1 to %d", MaxListLimit)
	case "buckets":
		use = fmt.Sprintf("a whole number from 1 to %d", MaxBuckets)
	case "minTtl", "maxTtl":
		use = fmt.Sprintf("a whole number of seconds from 1 to %d", ttlrules.MaxSeconds)
	case "maxLife":
		use = fmt.Sprintf("a whole number of seconds from 1 to %d, or 0 for none", ttlrules.MaxSeconds)
	case "order":
		use = `"deadline", or in a query also "id", a JSON pointer such as "/price", or "-" and a pointer`
	case "where":
		use = `an object of conditions by JSON pointer, such as {"/customer": "c1", "/price": {"gte": 10}}`
	case "prefix":
		use = fmt.Sprintf("a string of up to %d bytes of UTF-8 text, with which ids begin", MaxID)
	case "until":
		use = "an instant in RFC 3339 such as 2026-01-31T12:00:00Z"
	case "within":
		use = `a duration over 0 such as "90s", "12h" or "7d"`
	case "renew", "count", "scan":
		use = "true or false"
	}
	return InvalidRequest("%s %s is not valid: use %s", name, value, use)
}

// checkNumber returns an error unless a property is from 1 to most.
func checkNumber(name string, n, most int) error {
	if n < 1 || n > most {
		return notValid(name, strconv.Itoa(n))
	}
	return nil
}

// CheckLimit returns an [ErrInvalidRequest] unless a limit is from 1 to [MaxListLimit], or 0 for [DefaultListLimit].
func CheckLimit(limit int) error {
	if limit == 0 {
		return nil
	}
	return checkNumber("limit", limit, MaxListLimit)
}

// ParsePage reads what every request for a page has: limit, which is 0 if it is absent, and continuation.
func ParsePage(f Fields) (limit int, continuation string, err error) {
	if limit, err = f.number("limit", MaxListLimit); err == nil {
		_, err = f.Read("continuation", &continuation)
	}
	return limit, continuation, err
}

// ListFields are the properties of a [ListRequest].
var ListFields = []string{"limit", "continuation", "order", "until", "within", "prefix"}

// ListOptions ask for a page: a [ListRequest] that was read.
type ListOptions struct {
	Limit int // 1 to MaxListLimit; DefaultListLimit if 0
	// MaxBytes limits the bytes of bodies and ids in the page, which has one document at
	// least; no limit if 0.
	MaxBytes int
	// Continuation is that of the page before. What of the options below is left out is as it was
	// for that page, and nothing of it may be another.
	Continuation string
	// Order is ByDeadline for the documents that will expire, the next to expire first; "" for
	// all, in no particular order.
	Order Order
	// Until and Within, of which one may be set, limit a list by deadline to those that will expire
	// by an instant, or within a duration from the first page on.
	Until  *Time
	Within time.Duration
	// Prefix selects the documents whose ids begin with it. It does not go with Order. The list
	// examines all ids, so a page may be empty and not be the last.
	Prefix string
}

// ParseList reads a [ListRequest].
func ParseList(f Fields) (o ListOptions, err error) {
	if o.Limit, o.Continuation, err = ParsePage(f); err != nil {
		return o, err
	}
	if _, err = f.Read("order", &o.Order); err != nil {
		return o, err
	}
	if o.Until, o.Within, err = f.Span(); err != nil {
		return o, err
	}
	if _, err = f.Read("prefix", &o.Prefix); err != nil {
		return o, err
	}
	return o, o.Check()
}

// longestWithin is the longest Within.
const longestWithin = ttlrules.MaxSeconds * time.Second

// Check returns an [ErrInvalidRequest] if an option is out of range, or if two contradict each other, whatever the
// continuation.
func (o ListOptions) Check() error {
	switch {
	case o.Order != "" && o.Order != ByDeadline:
		return InvalidRequest("order %s is not valid: use %q, or leave it out for no particular order",
			Quote(string(o.Order)), ByDeadline)
	case o.Within < 0 || o.Within > longestWithin || o.Within != 0 && o.Within < time.Millisecond:
		return InvalidRequest("within %s is not valid: use a duration from a millisecond to %d days",
			o.Within, longestWithin/(24*time.Hour))
	case len(o.Prefix) > MaxID || !utf8.ValidString(o.Prefix):
		return notValid("prefix", Quote(o.Prefix))
	case o.Until != nil && o.Within != 0:
		return InvalidRequest("until and within are both set: use one of them")
	case o.Prefix != "" && o.Order != "":
		return InvalidRequest("a list by deadline cannot select by a prefix: leave out the prefix or the order")
	}
	return CheckLimit(o.Limit)
}

// ForecastFields are the properties of a [ForecastRequest].
var ForecastFields = []string{"buckets", "within", "defaultTtl", "maxLife", "minTtl", "maxTtl"}

// ForecastOptions ask for a forecast: a [ForecastRequest] that was read. The zero value of each is its default.
type ForecastOptions struct {
	Buckets int           // 1 to MaxBuckets; DefaultBuckets
	Within  time.Duration // how far to look ahead; DefaultWithin
	// Default, if not nil, is another default TTL: the forecast is then as if it were
	// configured now. If nil, the forecast is for the configured default.
	Default *ttlrules.Default
	// MaxLife, if not nil, is another maxLife in seconds, 0 for none: likewise.
	MaxLife *int32
	// Least and Most, if not 0, are limits of the TTL in seconds: the forecast then says how many live
	// documents do not keep to them, as if they were configured now.
	Least, Most int32
}

// ParseForecast reads a [ForecastRequest].
func ParseForecast(f Fields) (o ForecastOptions, err error) {
	if o.Buckets, err = f.number("buckets", MaxBuckets); err != nil {
		return o, err
	}
	if _, o.Within, err = f.Span(); err != nil {
		return o, err
	}
	if value, ok := f["defaultTtl"]; ok { // null means off; a default that is left out means the configured one
		d, err := ttlrules.ParseDefault(value)
		if err != nil {
			return o, InvalidRequest("%s", err)
		}
		o.Default = &d
	}
	var life int32
	there, err := f.Read("maxLife", &life)
	if there {
		o.MaxLife = &life
	}
	for name, limit := range map[string]*int32{"minTtl": &o.Least, "maxTtl": &o.Most} {
		if err == nil {
			_, err = f.Read(name, limit)
		}
	}
	if err != nil {
		return o, err
	}
	return o, o.Check()
}

// Check returns an [ErrInvalidRequest] if an option is out of range.
func (o ForecastOptions) Check() error {
	buckets, within := cmp.Or(o.Buckets, DefaultBuckets), cmp.Or(o.Within, DefaultWithin)
	if err := checkNumber("buckets", buckets, MaxBuckets); err != nil {
		return err
	}
	if within < time.Duration(buckets)*time.Millisecond || within > longestWithin {
		return InvalidRequest("within %s is not valid for %d buckets: "+
			"use a duration from a millisecond for each bucket to %d days", within, buckets, longestWithin/(24*time.Hour))
	}
	if o.Least < 0 || o.Most < 0 {
		return InvalidRequest("limits of %d and %d seconds are not valid: use whole numbers from 1 to %d, or 0 for none",
			o.Least, o.Most, ttlrules.MaxSeconds)
	}
	if o.MaxLife != nil && *o.MaxLife < 0 {
		return notValid("maxLife", strconv.Itoa(int(*o.MaxLife)))
	}
	if d := o.Default; d != nil && (*d < ttlrules.NoDefault || *d > ttlrules.MaxSeconds) {
		return InvalidRequest("default TTL %d is not valid: "+
			"use a whole number of seconds from 1 to %d, -1 for none, or 0 for off", *d, ttlrules.MaxSeconds)
	}
	return nil
}

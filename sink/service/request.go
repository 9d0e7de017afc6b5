package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// arguments are the tokens after the verb in the subject of a request: the name of the
// collection, and those that the endpoint has besides.
func (s *Service) arguments(subject string, e endpoint) ([]string, error) {
	if e.arguments == "" {
		return nil, nil
	}
	tokens := strings.Split(strings.TrimPrefix(subject, s.opts.Prefix.Read(e.verb, "")), ".")
	if n := strings.Count(e.arguments, ".") + 1; len(tokens) != n {
		return nil, badRequest("the subject has %d tokens after %q: use %s, and in an id write every byte but A-Z a-z 0-9 _ - ~ : @ + = , as %%XX (a dot is %%2E)",
			len(tokens), e.verb, s.usage(e))
	}
	return tokens, wire.CheckCollection(tokens[0])
}

// fields are the properties of a request's body; none if the body is empty.
type fields map[string]json.RawMessage

// parseBody reads a body into a pointer to a struct, and refuses properties that are not
// allowed. An empty body changes nothing.
func parseBody(body []byte, into any, allowed ...string) (fields, error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return nil, nil
	}
	what := "an empty object"
	if len(allowed) > 0 {
		what = "an object with " + strings.Join(allowed, ", ")
	}
	if body[0] != '{' {
		return nil, badRequest("the body is not a JSON object: use %s, or an empty body", what)
	}
	var f fields
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, badRequest("the body is not valid JSON (%s): use %s, or an empty body", err, what)
	}
	for name := range f {
		if !slices.Contains(allowed, name) {
			return nil, badRequest("property %q is not known: use %s, or an empty body", abbreviate(name), what)
		}
	}
	if err := json.Unmarshal(body, into); err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) {
			field := mismatch.Field[strings.LastIndexByte(mismatch.Field, '.')+1:] // without the name of an embedded struct
			return nil, notValid(field, "(a "+mismatch.Value+")")
		}
		return nil, badRequest("the body: %s", err)
	}
	return f, nil
}

// has reports whether the body has a property that is not null.
func (f fields) has(name string) bool {
	value, ok := f[name]
	return ok && string(value) != "null"
}

// span reads until and within, which limit what is read by its deadline, of the properties that there are.
func (f fields) span(until, within string) (at *wire.Time, d time.Duration, err error) {
	if f.has("until") {
		at = new(wire.Time)
		if err := at.UnmarshalText([]byte(until)); err != nil {
			return nil, 0, notValid("until", wire.Quote(until))
		}
	}
	if f.has("within") {
		if d, err = wire.ParseDuration(within); err != nil || d <= 0 {
			return nil, 0, notValid("within", wire.Quote(within))
		}
	}
	return at, d, nil
}

// check refuses a property that is not a number from 1 to most.
func (f fields) check(name string, n, most int) error {
	if f.has(name) && (n < 1 || n > most) {
		return notValid(name, strconv.Itoa(n))
	}
	return nil
}

// notValid is the error about the value of a property.
func notValid(name, value string) error {
	return badRequest("%s %s is not valid: use %s", name, value, describe(name))
}

// describe says which values of a property are allowed.
func describe(property string) string {
	switch property {
	case "limit":
		return fmt.Sprintf("a whole number from 1 to %d", wire.MaxListLimit)
	case "buckets":
		return fmt.Sprintf("a whole number from 1 to %d", wire.MaxBuckets)
	case "order":
		return `"deadline", or in a query also "id", a JSON pointer such as "/price", or "-" and a pointer`
	case "where":
		return `an object of conditions by JSON pointer, such as {"/customer": "c1", "/price": {"gte": 10}}`
	case "until":
		return "an instant in RFC 3339 such as 2026-01-31T12:00:00Z"
	case "within":
		return `a duration over 0 such as "90s", "12h" or "7d"`
	case "renew", "count", "scan":
		return "true or false"
	default:
		return "a string"
	}
}

// abbreviate shortens a text, so that a hostile name cannot fill an error message.
func abbreviate(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return s[:longest] + "..."
}

package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// arguments are the tokens of a request's subject after its verb: the name of a
// collection, and whatever else the endpoint takes.
func (s *Service) arguments(subject string, e endpoint) ([]string, error) {
	tokens := strings.Split(strings.TrimPrefix(subject, s.opts.Prefix.Read(e.verb, "")), ".")
	if n := strings.Count(e.arguments, ".") + 1; len(tokens) != n {
		return nil, badRequest("%q is followed by %d tokens in the subject: allowed is %s, where each byte of an id outside A-Z a-z 0-9 _ - ~ : @ + = , is written %%XX (a dot is %%2E)",
			e.verb, len(tokens), s.opts.Prefix.Read(e.verb, e.arguments))
	}
	return tokens, wire.CheckCollection(tokens[0])
}

// fields are the properties of a request's body; empty, if there is no body.
type fields map[string]json.RawMessage

// parseBody reads a body, into a pointer to a struct, and refuses properties
// other than the allowed ones. An empty body changes nothing.
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
		return nil, badRequest("the body is not a JSON object: allowed is %s, or an empty body", what)
	}
	var f fields
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, badRequest("the body is not JSON (%s): allowed is %s, or an empty body", err, what)
	}
	for name := range f {
		if !slices.Contains(allowed, name) {
			return nil, badRequest("unknown property %q: allowed is %s, or an empty body", abbreviate(name), what)
		}
	}
	if err := json.Unmarshal(body, into); err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) {
			return nil, badRequest("%s is a %s: allowed is %s", mismatch.Field, mismatch.Value, describe(mismatch.Field))
		}
		return nil, badRequest("the body: %s", err)
	}
	return f, nil
}

// has says whether a property is there and is not null.
func (f fields) has(name string) bool {
	value, ok := f[name]
	return ok && string(value) != "null"
}

// describe says what a property may be.
func describe(property string) string {
	switch property {
	case "limit":
		return fmt.Sprintf("a whole number from 1 to %d", wire.MaxListLimit)
	case "buckets":
		return fmt.Sprintf("a whole number from 1 to %d", wire.MaxBuckets)
	case "within":
		return `a duration over 0 such as "90s" or "1h30m"`
	default:
		return "a string"
	}
}

// abbreviate keeps a hostile name from filling an error message.
func abbreviate(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return s[:longest] + "..."
}

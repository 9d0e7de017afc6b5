package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/wire"
)

// condition is the value of If-Match or If-None-Match.
type condition struct {
	set    bool
	any    bool // *
	strong []string
	weak   []string
}

// parseCondition reads a list of entity tags (RFC 9110, section 8.8.3), or *.
func parseCondition(h http.Header, name string) (c condition, err error) {
	values := h.Values(name)
	if len(values) == 0 {
		return c, nil
	}
	c.set = true
	rest := strings.Trim(strings.Join(values, ","), " \t")
	if rest == "*" {
		c.any = true
		return c, nil
	}
	for rest != "" {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			break
		}
		tag, weak := strings.CutPrefix(rest, "W/")
		end := -1
		if strings.HasPrefix(tag, `"`) {
			end = strings.IndexByte(tag[1:], '"') + 1
		}
		if end < 1 {
			return c, access.BadRequest("%s %s is not valid: use * or an etag in quotes, as in the header ETag, such as \"17\"", name, wire.Quote(rest))
		}
		if weak {
			c.weak = append(c.weak, tag[1:end])
		} else {
			c.strong = append(c.strong, tag[1:end])
		}
		rest = strings.TrimLeft(tag[end+1:], " \t")
		if rest != "" && rest[0] != ',' {
			return c, access.BadRequest("%s: %s must be behind a comma", name, wire.Quote(rest))
		}
	}
	if len(c.strong)+len(c.weak) == 0 {
		return c, access.BadRequest("%s is empty: use * or an etag in quotes, such as \"17\"", name)
	}
	return c, nil
}

// ifMatch is the condition of a write for the log; empty if there is none. A write with an etag
// that no version can have fails here.
func (c condition) ifMatch() (string, error) {
	switch {
	case !c.set:
		return "", nil
	case c.any:
		return "*", nil
	}
	var possible []string
	for _, tag := range c.strong { // a weak etag never matches here (RFC 9110, section 13.1.1)
		if _, err := wire.ParseEtag(tag); err == nil && !slices.Contains(possible, tag) {
			possible = append(possible, tag)
		}
	}
	switch len(possible) {
	case 0:
		return "", access.NewProblem(http.StatusPreconditionFailed, access.PreconditionFailed, "no version has an etag of If-Match: an etag is a number in quotes, such as \"17\", and not weak")
	case 1:
		return possible[0], nil
	}
	return "", access.BadRequest("If-Match has %d etags: a write can have one, or *", len(possible))
}

// has reports whether a version with this etag meets the condition. weakly means that weak
// etags count.
func (c condition) has(etag wire.Etag, weakly bool) bool {
	text := etag.String()
	return c.any || slices.Contains(c.strong, text) || weakly && slices.Contains(c.weak, text)
}

// writeConditions are the conditions of a write.
func writeConditions(h http.Header) (ifMatch string, create bool, err error) {
	if h.Get("If-Unmodified-Since") != "" { // to ignore it could lose somebody's change
		return "", false, access.BadRequest("If-Unmodified-Since is not supported: use If-Match with an etag")
	}
	match, err := parseCondition(h, "If-Match")
	if err != nil {
		return "", false, err
	}
	none, err := parseCondition(h, "If-None-Match")
	switch {
	case err != nil:
		return "", false, err
	case match.set && none.set:
		return "", false, access.BadRequest("If-Match and If-None-Match exclude each other on a write")
	case none.set && !none.any:
		return "", false, access.BadRequest("If-None-Match on a write can only be *: it creates the document")
	}
	ifMatch, err = match.ifMatch()
	return ifMatch, none.set, err
}

package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/client"
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
	const separators = " \t,"
	rest := strings.Trim(strings.Join(values, ","), " \t")
	if rest == "*" {
		c.any = true
		return c, nil
	}
	for rest = strings.TrimLeft(rest, separators); rest != ""; rest = strings.TrimLeft(rest, separators) {
		tag, weak := strings.CutPrefix(rest, "W/")
		end := -1
		if strings.HasPrefix(tag, `"`) {
			end = strings.IndexByte(tag[1:], '"') + 1
		}
		if end < 1 {
			return c, access.BadRequest("%s %s is not valid: use * or an etag in quotes, as in the header ETag, such as "+
				"\"17\"", name, wire.Quote(rest))
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
		return "", access.NewProblem(http.StatusPreconditionFailed, access.PreconditionFailed,
			"no version has an etag of If-Match: an etag is a number in quotes, such as \"17\", and not weak")
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

// An Idempotency-Key belongs to a token, a method and a path. A message id of NATS belongs to the
// whole log. So the id is a hash of all four: with the key alone, one client's key could swallow
// another client's write.
//
// The message also carries a digest of the request. When the log has a message with the same id,
// that digest tells a request that is repeated from another one with the same key. It is in the
// log, so each process of lapse finds it, also after a restart.

const longestKey = 256 // bytes of an Idempotency-Key

// message is the message for the log.
func (r *request) message(subject, ifMatch string, body []byte) (m client.Message, err error) {
	m = client.Message{Subject: subject, IfMatch: ifMatch, Body: body}
	if trace := r.Header.Get(wire.HeaderTrace); wire.ValidTraceparent(trace) {
		m.Traceparent = trace
	}
	for _, h := range []struct {
		name string
		to   *string
	}{
		{wire.HeaderExpiresAt, &m.ExpiresAt}, {wire.HeaderNotAfter, &m.NotAfter}, {wire.HeaderClock, &m.Clock},
		{wire.HeaderTarget, &m.Target},
	} {
		if *h.to, err = once(r.Header, h.name); err != nil {
			return m, err
		}
	}
	key, err := idempotencyKey(r.Header)
	if key != "" {
		m.ID = "http-" + hash(r.token, r.Method, r.route, r.collection, r.id, key)
		m.Digest = digest(m)
	}
	return m, err
}

// digest tells what a message asks for.
func digest(m client.Message) string {
	asked := []string{m.Subject, m.IfMatch, string(m.Body)}
	if m.ExpiresAt != "" || m.Clock != "" {
		asked = append(asked, m.ExpiresAt, m.Clock)
	}
	if m.NotAfter != "" {
		asked = append(asked, wire.HeaderNotAfter, m.NotAfter)
	}
	if m.Target != "" {
		asked = append(asked, wire.HeaderTarget, m.Target)
	}
	return hash(asked...)
}

// once is the value of a header, which may be there once and not be empty; "" if it is not there.
func once(h http.Header, name string) (string, error) {
	switch values := h.Values(name); {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", access.BadRequest("%s is there %d times: send it once", name, len(values))
	case values[0] == "":
		return "", access.BadRequest("%s is empty: give it a value, or leave it out", name)
	default:
		return values[0], nil
	}
}

// hash is a hash of texts, and of where each of them ends.
func hash(texts ...string) string {
	sum := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(sum, "%d %s", len(text), text) // a hash cannot fail
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// idempotencyKey is the key of a request; empty if it has none. Quotes around it, as in a
// structured header, do not belong to it.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	visible := func(c rune) bool { return ' ' < c && c <= '~' }
	if len(values) > 1 || key == "" || len(key) > longestKey || strings.TrimFunc(key, visible) != "" {
		return "", access.BadRequest("Idempotency-Key is not valid: use one, of 1 to %d visible ASCII characters, such as "+
			"a UUID", longestKey)
	}
	return key, nil
}

// isRepeated refuses a request whose key the log knows from another request, or from one that it
// cannot compare.
func (a *API) isRepeated(ctx context.Context, digest string, duplicate client.Result) error {
	seq := strconv.FormatUint(duplicate.Seq, 10)
	first, err := a.opts.Client.Digest(ctx, duplicate)
	if err == nil && first == digest {
		return nil
	}
	p := access.NewProblem(http.StatusUnprocessableEntity, access.KeyUsed,
		"this Idempotency-Key belongs to another request, with another body or condition (sequence %s of the log): this "+
			"one did nothing; send it with a new key", seq)
	switch {
	case errors.Is(err, client.ErrNotFound):
		p.Detail = fmt.Sprintf("this Idempotency-Key belongs to a request that the log no longer has (sequence %s): this "+
			"request did nothing; look at what is there now, and use a new key", seq)
	case err != nil:
		p = access.NewProblem(http.StatusServiceUnavailable, access.Unavailable,
			"lapse could not read the request that has used this Idempotency-Key (sequence %s of the log: %s): this request "+
				"did nothing; send it again with the same key", seq, err)
	}
	p.Seq = seq
	return p
}

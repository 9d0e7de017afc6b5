package access

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// Codes of problems. Each is for programs: the detail is for people.
const (
	Invalid            = "invalid"                // 400: the request is wrong
	TokenRequired      = "token-required"         // 401: no token, or one that is not known
	NotAllowed         = "not-allowed"            // 403: the token does not allow this
	CrossOrigin        = "cross-origin"           // 403: a page of another site sent this
	NotFound           = "not-found"              // 404: no such document, or it has expired
	NoIndex            = wire.ReasonNoIndex       // 400: no index of the collection serves the query
	NoCollection       = wire.ReasonNoCollection  // 404: no such collection: it was never configured, or was dropped
	NoSuchRoute        = "no-such-route"          // 404: no such path
	MethodNotAllowed   = "method-not-allowed"     // 405
	RequestTimeout     = "request-timeout"        // 408: the body did not come in time
	Conflict           = "conflict"               // 409
	Undeliverable      = wire.ReasonUndeliverable // 409: a message to a target, and TTL is off in the collection
	PreconditionFailed = "precondition-failed"    // 412: If-Match, or If-None-Match
	TooLarge           = "too-large"              // 413
	MediaType          = "media-type"             // 415
	WrongHost          = "wrong-host"             // 421: a host that is not this machine
	OtherRegion        = "other-region"           // 421: this region follows another one, which takes the writes
	KeyUsed            = "key-used"               // 422: the Idempotency-Key belongs to another request
	Internal           = "internal"               // 500
	Unavailable        = "unavailable"            // 503: lapse or one of its servers does not answer
	IndexMade          = wire.ReasonIndexMade     // 503: the index that would serve the query is still being made
	TooMany            = "too-many-"              // 503: a limit of this process; its name follows
	OutcomeUnknown     = "outcome-unknown"        // 504: the write may have taken effect, or may still do so
)

// retryAfter is the header of every 503, in seconds.
const retryAfter = "1"

// Problem is an answer. [NewProblem] makes one.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Seq    string `json:"seq,omitempty"` // of the write in the log, if its outcome is not known

	Location string `json:"-"` // where to send the request instead; only of OtherRegion
	Allow    string `json:"-"` // the methods that the path has; only of MethodNotAllowed
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// NewProblem makes a problem.
func NewProblem(status int, code, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code,
		Detail: fmt.Sprintf(format, args...)}
}

// BadRequest makes a problem of a request that is wrong.
func BadRequest(format string, args ...any) *Problem {
	return NewProblem(http.StatusBadRequest, Invalid, format, args...)
}

// codes are the codes of problems by the status of an outcome, or of an error of a read.
var codes = map[int]string{
	wire.StatusBadRequest: Invalid, wire.StatusNotFound: NotFound, wire.StatusConflict: Conflict,
	wire.StatusPreconditionFailed: PreconditionFailed, wire.StatusTooLarge: TooLarge,
	wire.StatusUnavailable: Unavailable,
}

// OfOutcome is the answer to a write that lapse has rejected. The reason names the header of HTTP,
// and not that of the message.
func OfOutcome(o wire.Outcome) *Problem {
	code := cmp.Or(o.Reason, codes[o.Status], Internal)
	return NewProblem(o.Status, code, "%s", strings.ReplaceAll(o.Error, "header "+wire.HeaderIfMatch, "header If-Match"))
}

// OfRead is the answer to a read that failed.
func OfRead(err error) error {
	status, text := service.StatusOf(err)
	return NewProblem(status, cmp.Or(service.ReasonOf(err), codes[status], Internal), "%s", text)
}

// OfWrite is the answer to a write that has no outcome: an error of package client, or one that
// is a problem itself.
func OfWrite(result client.Result, err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, client.ErrUnknownOutcome) && result.Seq == 0:
		p = NewProblem(http.StatusGatewayTimeout, OutcomeUnknown, "%s (over HTTP, the message id is the Idempotency-Key)",
			err)
	case errors.Is(err, client.ErrUnknownOutcome):
		p = NewProblem(http.StatusGatewayTimeout, OutcomeUnknown, "%s", err)
		p.Seq = strconv.FormatUint(result.Seq, 10)
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrDenied):
		p = NewProblem(http.StatusServiceUnavailable, Unavailable, "%s", err)
	default:
		p = NewProblem(http.StatusInternalServerError, Internal, "the write failed: %s", err)
	}
	return p
}

// Write sends the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	header := w.Header()
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified", "Location", wire.HeaderExpiresAt, "Sunset"} {
		header.Del(name)
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	if p.Location != "" {
		header.Set("Location", p.Location)
	}
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="lapse"`)
	}
	body, _ := json.Marshal(p) // strings and a number cannot fail
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

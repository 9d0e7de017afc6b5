package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// Codes of problems. Each is for programs: the detail is for people.
const (
	codeInvalid      = "invalid"             // 400: the request is wrong
	codeToken        = "token-required"      // 401: no token, or one that is not known
	codeNotAllowed   = "not-allowed"         // 403: the token does not allow this
	codeCrossOrigin  = "cross-origin"        // 403: a page of another site sent this
	codeNotFound     = "not-found"           // 404: no such document, or it has expired
	codeNoRoute      = "no-such-route"       // 404: no such path
	codeMethod       = "method-not-allowed"  // 405
	codeTimeout      = "request-timeout"     // 408: the body did not come in time
	codeConflict     = "conflict"            // 409
	codePrecondition = "precondition-failed" // 412: If-Match, or If-None-Match
	codeTooLarge     = "too-large"           // 413
	codeMediaType    = "media-type"          // 415
	codeWrongHost    = "wrong-host"          // 421: see checkHost
	codeInternal     = "internal"            // 500
	codeUnavailable  = "unavailable"         // 503: lapse or one of its servers does not answer
	codeTooMany      = "too-many-"           // 503: a limit of this process; its name follows
	codeUnknown      = "outcome-unknown"     // 504: the write is durable, and was not applied yet
)

// retryAfter is the header of every 503, in seconds.
const retryAfter = "1"

// problem is the answer to a request that failed: problem details as RFC 9457 has them.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Seq    string `json:"seq,omitempty"` // of the write in the log, if its outcome is not known
}

func (p *problem) Error() string { return p.Detail }

func fail(status int, code, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *problem {
	return fail(http.StatusBadRequest, codeInvalid, format, args...)
}

// codes are those of what lapse answers: outcomes, and errors of reads.
var codes = map[int]string{
	wire.StatusBadRequest: codeInvalid, wire.StatusNotFound: codeNotFound, wire.StatusConflict: codeConflict,
	wire.StatusPreconditionFailed: codePrecondition, wire.StatusTooLarge: codeTooLarge,
	wire.StatusUnavailable: codeUnavailable,
}

func codeOf(status int) string {
	if code, ok := codes[status]; ok {
		return code
	}
	return codeInternal
}

// readProblem is the answer to a read that failed.
func readProblem(err error) error {
	status, text := service.StatusOf(err)
	return fail(status, codeOf(status), "%s", text)
}

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	header := w.Header()
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified", "Location", wire.HeaderExpiresAt, "Sunset"} {
		header.Del(name)
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="lapse"`)
	}
	body, _ := json.Marshal(p) // strings and a number cannot fail
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

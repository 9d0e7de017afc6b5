package client

import (
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/sink/wire"
)

// Errors for errors.Is: what lapse answers.
var (
	// ErrNotFound: the document does not exist, or has expired.
	ErrNotFound = errors.New("not found")
	// ErrNoCollection: the collection does not exist. It was never configured, or was dropped. It is also an
	// ErrNotFound.
	ErrNoCollection = errors.New("no such collection")
	// ErrNoIndex: no index of the collection serves the query. The text has the command that declares one; or use
	// [Scan].
	ErrNoIndex = errors.New("no index serves the query")
	// ErrIndexMade: the index of the query is still being made. The text says how far it is. It is also an
	// ErrUnavailable.
	ErrIndexMade = errors.New("the index is being made")
	// ErrExists: the document to be created exists.
	ErrExists = errors.New("exists")
	// ErrPrecondition: the document, or the configuration, does not have the etag of [IfMatch].
	ErrPrecondition = errors.New("precondition failed")
	// ErrRejected: lapse has not applied the message. It is a [RejectedError], which has the
	// code and the reason. An ErrExists or ErrPrecondition, and an ErrNotFound of a write, is
	// also an ErrRejected.
	ErrRejected = errors.New("rejected")
)

// Errors for errors.Is: no answer.
var (
	// ErrUnavailable: no NATS server, no JetStream or no lapse answered, or not in time; or a
	// read answered that it cannot give a result now. A write has not taken effect, unless the
	// error is also ErrUnknownOutcome.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknownOutcome: the write may have taken effect, or may still do so. If it has a
	// [MessageID], you may repeat it with the same id: it then takes effect once. The error is
	// also ErrUnavailable, or the error of the context that ended the wait.
	ErrUnknownOutcome = errors.New("unknown outcome")
)

// Errors for errors.Is: the client itself.
var (
	// ErrServerURL: Options.Server is not the URL of a NATS server.
	ErrServerURL = errors.New("not a URL of a NATS server")
	// ErrDenied: the server does not permit the user to do this, or refuses the user.
	ErrDenied = errors.New("not permitted")
	// ErrLogin: Options.Login is not valid, or one of its files is not.
	ErrLogin = errors.New("not valid credentials")
	// ErrInvalid: an argument is not valid, and nothing was sent. The text says what is
	// allowed.
	ErrInvalid = errors.New("invalid argument")
)

// RejectedError is the answer of lapse that it has not applied a message.
type RejectedError struct {
	Code   int    // wire.StatusBadRequest and so on
	Reason string // what was wrong and what is allowed
	Seq    uint64 // of the message in the log; 0 if that is not known
	Kind   string // of the reason, for programs: wire.ReasonNoCollection, wire.ReasonUndeliverable, or ""
}

func (e *RejectedError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Reason) }

// Is reports whether the code is that of an error of this package.
func (e *RejectedError) Is(target error) bool {
	switch target {
	case ErrRejected:
		return true
	case ErrNotFound:
		return e.Code == wire.StatusNotFound
	case ErrNoCollection:
		return e.Kind == wire.ReasonNoCollection
	case ErrExists:
		return e.Code == wire.StatusConflict && e.Kind == ""
	case ErrPrecondition:
		return e.Code == wire.StatusPreconditionFailed
	}
	return false
}

// ReadError is the answer of the read service that it cannot give the result.
type ReadError struct {
	Code int // wire.StatusNotFound and so on
	Text string
	Kind string // of the reason, for programs: wire.ReasonNoCollection, ReasonNoIndex, ReasonIndexMade, or ""
}

func (e *ReadError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Text) }

// Is reports whether the code is that of an error of this package.
func (e *ReadError) Is(target error) bool {
	switch target {
	case ErrNoCollection:
		return e.Kind == wire.ReasonNoCollection
	case ErrNoIndex:
		return e.Kind == wire.ReasonNoIndex
	case ErrIndexMade:
		return e.Kind == wire.ReasonIndexMade
	case ErrNotFound:
		return e.Code == wire.StatusNotFound
	case ErrUnavailable:
		return e.Code == wire.StatusUnavailable
	}
	return false
}

// invalidError is an ErrInvalid with a text.
type invalidError string

func (e invalidError) Error() string      { return string(e) }
func (invalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(format string, args ...any) error { return invalidError(fmt.Sprintf(format, args...)) }

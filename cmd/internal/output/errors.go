package output

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// The exit codes of client commands. "lapse serve" uses 0 and ExitOther, and ExitUsage for flags
// that contradict each other.
const (
	ExitOther       = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitUnavailable = 5
	ExitDiffers     = 6
)

// ExitCodes explains the exit codes to a user.
const ExitCodes = `Exit codes:

    0  done
    1  failed for a reason that is not in this list
    2  wrong flags or arguments, or a name that is not valid
    3  not found, or gone (404, 410)
    4  conflict, or a precondition that does not hold (409, 412)
    5  unavailable: no server, no lapse, or no answer in time (503)
    6  "lapse apply --dry-run" has found differences, or "lapse forgotten" a place that may have bytes

"lapse serve" exits with 2 if its flags contradict each other, and with 1 whatever else fails.`

// usageError is an error in the flags or arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef makes an error about the flags or arguments.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Usage turns an error into one about the flags or arguments; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// StatusError is an error with a status, as in HTTP.
type StatusError struct {
	Status int
	Text   string
}

func (e *StatusError) Error() string { return e.Text }

// Statusf makes an error with a status.
func Statusf(status int, format string, args ...any) error {
	return &StatusError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// printedError is an error of a command whose standard output is already complete.
type printedError struct{ error }

func (e printedError) Unwrap() error { return e.error }

// Printed marks an error of a command whose standard output is already complete: with
// -o json, [Fail] then prints no object for it.
func Printed(err error) error { return printedError{err} }

// Interrupted makes the error of a command that was interrupted (ctrl-C). The command line puts
// "interrupted: " before the text.
func Interrupted(format string, args ...any) error {
	return interruptedError(fmt.Sprintf(format, args...))
}

type interruptedError string

func (e interruptedError) Error() string      { return string(e) }
func (interruptedError) Is(target error) bool { return target == context.Canceled }

// status is the status that fits an error.
func status(err error) int {
	var read *client.ReadError
	var own *StatusError
	switch {
	case errors.As(err, &own):
		return own.Status
	case errors.As(err, &read):
		return read.Code
	case isUsage(err):
		return wire.StatusBadRequest
	case errors.Is(err, client.ErrUnavailable):
		return wire.StatusUnavailable
	case errors.Is(err, client.ErrDenied):
		return http.StatusForbidden
	}
	return wire.StatusInternal
}

func isUsage(err error) bool {
	return errors.As(err, new(usageError)) || errors.Is(err, client.ErrServerURL) || errors.Is(err, client.ErrLogin)
}

// differsError ends a command that was only to compare, and has found differences.
type differsError struct{ error }

func (e differsError) Unwrap() error { return e.error }

// Differs marks the error of a command that was only to compare, and has found differences.
func Differs(err error) error { return differsError{err} }

// ExitCode is the exit code that fits an error.
func ExitCode(err error) int {
	if errors.As(err, new(differsError)) {
		return ExitDiffers
	}
	if isUsage(err) {
		return ExitUsage
	}
	return ExitCodeOf(status(err))
}

// ExitCodeOf is the exit code that fits the status of a failure.
func ExitCodeOf(status int) int {
	switch status {
	case wire.StatusNotFound, http.StatusGone:
		return ExitNotFound
	case wire.StatusConflict, wire.StatusPreconditionFailed:
		return ExitConflict
	case wire.StatusUnavailable:
		return ExitUnavailable
	}
	return ExitOther
}

// Fail reports an error as one line on standard error. With asJSON it also prints an
// object on standard output, unless the error is [Printed].
func Fail(streams Streams, err error, asJSON bool) {
	if asJSON && !errors.As(err, new(printedError)) {
		_ = PrintJSON(streams.Out, Failure(err))
	}
	_, _ = fmt.Fprintln(streams.Err, streams.painted(streams.Err, red, "lapse:"), OneLine(err))
}

// FailureObject is an error as JSON.
type FailureObject struct {
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Failure makes the object of an error.
func Failure(err error) (o FailureObject) {
	o.Error.Code, o.Error.Message = status(err), OneLine(err)
	return o
}

// OneLine puts an error on one line. Joined errors have a line each.
func OneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

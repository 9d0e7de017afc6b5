package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/credentials"
)

// connection is the connection of a client to the NATS server of lapse, and what all
// exchanges over it have in common: their time limits, what the server denies, and the errors.
// Requests are in read.go.
type connection struct {
	NC      *nats.Conn
	JS      jetstream.JetStream
	Options // all but Notice are set
	denials *denials
}

// connect connects to the NATS server.
func connect(opts Options) (*connection, error) {
	if err := checkURLs(opts.Server); err != nil {
		return nil, err
	}
	notice := opts.Notice
	if notice == nil {
		notice = func(string) {}
	}
	denials := &denials{}
	var malformed sync.Once
	options := []nats.Option{
		nats.Name("lapse client"),
		nats.Timeout(opts.Timeout),
		nats.FlusherTimeout(opts.Timeout), // the library holds its lock meanwhile
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // somebody may correct the credentials
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1), // the library must not send a message after its publish has failed
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // otherwise the client closed it
				notice("the connection is lost (" + err.Error() + "): connecting again")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			notice("connected again to " +
				"" + credentials.RedactURLs(nc.ConnectedUrl()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			switch {
			case denials.handle(err):
			case errors.Is(err, nats.ErrBadHeaderMsg): // any client can send as many as it likes
				malformed.Do(func() { notice("a message has headers that cannot be read, and is dropped; so are others like it") })
			default:
				notice(err.Error())
			}
		}),
	}
	login, err := opts.Login.Options(opts.Server)
	if err != nil {
		return nil, &classified{[]error{ErrLogin}, err.Error()}
	}
	options = append(options, login...)
	if opts.InProcess != nil {
		options = append(options, nats.InProcessServer(opts.InProcess))
	}
	nc, err := nats.Connect(opts.Server, options...)
	for end := time.Now().Add(opts.Timeout); mayStart(err) && time.Now().Before(end); {
		time.Sleep(connectedEvery)
		nc, err = nats.Connect(opts.Server, options...)
	}
	if err != nil {
		return nil, connectError(opts.Server, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &connection{NC: nc, JS: js, Options: opts, denials: denials}, nil
}

// checkURLs refuses what nats.go would refuse with a message that shows the password.
func checkURLs(urls string) error {
	for _, one := range strings.Split(urls, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one // nats.go adds it too
		}
		if u, err := url.Parse(one); err != nil || u.Hostname() == "" {
			return &classified{[]error{ErrServerURL}, fmt.Sprintf("%s is not the URL of a NATS server: use one such as "+
				"nats://127.0.0.1:4222, or several separated by commas", credentials.RedactURLs(urls))}
		}
	}
	return nil
}

// mayStart reports whether an attempt to connect has failed as it does while a server starts: nobody listens yet, or
// the connection is broken off.
func mayStart(err error) bool {
	for _, one := range []error{
		nats.ErrNoServers, // the error of nats.go for "connection refused"
		nats.ErrConnectionClosed, nats.ErrNoInfoReceived, io.EOF, syscall.ECONNRESET,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func connectError(server string, err error) error {
	const use = `start "lapse serve" or a NATS server there, or use another URL`
	var network net.Error
	where := credentials.RedactURLs(server)
	switch {
	case errors.Is(err, nats.ErrNoServers): // the error of nats.go for "connection refused"
		return unavailable("no NATS server answers at %s: %s", where, use)
	case isTimeout(err), errors.Is(err, os.ErrDeadlineExceeded):
		return unavailable("no NATS server answers at %s in time: %s", where, use)
	case errors.As(err, &network), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrNoInfoReceived):
		return unavailable("no NATS server answers at %s (%s): %s", where, err, use)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return refused(where, err)
	}
	return fmt.Errorf("cannot connect to %s: %w", where, err)
}

// IsLost reports whether there is no connection at this moment.
func (l *connection) IsLost() bool { return !l.NC.IsConnected() }

// classified is one or several of the errors of the package with a text of its own.
type classified struct {
	classes []error
	text    string
}

func (e *classified) Error() string   { return e.text }
func (e *classified) Is(t error) bool { return slices.Contains(e.classes, t) }

// unavailable makes an error that is ErrUnavailable.
func unavailable(format string, args ...any) error {
	return &classified{[]error{ErrUnavailable}, fmt.Sprintf(format, args...)}
}

// unknown makes an error of a message that lapse may apply or not.
func unknown(format string, args ...any) error {
	return &classified{[]error{ErrUnavailable, ErrUnknownOutcome}, fmt.Sprintf(format, args...)}
}

// interrupted is the error of a message whose exchange ended early, because of cause.
type interrupted struct {
	cause error
	text  string
}

func (e *interrupted) Error() string   { return e.cause.Error() + ": " + e.text }
func (e *interrupted) Is(t error) bool { return t == ErrUnknownOutcome }
func (e *interrupted) Unwrap() error   { return e.cause }

// storedAt is what is known of a message whose outcome has not come.
type storedAt struct {
	Durable bool   // the log has it
	Seq     uint64 // at this sequence; 0 if that is not known
}

func (s storedAt) String() string {
	switch {
	case s.Seq != 0:
		return fmt.Sprintf("the message is in the log (sequence %d): lapse will apply or reject it", s.Seq)
	case s.Durable:
		return "the message is in the log: lapse will apply or reject it"
	}
	return "the message may be in the log or not: if it has a message id, you can send it again, and it takes effect once"
}

// interruptedBy is the error of a message whose exchange ended early, because of cause.
func interruptedBy(cause error, s storedAt) error { return &interrupted{cause, s.String()} }

// NoOutcome is the error of a message without an outcome in time.
func (l *connection) NoOutcome(s storedAt) error {
	switch {
	case s.Seq != 0:
		return unknown("no outcome within %s: the message is durable (sequence %d in the log): lapse will apply or reject "+
			"it as soon as it can", l.Timeout, s.Seq)
	case s.Durable:
		return unknown("no outcome within %s: the message is durable: lapse will apply or reject it as soon as it can",
			l.Timeout)
	}
	return unknown("no acknowledgement within %s: %s", l.Timeout, s)
}

// Absent is the reason why nobody listens on a subject: there is no JetStream, or no lapse.
func (l *connection) Absent(ctx context.Context, subject string) error {
	// Without the permission to ask there is no answer, so it does not wait for long.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	within, cancel := l.Within(ctx, "$JS.API.INFO")
	defer cancel()
	if _, err := l.JS.AccountInfo(within); isWithoutJetStream(err) {
		return l.noJetStream()
	}
	return l.NoLapse(subject)
}

// errNoLapse is a class of the error of NoLapse: lapse may be starting, so an exchange waits for it.
var errNoLapse = errors.New("no lapse")

// NoLapse is the error when nothing listens on a subject.
func (l *connection) NoLapse(subject string) error {
	const text = `no lapse answers at %s: nothing listens on %s there. Is "lapse serve" running, with the prefix %q?`
	return &classified{[]error{ErrUnavailable, errNoLapse}, fmt.Sprintf(text, credentials.RedactURLs(l.Server), subject,
		l.Prefix)}
}

func (l *connection) noJetStream() error {
	return unavailable("the NATS server at %s has no JetStream, which lapse needs: enable it there, or connect to "+
		"another server",
		credentials.RedactURLs(l.Server))
}

func isWithoutJetStream(err error) bool {
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// isTimeout reports whether an error means that no answer came in time.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// StreamError is the error of a stream or a bucket that cannot be read. The subject is the
// one that the client wanted to follow.
func (l *connection) StreamError(doing, subject string, err error) error {
	switch {
	case isWithoutJetStream(err), errors.Is(err, nats.ErrNoResponders):
		return l.noJetStream()
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return l.NoLapse(subject)
	case isTimeout(err):
		return unavailable("%s: JetStream did not answer within %s", doing, l.Timeout)
	case l.IsLost():
		return l.Lost()
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// PublishError is the error of a message that was not sent.
func (l *connection) PublishError(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("the message is larger than the server's maximum payload of %d bytes: a document may have 8 KiB "+
			"less than that", l.NC.MaxPayload())
	case l.isUnsent(err):
		return l.Lost()
	default:
		return fmt.Errorf("publish %s: %w", subject, err)
	}
}

// Lost is the error when there is no connection.
func (l *connection) Lost() error {
	return unavailable("the connection to the NATS server at %s is lost", credentials.RedactURLs(l.Server))
}

// What the subjects begin with by which a client looks at a stream, has a consumer, and reads
// messages without one.
const (
	streamInfoAPI = "$JS.API.STREAM.INFO."
	consumerAPI   = "$JS.API.CONSUMER."
	directAPI     = "$JS.API.DIRECT.GET."
)

// Within limits the time of one exchange. The context also ends when the server denies one
// of the subjects, or one that begins with a subject that ends with a dot; denial tells it.
func (l *connection) Within(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	permitted, stop := l.Permitted(ctx, subjects...)
	return permitted, func() { stop(); cancel() }
}

// Permitted is Within, without a limit.
func (l *connection) Permitted(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := l.denials.expect(cancel, func(subject string) bool {
		subject = l.Published(subject)
		return slices.ContainsFunc(subjects, func(s string) bool {
			return subject == s || strings.HasSuffix(s, ".") && strings.HasPrefix(subject, s)
		})
	})
	return ctx, func() { forget(); cancel(nil) }
}

// Published is the subject on which a client publishes what the server calls by a subject. With
// several shards, the mapping of a user's own account comes before the permissions.
func (l *connection) Published(subject string) string {
	rest, mapped := strings.CutPrefix(subject, string(l.Prefix)+".shard.")
	if _, rest, ok := strings.Cut(rest, "."); mapped && ok {
		return string(l.Prefix) + "." + rest
	}
	return subject
}

// denial is what the server has denied to the exchange of a context; nil if nothing.
func denial(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, ErrDenied) {
		return err
	}
	return nil
}

// Expect calls tell when the server denies a message to a subject that publishes reports, or
// any subscription, until forget is called.
func (l *connection) Expect(tell func(error), publishes func(subject string) bool) (forget func()) {
	return l.denials.expect(tell, publishes)
}

// denials tells exchanges what the server does not permit them. The server sends no answer
// to a message that it denies, but a notice to the connection, some time later.
type denials struct {
	mu     sync.Mutex
	last   int
	tellTo map[int]exchange
}

// exchange is something that waits for the server.
type exchange struct {
	publishes func(subject string) bool // whether it does, to this subject
	tell      func(error)
}

// expect calls tell when the server denies a subject to which the exchange publishes, or any
// subscription, until forget is called: without its inbox no exchange gets an answer.
func (d *denials) expect(tell func(error), publishes func(subject string) bool) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	n := d.last
	if d.tellTo == nil {
		d.tellTo = make(map[int]exchange)
	}
	d.tellTo[n] = exchange{publishes, tell}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.tellTo, n)
	}
}

// handle handles an error of the connection. It reports whether an exchange waits for it.
func (d *denials) handle(err error) bool {
	denied := credentials.AsDenied(err)
	if denied == nil {
		return false
	}
	d.mu.Lock()
	exchanges := slices.Collect(maps.Values(d.tellTo))
	d.mu.Unlock()
	told := false
	for _, e := range exchanges {
		if denied.Subscribe || e.publishes(denied.Subject) {
			e.tell(deniedError(denied))
			told = true
		}
	}
	return told
}

func deniedError(d *credentials.Denied) error {
	text := d.Error()
	if d.Subscribe {
		text += ": give the prefix of the inboxes that it may use, such as _INBOX.orders"
	}
	return &classified{[]error{ErrDenied}, text}
}

func refused(where string, err error) error {
	return &classified{[]error{ErrDenied}, fmt.Sprintf("the NATS server at %s refuses these credentials (%s): use "+
		"another user, or another file", where, err)}
}

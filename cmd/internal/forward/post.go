package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed18712806/lapse/sink/client"
)

// ErrGone: the receiver has answered 410: it wants no more messages.
var ErrGone = errors.New("the receiver answers 410: it wants no more events")

// CheckURL returns an error unless events may be posted to a URL: without TLS to this machine alone.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("the URL is not valid: use one such as https://example.com/hooks")
	case u.User != nil:
		return errors.New("the URL has a user or a password: leave them out, as the receiver knows lapse by the signature")
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return fmt.Errorf("the URL http://%s has no TLS: use https, which only a receiver on this machine goes without",
			u.Host)
	}
	return nil
}

// verdict is what the answer to an attempt means. The zero value means that the receiver has the message.
type verdict struct {
	why     error         // the receiver does not have it
	dead    bool          // and never will
	pause   time.Duration // at least so long before the next attempt
	halting bool          // the pause is for all messages
	refused bool          // the receiver says that the request is wrong, so another attempt hardly helps
	busy    bool          // the receiver asks for later attempts, so it does not refuse this message
}

// newClient makes the HTTP client. It verifies certificates, against authorities if they are not nil, and follows
// no redirects.
func newClient(authorities *x509.CertPool, connections int, timeout time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost = connections
	return &http.Client{
		Transport:     transport,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// attempt posts a message once.
func (f *forwarding) attempt(ctx context.Context, e event) verdict {
	began := time.Now()
	v, result := f.post(ctx, e, began)
	f.metrics.attempts.WithLabelValues(result).Inc()
	f.metrics.seconds.Observe(time.Since(began).Seconds())
	return v
}

func (f *forwarding) post(ctx context.Context, e event, at time.Time) (v verdict, result string) {
	header, body, err := e.request(f.opts.Binary)
	if err != nil {
		return verdict{why: err, dead: true}, "invalid"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.opts.URL, strings.NewReader(string(body)))
	if err != nil {
		return verdict{why: err, dead: true}, "invalid"
	}
	req.Header = header
	req.Header.Set("User-Agent", "lapse")
	if err := f.opts.Secrets.sign(req.Header, e.id(), at, body); err != nil {
		return verdict{why: err, dead: true}, "invalid"
	}
	answer, err := f.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL, which may have a secret
		}
		return verdict{why: err}, "unreachable"
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // so that the connection can be used again
	_ = answer.Body.Close()
	return judge(answer.StatusCode, answer.Header.Get("Retry-After"), at), strconv.Itoa(answer.StatusCode)
}

// judge tells what a status means.
func judge(status int, retryAfter string, now time.Time) (v verdict) {
	if status/100 == 2 {
		return v
	}
	v.why = fmt.Errorf("the receiver answers %d", status)
	switch status {
	case http.StatusGone:
		v.why = ErrGone
	case http.StatusRequestEntityTooLarge:
		v.dead = true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		v.halting, v.busy = true, true
	case http.StatusRequestTimeout, http.StatusTooEarly:
		v.busy = true
	default:
		v.refused = status/100 == 4
	}
	if seconds, err := strconv.ParseInt(retryAfter, 10, 32); err == nil && seconds > 0 {
		v.pause = time.Duration(seconds) * time.Second
	} else if until, err := http.ParseTime(retryAfter); err == nil {
		v.pause = max(0, until.Sub(now))
	}
	v.pause = min(v.pause, longestRetryAfter)
	return v
}

// longestRetryAfter is the longest pause that a receiver may ask for.
const longestRetryAfter = time.Hour

type metrics struct {
	attempts  *prometheus.CounterVec
	seconds   prometheus.Histogram
	delivered prometheus.Counter
	dead      prometheus.Counter
	held      prometheus.Gauge
	behind    *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapse_forward_attempts_total", Help: "Requests " +
			"to the receiver, by the status of its answer, or unreachable."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapse_forward_attempt_seconds", Help: "How long " +
			"requests took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
		delivered: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapse_forward_delivered_total", Help: "Messages " +
			"that the receiver has taken."}),
		dead: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapse_forward_dead_total", Help: "Messages that " +
			"were given up and are dead letters."}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapse_forward_held", Help: "Messages that this process " +
			"tries to deliver."}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapse_forward_behind", Help: "Messages that a " +
			"consumer had not delivered at its last delivery here."}, []string{"consumer"}),
	}
	if registry != nil {
		registry.MustRegister(m.attempts, m.seconds, m.delivered, m.dead, m.held, m.behind)
	}
	return m
}

// begins counts a message that has come.
func (m *metrics) begins(msg *client.Ordered) {
	m.held.Inc()
	m.behind.WithLabelValues(strconv.Itoa(msg.Stripe)).Set(float64(msg.Behind))
}

// Secrets sign what is posted, as Standard Webhooks has it: each makes a signature, and the receiver
// needs only one of them.
type Secrets []*webhooks.Webhook

// ReadSecrets reads a file with a secret on each line: whsec_ and 24 to 64 bytes in base64.
func ReadSecrets(file string) (all Secrets, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, "whsec_"))
		if err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("%s: line %d is not valid: use a secret of Standard Webhooks, which is whsec_ and 24 to 64 "+
				"random bytes in base64", file, number)
		}
		secret, err := webhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, err
		}
		all = append(all, secret)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no secret: write one into it, such as that of: echo whsec_$(openssl rand -base64 32)",
			file)
	}
	return all, nil
}

// sign puts the id, the time and the signatures into the headers of a request.
func (s Secrets) sign(h http.Header, id string, at time.Time, body []byte) error {
	var signatures []string
	for _, secret := range s {
		one, err := secret.Sign(id, at, body)
		if err != nil {
			return err
		}
		signatures = append(signatures, one)
	}
	h.Set(webhooks.HeaderWebhookID, id)
	h.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(webhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

package forward

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Options say what is posted where.
type Options struct {
	URL         string // see [CheckURL]
	Secrets     Secrets
	Authorities *x509.CertPool // those of the system if nil
	Binary      bool           // CloudEvents in binary mode, which signs the data alone; structured mode otherwise
	Concurrency int            // requests at a time (16)
	GiveUpAfter time.Duration  // since this process has had a message (24 h)
	LongestWait time.Duration  // between two attempts, unless the receiver asks for more (1 min)
	Timeout     time.Duration  // of a request (15 s)
	Messages    client.OrderedOptions
	Metrics     prometheus.Registerer // may be nil
	Notice      func(text string)
}

const (
	// firstPause is the pause after the first attempt that fails. Each further one is twice as long.
	firstPause = time.Second
	// toldEvery is how often at most the user is told whether attempts fail: one document may fail beside others.
	toldEvery = time.Minute
)

// forwarding is a call of Run, or of Resend, under way.
type forwarding struct {
	opts    Options
	http    *http.Client
	dead    *deadLetters
	metrics *metrics
	slots   chan struct{} // has an element for each request

	mu      sync.Mutex
	resumes time.Time // no request before that: the receiver has asked for a pause
	failing bool      // what the user was told last: attempts fail
	told    time.Time // when that was
}

func open(ctx context.Context, c *client.Client, prefix wire.Prefix, opts Options) (*forwarding, error) {
	if err := CheckURL(opts.URL); err != nil {
		return nil, err
	}
	opts.Concurrency = cmp.Or(opts.Concurrency, 16)
	opts.GiveUpAfter = cmp.Or(opts.GiveUpAfter, 24*time.Hour)
	opts.LongestWait = cmp.Or(opts.LongestWait, time.Minute)
	opts.Timeout = cmp.Or(opts.Timeout, 15*time.Second)
	dead, err := openDead(ctx, c, prefix, opts.Messages.Durable)
	if err != nil {
		return nil, err
	}
	return &forwarding{
		opts: opts, http: newClient(opts.Authorities, opts.Concurrency, opts.Timeout), dead: dead,
		metrics: newMetrics(opts.Metrics), slots: make(chan struct{}, opts.Concurrency),
	}, nil
}

// Run posts messages until ctx is done. Then it waits for the requests under way, and returns nil. It
// returns [ErrGone] if the receiver wants no more, and the errors of [client.Client.Ordered].
func Run(ctx context.Context, c *client.Client, prefix wire.Prefix, opts Options) error {
	f, err := open(ctx, c, prefix, opts)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.http.CloseIdleConnections()
	return c.Ordered(ctx, opts.Messages, f.deliver)
}

// deliver delivers a message, or makes it a dead letter. An error means that it did neither.
func (f *forwarding) deliver(ctx context.Context, msg *client.Ordered) error {
	f.metrics.begins(msg)
	defer f.metrics.held.Dec()
	e := event{msg.Header, msg.Data}
	began := time.Now()
	for pause := min(firstPause, f.opts.LongestWait); ; pause = min(2*pause, f.opts.LongestWait) {
		v, err := f.try(ctx, e)
		switch {
		case err != nil:
			return err
		case v.why == nil:
			f.metrics.delivered.Inc()
			return nil
		case errors.Is(v.why, ErrGone):
			return v.why
		case v.dead || time.Since(began)+pause > v.giveUpAfter(f.opts.GiveUpAfter):
			return f.giveUp(ctx, e, msg, v.why)
		}
		if err := wait(ctx, max(v.pause, jitter(pause))); err != nil {
			return err
		}
	}
}

// try makes an attempt as soon as it may. The error is that of the context.
func (f *forwarding) try(ctx context.Context, e event) (verdict, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	}
	for {
		f.mu.Lock()
		left := time.Until(f.resumes)
		f.mu.Unlock()
		if err := wait(ctx, left); err != nil {
			return verdict{}, err
		}
		if left <= 0 {
			break
		}
	}
	v := f.attempt(context.WithoutCancel(ctx), e) // a request that has begun is not broken off
	f.mu.Lock()
	defer f.mu.Unlock()
	if resumes := time.Now().Add(v.pause); v.halting && resumes.After(f.resumes) {
		f.resumes = resumes
	}
	if failing := v.why != nil; failing != f.failing && time.Since(f.told) > toldEvery {
		f.failing, f.told = failing, time.Now()
		if failing {
			f.notice("the receiver does not take event %s (%s): trying again", e.id(), v.why)
		} else {
			f.notice("the receiver takes events again")
		}
	}
	return v, nil
}

// giveUp stores a dead letter, however often it takes.
func (f *forwarding) giveUp(ctx context.Context, e event, msg *client.Ordered, why error) error {
	for {
		err := f.dead.store(ctx, e, msg.Subject, msg.Seq, why)
		if err == nil {
			f.metrics.dead.Inc()
			f.notice("event %s is given up (%s), and is a dead letter", e.id(), why)
			return nil
		}
		f.notice("the dead letter of event %s cannot be stored (%s): trying again", e.id(), err)
		if err := wait(ctx, firstPause); err != nil {
			return err
		}
	}
}

func (f *forwarding) notice(format string, args ...any) {
	if f.opts.Notice != nil {
		f.opts.Notice(fmt.Sprintf(format, args...))
	}
}

// jitter is a duration that is up to a quarter shorter, so that messages do not come back all at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

// wait waits, unless ctx is done before.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

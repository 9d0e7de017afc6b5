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
	"sync/atomic"
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
	Patience    time.Duration  // the same, if the receiver refuses this message, and not all (5 min)
	LongestWait time.Duration  // between two attempts, unless the receiver asks for more (1 min)
	Timeout     time.Duration  // of a request (15 s)
	Messages    client.OrderedOptions
	Metrics     prometheus.Registerer // may be nil
	Notice      func(text string)
}

const (
	// firstPause is the pause after the first attempt that fails. Each further one is twice as long.
	firstPause = time.Second
	// patience is how long a message is tried that the receiver refuses, and leastAttempts how often: long enough for a
	// receiver that is being changed, and not so long that others wait for a day.
	patience      = 5 * time.Minute
	leastAttempts = 8
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
	taken   atomic.Uint64 // messages that the receiver has taken

	mu      sync.Mutex
	room    time.Time // when a message was last given up so that others come
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
	opts.Patience = cmp.Or(opts.Patience, patience)
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
	end, err := f.answerAgain(ctx, c, prefix)
	if err != nil {
		return err
	}
	defer end()
	return c.Ordered(ctx, opts.Messages, f.deliver)
}

// errParked is why an event is not tried.
var errParked = errors.New("an event about the same document before it is a dead letter, and has to be sent first")

// deliver delivers a message, or makes it a dead letter. An error means that it did neither. While there is a dead
// letter about a document, its later messages are parked behind that.
func (f *forwarding) deliver(ctx context.Context, msg *client.Ordered) error {
	f.metrics.begins(msg)
	defer f.metrics.held.Dec()
	e := event{msg.Header, msg.Data}
	if parked, err := f.giveUp(ctx, e, msg, errParked, true); parked || err != nil {
		return err
	}
	began, taken, attempts := time.Now(), f.taken.Load(), 1
	for pause := min(firstPause, f.opts.LongestWait); ; pause = min(2*pause, f.opts.LongestWait) {
		v, err := f.try(ctx, e)
		switch {
		case err != nil:
			return err
		case v.why == nil:
			f.taken.Add(1)
			f.metrics.delivered.Inc()
			return nil
		case errors.Is(v.why, ErrGone):
			return v.why
		case v.dead || time.Since(began)+pause > f.giveUpAfter(v, msg, attempts, time.Since(began), f.taken.Load() > taken):
			_, err := f.giveUp(ctx, e, msg, v.why, false)
			return err
		}
		attempts++
		if err := wait(ctx, max(v.pause, jitter(pause))); err != nil {
			return err
		}
	}
}

// giveUpAfter is how long a message is tried after an attempt that ended with a verdict. It is not long if the receiver
// calls the message wrong, or takes others meanwhile. Where messages that it does not take are all that there is room
// for, one is given up once in a while, so that it can be seen whether the receiver takes others.
func (f *forwarding) giveUpAfter(
	v verdict, msg *client.Ordered, attempts int, tried time.Duration, others bool,
) time.Duration {
	most, short := f.opts.GiveUpAfter, min(f.opts.GiveUpAfter, f.opts.Patience)
	switch {
	case v.refused:
		return short
	case v.busy || attempts < leastAttempts || tried < short:
		return most
	case others || msg.Full() && f.makesRoom():
		return short
	}
	return most
}

// makesRoom reports whether it is time to give a message up so that others come.
func (f *forwarding) makesRoom() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.room) < f.opts.Patience {
		return false
	}
	f.room = time.Now()
	return true
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

// giveUp stores a dead letter, however often it takes; behind that of an earlier message about the document, or, if
// parks is not set, as the first one. It reports whether it did.
func (f *forwarding) giveUp(
	ctx context.Context, e event, msg *client.Ordered, why error, parks bool,
) (stored bool, err error) {
	for {
		stored, err = f.dead.store(ctx, e, msg, why, parks)
		switch {
		case err == nil && !stored:
			return false, nil
		case err == nil:
			f.metrics.dead.Inc()
			if !parks {
				f.notice("event %s is given up (%s): it is a dead letter, and later events about its document go behind it", e.id(),
					why)
			}
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
		f.notice("the dead letters about the document of event %s cannot be looked up or stored (%s): trying again", e.id(),
			err)
		if err := wait(ctx, firstPause); err != nil {
			return false, err
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

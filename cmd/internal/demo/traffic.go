package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

const (
	cartTTL         = 15 * time.Second
	shortestSession = 10 * time.Second
	longestSession  = 2 * time.Minute
	readingTTL      = 5 * time.Second
	soonestMail     = 2 * time.Second
	latestMail      = 20 * time.Second

	// writers is how many writes wait for their outcome at a time, at most.
	writers = 16
	// invalidEvery is how many readings there are for one that lapse rejects.
	invalidEvery = 200
)

type document = map[string]any

// traffic decides what is written next.
type traffic struct {
	carts, sessions, mail *client.Collection[document]
	readings              *client.Collection[json.RawMessage] // some are not valid

	n                         int // writes so far
	openCarts, activeSessions renewable
}

// write is one write. It returns when lapse has applied or rejected it.
type write func(ctx context.Context) error

// newTraffic configures the collections.
func newTraffic(ctx context.Context, c *client.Client) (*traffic, error) {
	t := &traffic{openCarts: renewable{keep: cartTTL / 2}, activeSessions: renewable{keep: shortestSession / 2}}
	t.carts, _ = client.Open[document](c, "carts") // the names are valid
	t.sessions, _ = client.Open[document](c, "sessions")
	t.mail, _ = client.Open[document](c, "mail")
	t.readings, _ = client.Open[json.RawMessage](c, "readings")
	if _, err := t.carts.Configure(ctx, client.Config{DefaultTTL: cartTTL, WarnBefore: []time.Duration{cartTTL / 3}}); err != nil {
		return nil, err
	}
	for _, o := range []*client.Collection[document]{t.sessions, t.mail} {
		if _, err := o.Configure(ctx, client.Config{DefaultTTL: client.Never}); err != nil {
			return nil, err
		}
	}
	if _, err := t.readings.Configure(ctx, client.Config{DefaultTTL: readingTTL}); err != nil {
		return nil, err
	}
	return t, nil
}

// run writes at a rate a second until ctx is done. If lapse does not keep up, it writes less.
func (t *traffic) run(ctx context.Context, rate int, seen *tally) {
	writes := make(chan write)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for w := range writes {
				err := w(ctx)
				if ctx.Err() == nil {
					seen.wrote(err)
				}
			}
		})
	}
	next := time.NewTicker(time.Second / time.Duration(rate))
	defer next.Stop()
	for ctx.Err() == nil {
		select {
		case writes <- t.next():
		case <-ctx.Done():
		}
		select {
		case <-next.C:
		case <-ctx.Done():
		}
	}
	close(writes)
	running.Wait()
}

// next is the next write: of twenty, fourteen readings, four carts, a session and a message.
func (t *traffic) next() write {
	t.n++
	switch t.n % 20 {
	case 0:
		return t.session()
	case 10:
		return t.message()
	case 3, 6, 13, 16:
		return t.cart()
	}
	return t.reading()
}

var (
	goods   = []string{"tea", "coffee", "bread", "butter", "jam", "honey", "milk", "oats"}
	devices = []string{"phone", "tablet", "laptop"}
	rooms   = []string{"cellar", "kitchen", "attic", "greenhouse"}
)

func oneOf(texts []string) string { return texts[rand.IntN(len(texts))] }

// cart begins a cart, puts something into one, or checks one out.
func (t *traffic) cart() write {
	filled := document{"item": oneOf(goods), "count": 1 + rand.IntN(4)}
	switch id := t.openCarts.any(); {
	case id == "" || rand.IntN(2) == 0:
		id = fmt.Sprintf("cart-%d", t.n)
		t.openCarts.add(id)
		return func(ctx context.Context) error { _, err := t.carts.Create(ctx, id, filled); return err }
	case rand.IntN(3) > 0:
		return func(ctx context.Context) error { _, err := t.carts.Patch(ctx, id, filled); return err }
	default:
		t.openCarts.remove(id)
		return func(ctx context.Context) error { _, err := t.carts.Delete(ctx, id); return err }
	}
}

// session begins a session, or renews one.
func (t *traffic) session() write {
	id := t.activeSessions.any()
	if id != "" && rand.IntN(3) == 0 {
		return func(ctx context.Context) error { _, err := t.sessions.Touch(ctx, id); return err }
	}
	id = fmt.Sprintf("session-%d", t.n)
	t.activeSessions.add(id)
	ttl := shortestSession + rand.N(longestSession-shortestSession)
	return func(ctx context.Context) error {
		_, err := t.sessions.Upsert(ctx, id, document{"device": oneOf(devices)}, client.TTL(ttl.Truncate(time.Second)))
		return err
	}
}

// message schedules a mail.
func (t *traffic) message() write {
	at := time.Now().Add(soonestMail + rand.N(latestMail-soonestMail))
	to := fmt.Sprintf("customer-%d@example.com", t.n)
	return func(ctx context.Context) error {
		_, err := t.mail.Schedule(ctx, "mail.send", at, document{"to": to, "about": oneOf(goods)})
		return err
	}
}

// reading writes a reading, or one that lapse rejects.
func (t *traffic) reading() write {
	room := oneOf(rooms)
	id, text := fmt.Sprintf("%s-%d", room, t.n), fmt.Sprintf(`{"room":%q,"celsius":%.1f}`, room, 15+10*rand.Float64())
	if t.n%invalidEvery == invalidEvery-1 {
		text = `{"ttl":0.5}`
	}
	return func(ctx context.Context) error {
		_, err := t.readings.Upsert(ctx, id, json.RawMessage(text))
		return err
	}
}

// renewable has the ids of documents that are still far from their deadline.
type renewable struct {
	keep time.Duration // for how long they are
	ids  []string      // the oldest first
	at   []time.Time   // when each was added
}

func (r *renewable) add(id string) { r.ids, r.at = append(r.ids, id), append(r.at, time.Now()) }

func (r *renewable) remove(id string) {
	for i := range r.ids {
		if r.ids[i] == id {
			r.ids, r.at = append(r.ids[:i], r.ids[i+1:]...), append(r.at[:i], r.at[i+1:]...)
			return
		}
	}
}

// any is one of the ids; "" if there is none.
func (r *renewable) any() string {
	for len(r.at) > 0 && time.Since(r.at[0]) > r.keep {
		r.ids, r.at = r.ids[1:], r.at[1:]
	}
	if len(r.ids) == 0 {
		return ""
	}
	return oneOf(r.ids)
}

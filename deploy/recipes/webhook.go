package recipes

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.etcd.io/bbolt"
)

// WebhookEvent is what lapse forward posts: a CloudEvent.
type WebhookEvent struct {
	Type    string          `json:"type"`    // such as lapse.document.expired.v1
	Source  string          `json:"source"`  // of which lapse and collection
	Subject string          `json:"subject"` // the id of the document
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"` // the event, with the document in it
}

// WebhookOptions are what a Webhook needs.
type WebhookOptions struct {
	DB *bbolt.DB
	// Secret is the line of the file that lapse forward has, such as whsec_….
	Secret string
	// Effect is what an event does. It writes into the transaction alone, so that it takes effect once. After an
	// error lapse posts the event again later.
	Effect func(tx *bbolt.Tx, e WebhookEvent) error
	// Remember is how long the ids of events are remembered: 9 days if 0. It has to be longer than lapse
	// keeps events (--events-max-age).
	Remember time.Duration
}

// Webhook receives the events that lapse forward posts, each at least once, and lets each take effect once: it
// remembers the id of an event in the transaction of its effect.
type Webhook struct {
	opts     WebhookOptions
	verifier *webhooks.Webhook
}

// The buckets of the ids of events: those that were handled, and the same by the time of that.
var (
	seenIDs  = []byte("webhook-ids")
	seenTime = []byte("webhook-ids-by-time")
)

// mostEventBytes is the largest event that is read.
const mostEventBytes = 16 << 20

// NewWebhook makes a receiver, and its buckets in the database.
func NewWebhook(opts WebhookOptions) (*Webhook, error) {
	if opts.Remember == 0 {
		opts.Remember = 9 * 24 * time.Hour
	}
	verifier, err := webhooks.NewWebhook(opts.Secret)
	if err != nil {
		return nil, fmt.Errorf("the secret is not valid: use the line of the file that lapse forward has: %w", err)
	}
	err = opts.DB.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(seenIDs)
		if err == nil {
			_, err = tx.CreateBucketIfNotExists(seenTime)
		}
		return err
	})
	return &Webhook{opts, verifier}, err
}

// ServeHTTP answers 204 once the event has taken effect, now or before.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "events are posted", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostEventBytes))
	if err != nil {
		status := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "the event cannot be read", status)
		return
	}
	if err := h.verifier.Verify(body, r.Header); err != nil {
		http.Error(w, "the signature is not valid", http.StatusUnauthorized)
		return
	}
	var e WebhookEvent
	if err := json.Unmarshal(body, &e); err != nil {
		http.Error(w, "the body is no CloudEvent in JSON", http.StatusBadRequest)
		return
	}
	if err := h.once(r.Header.Get(webhooks.HeaderWebhookID), e, time.Now()); err != nil {
		http.Error(w, "the event has not taken effect", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// once lets an event take effect, unless its id is remembered.
func (h *Webhook) once(id string, e WebhookEvent, now time.Time) error {
	return h.opts.DB.Update(func(tx *bbolt.Tx) error {
		seen, byTime := tx.Bucket(seenIDs), tx.Bucket(seenTime)
		if seen.Get([]byte(id)) != nil {
			return nil
		}
		if err := h.opts.Effect(tx, e); err != nil {
			return err
		}
		at := stamp(now)
		err := errors.Join(seen.Put([]byte(id), at), byTime.Put(append(at, id...), nil))
		return errors.Join(err, forget(seen, byTime, stamp(now.Add(-h.opts.Remember))))
	})
}

// forget removes some ids from before an instant, so that there are never more than of that time.
func forget(seen, byTime *bbolt.Bucket, before []byte) error {
	for range 2 {
		key, _ := byTime.Cursor().First()
		if key == nil || string(key[:8]) >= string(before) {
			return nil
		}
		if err := errors.Join(seen.Delete(key[8:]), byTime.Delete(key)); err != nil {
			return err
		}
	}
	return nil
}

// stamp is an instant as bytes that sort by time.
func stamp(t time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t.UnixNano())) }

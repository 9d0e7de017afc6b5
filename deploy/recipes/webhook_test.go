package recipes_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.etcd.io/bbolt"

	"github.com/seed18712806/lapse/deploy/recipes"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// received is a receiver of webhooks whose effect is to append the id of the document to what is in its database.
type received struct {
	t       *testing.T
	db      *bbolt.DB
	handler http.Handler
	broken  error // of the effect, after it has written
}

var effects = []byte("effects")

func newReceived(t *testing.T, remember time.Duration) *received {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r := &received{t: t, db: db}
	r.handler, err = recipes.NewWebhook(recipes.WebhookOptions{
		DB: db, Secret: webhookSecret, Remember: remember,
		Effect: func(tx *bbolt.Tx, e recipes.WebhookEvent) error {
			b, err := tx.CreateBucketIfNotExists(effects)
			if err == nil {
				err = b.Put(effects, append(b.Get(effects), e.Subject+" "...))
			}
			return errors.Join(err, r.broken)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// effects is what is in the database.
func (r *received) effects() (text string) {
	r.t.Helper()
	err := r.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(effects); b != nil {
			text = string(b.Get(effects))
		}
		return nil
	})
	if err != nil {
		r.t.Error(err)
	}
	return text
}

// post posts an event that was signed at an instant, and returns the status.
func (r *received) post(secret, id, subject string, at time.Time) int {
	r.t.Helper()
	body := `{"specversion":"1.0","type":"lapse.document.expired.v1","subject":"` + subject + `","data":{}}`
	signer, err := webhooks.NewWebhook(secret)
	if err != nil {
		r.t.Fatal(err)
	}
	signature, err := signer.Sign(id, at, []byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set(webhooks.HeaderWebhookID, id)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(webhooks.HeaderWebhookSignature, signature)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w.Code
}

// TestWebhookTakesEffectOnce: an event takes effect once, however often it comes, and not at all if it is not signed.
func TestWebhookTakesEffectOnce(t *testing.T) {
	t.Parallel()
	r := newReceived(t, 0)
	now := time.Now()
	other := "whsec_" + strings.Repeat("A", 32)
	for _, c := range []struct {
		secret, id, subject string
		at                  time.Time
		want                int
	}{
		{webhookSecret, "lapse/1/a", "a", now, 204},
		{webhookSecret, "lapse/1/a", "a", now, 204},
		{other, "lapse/1/b", "b", now, 401},
		{webhookSecret, "lapse/1/b", "b", now.Add(-time.Hour), 401},
		{webhookSecret, "lapse/1/b", "b", now, 204},
	} {
		if status := r.post(c.secret, c.id, c.subject, c.at); status != c.want {
			t.Errorf("%s: %d, want %d", c.id, status, c.want)
		}
	}
	if got := r.effects(); got != "a b " {
		t.Errorf("the effects are %q", got)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a GET is %d", w.Code)
	}
}

// TestWebhookAfterAnError: an effect that fails leaves nothing, and neither does the id: the event comes again.
func TestWebhookAfterAnError(t *testing.T) {
	t.Parallel()
	r := newReceived(t, 0)
	r.broken = errors.New("broken")
	if status := r.post(webhookSecret, "1", "a", time.Now()); status != 500 || r.effects() != "" {
		t.Errorf("%d, and the effects are %q", status, r.effects())
	}
	r.broken = nil
	if status := r.post(webhookSecret, "1", "a", time.Now()); status != 204 || r.effects() != "a " {
		t.Errorf("%d, and the effects are %q", status, r.effects())
	}
}

// TestWebhookForgets: ids are forgotten after their time, so they do not grow for ever.
func TestWebhookForgets(t *testing.T) {
	t.Parallel()
	r := newReceived(t, time.Nanosecond)
	for n := range 20 {
		if status := r.post(webhookSecret, strconv.Itoa(n), "a", time.Now()); status != 204 {
			t.Error(status)
		}
	}
	err := r.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if n := b.Stats().KeyN; n > 2 {
				t.Errorf("%s has %d", name, n)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWebhookSecret: a secret that is none is an error.
func TestWebhookSecret(t *testing.T) {
	t.Parallel()
	if _, err := recipes.NewWebhook(recipes.WebhookOptions{Secret: "whsec_!"}); err == nil {
		t.Error("it takes it")
	}
}

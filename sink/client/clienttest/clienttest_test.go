package clienttest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct {
	Item string `json:"item"`
}

// A document with a TTL of a year expires at once when the clock advances, with its event, and
// time goes on from there.
func TestTimePassesWithoutWaiting(t *testing.T) {
	began := time.Now()
	l := clienttest.Start(t, clienttest.OpenCollections)
	t.Logf("ready after %s", time.Since(began))
	orders, err := client.Open[order](l.Client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	const year = 365 * 24 * time.Hour
	if _, err := orders.Configure(t.Context(), client.Config{DefaultTTL: year}); err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Upsert(t.Context(), "1", order{"tea"}); err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Upsert(t.Context(), "2", order{"coffee"}, client.TTL(2*year)); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	l.Advance(year - time.Hour)
	t.Logf("advanced within %s", time.Since(began))
	all, err := l.Client().Collections(t.Context(), wire.CollectionsRequest{})
	if err != nil || len(all.Collections) != 1 {
		t.Errorf("collections %+v, %v", all, err)
	}
	doc, err := orders.Get(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	if left := doc.ExpiresAt.Sub(l.Now()); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it expires in %s: want about an hour", left)
	}
	began = time.Now()
	l.Expire("orders", "1")
	t.Logf("expired within %s", time.Since(began))
	if _, err := orders.Get(t.Context(), "1"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	if _, err := orders.Get(t.Context(), "2"); err != nil {
		t.Error(err)
	}

	// A new document gets the time of the log, and expires when that much has passed.
	w, err := orders.Create(t.Context(), "1", order{"tea"}, client.TTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if ahead := time.Until(w.Ts); ahead < year-time.Minute {
		t.Errorf("it was written %s ahead of the machine's clock: want a year", ahead)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err = orders.OnExpired(ctx, "test", func(_ context.Context, e client.Expired[order]) error {
		if e.Etag == w.Etag {
			stop()
		}
		return nil
	}, client.Since(time.Time{}))
	if err != nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("the clock does not go on: %v", err)
	}
}

// TestExpireAMessage: Expire waits for the message, which comes in place of an event.
func TestExpireAMessage(t *testing.T) {
	t.Parallel()
	l := clienttest.Start(t, clienttest.OpenCollections)
	for _, collection := range []string{"other", "mail"} {
		mails, err := client.Open[order](l.Client(), collection)
		if err == nil {
			_, err = mails.Configure(t.Context(), client.Config{DefaultTTL: client.Never})
		}
		if err == nil {
			_, err = mails.Schedule(t.Context(), "mail.send", l.Now().Add(time.Hour), order{"tea"}, client.ID("1"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.Expire("mail", "1")
	came := 0
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err := l.Client().Watch(ctx, client.WatchOptions{Due: "mail.send", Collection: "mail", Since: new(time.Time)},
		func(client.Notification) error {
			came++
			stop()
			return nil
		})
	if err != nil || came != 1 {
		t.Errorf("%d messages, %v", came, err)
	}
}
